"""Which snapshot a read sees: what `as_of` names, and whether the files of that snapshot still exist."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timezone

from lakebed.errors import InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.model.files import BaseFile, FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.table import TableState
from lakebed.timeline import Snapshot
from lakebed.view.blocks import CountedInstants

_DIGITS = re.compile(r"[0-9]{8}|[0-9]{10}|[0-9]{12}|[0-9]{14}|[0-9]{17}", re.ASCII)
_START = "00000101000000000"
_FORMATS_HINT = (
    "give the requested time of an instant (`lakebed timeline` lists them), a datetime, or text such as "
    "'2026-11-16', '2026-11-16 09:30:00' or '20261116093000000'"
)


def take_snapshot(state: TableState, as_of: object) -> Snapshot:
    """The newest snapshot, or the one visible at `as_of`; raises InvalidInputError if its files were cleaned."""
    if as_of is None:
        _check_restore(state)
        return state.latest
    snapshot = state.snapshot_at(completion_as_of(state, as_of))
    check_retained(state, snapshot)
    return snapshot


def _check_restore(state: TableState) -> None:
    """During a restore, files of the newest snapshot may have been cleaned."""
    newest = state.timeline.last_completed_at
    if newest is not None and any(i.action is Action.RESTORE for i in state.timeline.pending()):
        check_retained(state, state.snapshot_at(newest))


def counted_instants(snapshot: Snapshot) -> CountedInstants:
    """The writes of a snapshot, as a picklable value."""
    commits = snapshot.timeline.commits()
    return CountedInstants(frozenset(i.requested_at for i in commits), snapshot.archived_before or "")


@dataclass(frozen=True, slots=True)
class Completion:
    """A point in time given as a completion time."""

    time: InstantTime


def completion_as_of(state: TableState, as_of: object) -> InstantTime:
    """The completion time of the snapshot that `as_of` names.

    The requested time of a known instant means right after that instant completed. Any other time means everything that
    had completed by then. Raises InvalidInputError for a time before the first commit.
    """
    stand = completion_of_point(state, as_of)
    if not any(i.completed_at is not None and i.completed_at <= stand for i in state.timeline.commits()):
        first = state.timeline.first_requested_at
        raise InvalidInputError(
            f"as_of {as_of!r} is before the first commit of table {state.config.name}",
            hint=f"the earliest instant on its timeline is {first}" if first else "the table has no commits yet",
        )
    return stand


def completion_of_point(state: TableState, point: object) -> InstantTime:
    """The completion time of the active or archived instant that `point` names; else `point` parsed as a time."""
    if isinstance(point, Completion):
        return point.time
    instant = InstantTime(str(point).strip())
    known = state.timeline.completion_of(instant)
    if known is None and _DIGITS.fullmatch(instant) and len(instant) >= 14:
        known = state.archive.completions([instant]).get(instant)
    return known or parse_time(point, utc=state.config.timeline_timezone == "UTC")


def parse_time(value: object, *, utc: bool) -> InstantTime:
    """Parses a time into the digits of an instant. A time with a zone is converted to UTC or this machine's zone."""
    if isinstance(value, datetime):
        return _from_datetime(value, utc=utc)
    if isinstance(value, date):
        return _from_datetime(datetime.combine(value, time.min), utc=utc)
    text = str(value).strip()
    if _DIGITS.fullmatch(text):
        return InstantTime(text + _START[len(text) :] if len(text) >= 8 else text)
    try:
        if len(text) == 10:
            return _from_datetime(datetime.combine(date.fromisoformat(text), time.min), utc=utc)
        return _from_datetime(datetime.fromisoformat(text.replace("Z", "+00:00")), utc=utc)
    except ValueError as error:
        raise InvalidInputError(f"{value!r} is not a point in time", hint=_FORMATS_HINT) from error


def _from_datetime(value: datetime, *, utc: bool) -> InstantTime:
    if value.tzinfo is not None:
        value = value.astimezone(timezone.utc if utc else None)
    return InstantTime(value.strftime("%Y%m%d%H%M%S") + f"{value.microsecond // 1000:03d}")


_Bases = dict[FileGroupId, set[InstantTime]]
"""Instants of the base files of each file group."""


@dataclass(slots=True)
class _Removed:
    """Instants of the cleaned base and log files of a file group, and the time from which no reader needed them."""

    instants: set[InstantTime] = field(default_factory=set)
    logs: set[InstantTime] = field(default_factory=set)
    unneeded_from: str = ""


def check_retained(state: TableState, snapshot: Snapshot) -> None:
    """Raises InvalidInputError if a file that the snapshot needs was cleaned; rows would be silently missing."""
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
    """A file group whose files the snapshot needs and that were cleaned; None if there is none."""
    replaced, ever_replaced = state.replaced(snapshot), state.replaced(state.latest)
    for group, cleaned in removed.items():
        if group not in present and group not in ever_replaced and cleaned.unneeded_from <= (snapshot.until or ""):
            continue  # Replaced by an archived instant.
        seen = [i for i in cleaned.instants | present.get(group, set()) if snapshot.completion_of(i) is not None]
        # Without a base file, the snapshot needs the log files.
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
    """Completion time of the write before the earliest retained one; files replaced by then may be cleaned."""
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
