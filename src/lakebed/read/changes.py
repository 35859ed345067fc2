"""Incremental reads: rows written after a point, by completion time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakebed.errors import InvalidInputError
from lakebed.filter.predicate import Predicate
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.read.as_of import completion_of_point
from lakebed.read.scan import ScanPlan, plan_slices, take_snapshot
from lakebed.table import TableState

EARLIEST = ("earliest", "0", "000")
_BEFORE_ALL = InstantTime("0")


def plan_changes(
    state: TableState,
    since: object,
    until: object = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
) -> ScanPlan:
    """The scan of rows written by commits that completed after `since` and up to `until`, with their values at `until`.

    Only file groups that such writes touched are read. Deleted rows are not among them.
    """
    if not state.config.has_meta_columns:
        raise InvalidInputError(
            f"table {state.config.name} does not record which commit wrote a row (hoodie.populate.meta.fields=false)",
            hint="compare two snapshots instead: to_arrow(as_of=...)",
        )
    snapshot = take_snapshot(state, until)
    start = _BEFORE_ALL if since is None or str(since) in EARLIEST else completion_of_point(state, since)
    end = snapshot.until or state.timeline.last_completed_at or start
    if until is not None and start > end:
        raise InvalidInputError(
            f"since {since!r} is after until {until!r}", hint="swap them, or leave `until` out to read up to now"
        )
    commits = [i for i in snapshot.timeline.commits() if i.completed_at is not None and start < i.completed_at <= end]
    archived = state.archive.writes_completed_after(start) if _reaches_archive(state, start) else {}
    slices = state.slices(snapshot)
    if not archived:
        touched = _touched_groups(state, commits)
        slices = tuple(file_slice for file_slice in slices if file_slice.group in touched)
    plan = plan_slices(state, snapshot, slices, columns=columns, where=where, is_latest=until is None)
    written_by = frozenset({i.requested_at for i in commits} | {t for t, done in archived.items() if done <= end})
    return replace(plan, tasks=tuple(replace(task, written_by=written_by) for task in plan.tasks))


def _reaches_archive(state: TableState, start: InstantTime) -> bool:
    first = state.timeline.first_requested_at
    return first is None or start < first


def _touched_groups(state: TableState, commits: Sequence[Instant]) -> frozenset[FileGroupId]:
    """File groups that the commits wrote, including table services, which may have moved ingested rows there."""
    return frozenset(
        FileGroupId(partition, stat.file_id)
        for instant in commits
        for partition, stats in state.documents.commit(instant).write_stats.items()
        for stat in stats
    )
