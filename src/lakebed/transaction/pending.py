"""What plans that are still to be executed have laid their hands on."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.format.timeline.metadata import decode_compaction_plan
from lakebed.format.timeline.plans import decode_clustering_groups
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.transaction.conflicts import Rival, WriteKind, WriteSet
from lakebed.transaction.section import instant_path


def pending_rivals(
    storage: Storage, config: TableConfig, timeline: Timeline, own: InstantTime | None = None
) -> Iterator[Rival]:
    """Compactions and clusterings that are planned or under way, as writes of the file groups in their plans."""
    for instant in timeline.pending():
        if instant.requested_at != own and instant.action in _KINDS:
            groups = planned_groups(storage, config, instant)
            yield Rival(instant, WriteSet(_KINDS[instant.action], rewritten=groups))


def planned_groups(storage: Storage, config: TableConfig, plan: Instant) -> frozenset[FileGroupId]:
    """The file groups that the plan of a compaction, log compaction or clustering is about."""
    path = instant_path(config, Instant(plan.requested_at, plan.action, State.REQUESTED))
    return _groups(plan.action, storage.get(path), path)


def _groups(action: Action, plan: bytes, path: str) -> frozenset[FileGroupId]:
    if action is Action.CLUSTERING:
        return decode_clustering_groups(plan, path=path)
    operations = decode_compaction_plan(plan, path=path).operations
    return frozenset(FileGroupId(operation.partition, operation.file_id) for operation in operations)


_KINDS = {
    Action.COMPACTION: WriteKind.COMPACTION,
    Action.LOG_COMPACTION: WriteKind.COMPACTION,
    Action.CLUSTERING: WriteKind.CLUSTERING,
}
