"""The timeline as a report: one entry per instant, and what each completed write wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakebed.api import Table, handle_of
from lakebed.engine.threads import map_tasks
from lakebed.errors import CorruptTableError
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import Instant
from lakebed.table import TableState
from lakebed.write.metrics import read_metrics


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """What a completed write left behind, by the count of its own commit metadata.

    `metrics` is what lakebed's own writes say of the time they took and of the keys they looked for.
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
    """One instant. Times are its digits as ISO 8601; a version 6 table does not record completion times.

    `problem` says why `written` is missing where the instant's file cannot be read.
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
    """The active timeline. `timezone` is that of all its times: UTC, or LOCAL to the machines that write."""

    table: str
    timezone: str
    instants: tuple[TimelineEntry, ...]


def timeline_report(table: Table) -> TimelineReport:
    """Every instant of the active timeline, and what each completed write wrote."""
    state = handle_of(table).state()
    zone = state.config.timeline_timezone
    entries = map_tasks(state.timeline.instants, lambda instant: _entry(state, instant))
    return TimelineReport(state.config.name, zone, tuple(entries))


def parse_instant(instant: str) -> datetime | None:
    """The date and time that an instant's digits spell; None for the few that are made up."""
    try:
        millis = int(instant[14:17].ljust(3, "0"))
        return datetime.strptime(instant[:14], "%Y%m%d%H%M%S").replace(microsecond=millis * 1000)
    except ValueError:
        return None


def _entry(state: TableState, instant: Instant) -> TimelineEntry:
    utc = state.config.timeline_timezone == "UTC"
    # Timeline layout 1 names instants by requested time alone; what stands for the completion time there is a copy.
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
    except CorruptTableError as error:  # The other instants are still worth seeing, all the more so then.
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
