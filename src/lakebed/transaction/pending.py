"""File groups claimed by pending plans and in-flight writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakebed.format.timeline.metadata import decode_commit, decode_compaction_plan
from lakebed.format.timeline.plans import decode_clustering_plan
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.transaction.conflicts import Rival, WriteKind, WriteSet
from lakebed.transaction.heartbeats import FOLDER
from lakebed.transaction.section import Section, instant_path


def pending_rivals(
    storage: Storage, config: TableConfig, timeline: Timeline, own: InstantTime | None = None
) -> Iterator[Rival]:
    """Pending compactions and clusterings, as writes of the file groups in their plans.

    Without the lock, a removable plan may have been removed meanwhile; then it is skipped.
    """
    for instant in timeline.pending():
        if instant.requested_at != own and instant.action in _KINDS:
            path = instant_path(config, Instant(instant.requested_at, instant.action, State.REQUESTED))
            plan = storage.find(path)
            if plan is not None:
                yield Rival(instant, WriteSet(_KINDS[instant.action], rewritten=_groups(instant.action, plan, path)))


def planned_groups(storage: Storage, config: TableConfig, plan: Instant) -> frozenset[FileGroupId]:
    """The file groups in the plan of a compaction, log compaction or clustering."""
    path = instant_path(config, Instant(plan.requested_at, plan.action, State.REQUESTED))
    return _groups(plan.action, storage.get(path), path)


def live_writers(section: Section) -> Iterator[tuple[Instant, WriteSet | None]]:
    """Live writers and their declared write sets; None if a write set is unknown, or is the whole table."""
    for instant in section.timeline.pending():
        if instant.action.changes_data and section.heartbeats.get(instant.requested_at, False):
            yield instant, _declared(section, instant) if instant.state is State.INFLIGHT else None


def foreign_writes(section: Section, own: InstantTime) -> tuple[InstantTime, ...]:
    """In-flight writes and services of other engines, as far as can be told.

    Their heartbeats are empty files or missing. A dead write of ours without a heartbeat looks the same.
    """
    return _foreign(section, (i for i in section.timeline.pending() if i.requested_at != own and _may_complete(i)))


def foreign_work(section: Section) -> tuple[InstantTime, ...]:
    """The same, and cleans."""
    return _foreign(section, (i for i in section.timeline.pending() if _may_complete(i) or _is_cleaning(i)))


def _foreign(section: Section, instants: Iterable[Instant]) -> tuple[InstantTime, ...]:
    pending = [instant.requested_at for instant in instants]
    sizes = {each.path.rpartition("/")[2]: each.size for each in section.ports.storage.list(FOLDER)} if pending else {}
    return tuple(time for time in pending if not sizes.get(time))


def _may_complete(instant: Instant) -> bool:
    """Whether it is in flight; the plan of a service may stay requested for long."""
    return instant.action.changes_data or (instant.action in _KINDS and instant.state is State.INFLIGHT)


def _is_cleaning(instant: Instant) -> bool:
    return instant.action is Action.CLEAN and instant.state is State.INFLIGHT


def _declared(section: Section, instant: Instant) -> WriteSet | None:
    """The write set in an inflight file. Overwrites declare partitions, not the file groups that they replace."""
    path = section.path(instant)
    metadata = decode_commit(section.ports.storage.get(path), path=path)
    if not metadata.write_stats:
        return None
    if instant.action is not Action.REPLACE_COMMIT:
        groups = frozenset(FileGroupId(stat.partition, stat.file_id) for stat in metadata.stats)
        return WriteSet(WriteKind.UPSERT, rewritten=groups)
    if metadata.operation != "INSERT_OVERWRITE":
        return None
    return WriteSet(WriteKind.OVERWRITE, partitions=frozenset(metadata.write_stats))


def _groups(action: Action, plan: bytes, path: str) -> frozenset[FileGroupId]:
    if action is Action.CLUSTERING:
        return decode_clustering_plan(plan, path=path).file_groups
    operations = decode_compaction_plan(plan, path=path).operations
    return frozenset(FileGroupId(operation.partition, operation.file_id) for operation in operations)


_KINDS = {
    Action.COMPACTION: WriteKind.COMPACTION,
    Action.LOG_COMPACTION: WriteKind.COMPACTION,
    Action.CLUSTERING: WriteKind.CLUSTERING,
}
