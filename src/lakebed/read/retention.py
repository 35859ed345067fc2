"""Whether a past snapshot can still be read: the cleaner may have removed its files."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.table import TableState
from lakebed.timeline import Snapshot

_Bases = dict[FileGroupId, set[InstantTime]]
"""Instants of the base files of each file group."""


@dataclass(slots=True)
class _Removed:
    """Instants of the cleaned files of a file group, and the time from which no reader needed them."""

    instants: set[InstantTime] = field(default_factory=set)
    logs: set[InstantTime] = field(default_factory=set)
    unneeded_from: str = ""


def check_retained(state: TableState, snapshot: Snapshot) -> None:
    """Raises InvalidInputError if a file that the snapshot needs has been cleaned: rows would be missing silently."""
    removed = _removed_bases(state)
    if not removed or _is_saved(state, snapshot):
        return
    present = _present_bases(state)
    lost = _find_lost(state, snapshot, removed, present)
    if lost is None:
        return
    points = (state.snapshot_at(i.completed_at) for i in state.timeline.commits() if i.completed_at is not None)
    readable = (point.until for point in points if _find_lost(state, point, removed, present) is None)
    raise InvalidInputError(
        f"table {state.config.name} as of {snapshot.until} needs files of {lost} that have been cleaned",
        hint=f"the earliest time that is still readable is {next(readable, 'now')}",
    )


def _is_saved(state: TableState, snapshot: Snapshot) -> bool:
    """Whether a savepoint protects the files of the snapshot, so that none of them was cleaned."""
    saved = (i.requested_at for i in state.timeline.completed() if i.action is Action.SAVEPOINT)
    return snapshot.until is not None and snapshot.until in map(state.timeline.completion_of, saved)


def _find_lost(
    state: TableState, snapshot: Snapshot, removed: dict[FileGroupId, _Removed], present: _Bases
) -> FileGroupId | None:
    """A file group of which the snapshot needs files that are gone, if there is one."""
    replaced, ever_replaced = state.replaced(snapshot), state.replaced(state.latest)
    for group, cleaned in removed.items():
        if group not in present and group not in ever_replaced and cleaned.unneeded_from <= (snapshot.until or ""):
            continue  # It was replaced by an instant that is archived.
        seen = [i for i in cleaned.instants | present.get(group, set()) if snapshot.completion_of(i) is not None]
        # Without a base file, the logs are all there is.
        lost = max(seen) in cleaned.instants if seen else any(map(snapshot.completion_of, cleaned.logs))
        if lost and group not in replaced:
            return group
    return None


def _removed_bases(state: TableState) -> dict[FileGroupId, _Removed]:
    removed: dict[FileGroupId, _Removed] = {}
    for instant in state.timeline.completed():
        if instant.action is Action.CLEAN:
            clean = state.documents.clean(instant)
            unneeded_from = _unneeded_from(state, InstantTime(clean.earliest_to_retain or instant.requested_at))
            for partition, names in clean.deleted_files.items():
                for name in names:
                    file = decode_data_file_name(name.rpartition("/")[2], folder=partition)
                    if file is not None:
                        known = removed.setdefault(FileGroupId(partition, file.file_id), _Removed())
                        (known.instants if isinstance(file, BaseFile) else known.logs).add(file.instant)
                        known.unneeded_from = max(known.unneeded_from, unneeded_from)
    return removed


def _unneeded_from(state: TableState, earliest: InstantTime) -> InstantTime:
    """When the write before the earliest retained one completed: what was hidden by then may have been cleaned."""
    completed_at = state.latest.completion_of(earliest) or earliest
    before = (i.completed_at for i in state.timeline.commits() if i.completed_at and i.completed_at < completed_at)
    return max(before, default=completed_at)


def _present_bases(state: TableState) -> _Bases:
    present: _Bases = {}
    for partition, files in state.files.items():
        for file in files:
            if isinstance(file, BaseFile):
                present.setdefault(FileGroupId(partition, file.file_id), set()).add(file.instant)
    return present
