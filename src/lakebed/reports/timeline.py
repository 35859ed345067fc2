"""Report of the timeline: one entry per instant, with counts of each completed write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakebed.api import Table, handle_of
from lakebed.engine.engines import map_tasks
from lakebed.errors import CorruptTableError
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import Instant
from lakebed.table import TableState
from lakebed.write.metrics import read_metrics


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """Counts of a completed write, from its commit metadata.

    `metrics` are recorded by lakebed's own writes: milliseconds by phase, and numbers of keys looked up.
    """

    operation: str | None
    inserted: int
    updated: int
    deleted: int
    files: int
    bytes: int
    replaced_file_groups: int
    metrics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant. Times are ISO 8601; tables of version 6 record no completion times.

    `problem` says why the file of the instant could not be read; `written` is then None.
    """

    requested_at: str
    requested_time: str | None
    action: str
    state: str
    completed_at: str | None
    completed_time: str | None
    duration_s: float | None
    written: WriteSummary | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TimelineReport:
    """The active timeline. `timezone` of its times is UTC, or LOCAL (the zone of the writing machines)."""

    table: str
    timezone: str
    instants: tuple[TimelineEntry, ...]


def timeline_report(table: Table) -> TimelineReport:
    """Reports every instant of the active timeline."""
    state = handle_of(table).state()
    zone = state.config.timeline_timezone
    entries = map_tasks(state.timeline.instants, lambda instant: _entry(state, instant))
    return TimelineReport(state.config.name, zone, tuple(entries))


def parse_instant(instant: str) -> datetime | None:
    """The date and time in the digits of an instant; None for reserved instants that are no time."""
    try:
        millis = int(instant[14:17].ljust(3, "0"))
        return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(microsecond=millis * 1000)
    except ValueError:
        return None


def _entry(state: TableState, instant: Instant) -> TimelineEntry:
    utc = state.config.timeline_timezone == "UTC"
    # In timeline layout 1, `completed_at` is a copy of the requested time.
    completed_at = instant.completed_at if state.config.timeline_layout > 1 else None
    written, problem = _written(state, instant)
    return TimelineEntry(
        requested_at=instant.requested_at,
        requested_time=_iso(instant.requested_at, utc=utc),
        action=str(instant.action),
        state=str(instant.state),
        completed_at=completed_at,
        completed_time=_iso(completed_at, utc=utc) if completed_at else None,
        duration_s=_seconds_between(instant.requested_at, completed_at) if completed_at else None,
        written=written,
        problem=problem,
    )


def _written(state: TableState, instant: Instant) -> tuple[WriteSummary | None, str | None]:
    if not (instant.is_completed and instant.action.changes_data):
        return None, None
    try:
        return _sum_up(state.documents.commit(instant)), None
    except CorruptTableError as error:  # One corrupt file must not hide the other instants.
        return None, error.what


def _sum_up(commit: CommitMetadata) -> WriteSummary:
    stats = tuple(commit.stats)
    return WriteSummary(
        operation=commit.operation.lower() if commit.operation else None,
        inserted=sum(stat.num_inserts for stat in stats),
        updated=sum(stat.num_updates for stat in stats),
        deleted=sum(stat.num_deletes for stat in stats),
        files=len(stats),
        bytes=sum(stat.total_write_bytes for stat in stats),
        replaced_file_groups=sum(len(file_ids) for file_ids in commit.replaced_file_ids.values()),
        metrics=read_metrics(commit.extra_metadata),
    )


def _iso(instant: str, *, utc: bool) -> str | None:
    at = parse_instant(instant)
    return None if at is None else at.isoformat(timespec="milliseconds") + ("Z" if utc else "")


def _seconds_between(start: str, end: str) -> float | None:
    begun, done = parse_instant(start), parse_instant(end)
    return (done - begun).total_seconds() if begun and done else None
