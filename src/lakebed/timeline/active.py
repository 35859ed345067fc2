"""Loading the active timeline."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.format.timeline.instant_names import decode_instant_name
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.model.words import Action
from lakebed.storage import Storage
from lakebed.timeline.timeline import Timeline


def load_timeline(
    storage: Storage, config: TableConfig, root: str = "", first: Iterable[Instant] | None = None
) -> Timeline:
    """The active timeline of the table below `root`: a prefix of the instants, in completion order.

    A listing is not atomic: an instant that completes meanwhile may be listed without an earlier one. So the folder is
    listed twice, and only instants that had completed by the newest completion of the `first` listing are returned.
    Savepoints are returned as found: they change nothing, and the time of a deleted one may be drawn again.

    If a completed instant has disappeared, it is being archived or rolled back, and a listing may show a later one
    without it: then the folder is listed once more.
    """
    first = tuple(list_instants(storage, config, root) if first is None else first)
    second = list_instants(storage, config, root)
    while not _completed(first) <= _completed(second):
        first, second = second, list_instants(storage, config, root)
    newest = max((i.completed_at or "" for i in first if _is_ordered(i)), default=None)
    late = {
        (i.requested_at, i.action)
        for i in second
        if _is_ordered(i) and (newest is None or (i.completed_at or "") > newest)
    }
    if not late:
        return Timeline.of(second)
    # An instant that completed after the cut is still pending to this reader: its requested file says so.
    return Timeline.of(i for i in second if not (i.is_completed and (i.requested_at, i.action) in late))


def _completed(instants: Iterable[Instant]) -> frozenset[Instant]:
    return frozenset(instant for instant in instants if _is_ordered(instant))


def _is_ordered(instant: Instant) -> bool:
    return instant.is_completed and instant.action is not Action.SAVEPOINT


def list_instants(storage: Storage, config: TableConfig, root: str = "") -> tuple[Instant, ...]:
    """Every instant file of the active timeline; other names are skipped."""
    folder, layout = f"{root}{config.timeline_path}", config.timeline_layout
    found = [decode_instant_name(name, layout=layout, folder=folder) for name in storage.list_names(folder)]
    return tuple([instant for instant in found if instant is not None])
