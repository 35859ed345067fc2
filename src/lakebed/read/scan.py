"""Planning a scan (which snapshot or changes, which slices, which columns), and running it in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pyarrow as pa

from lakebed.engine.engines import map_tasks
from lakebed.errors import InvalidInputError
from lakebed.filter.predicate import Predicate, parse_where
from lakebed.format.arrow import empty_table
from lakebed.index.prune import Query
from lakebed.metadata import Unusable
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import Instant, InstantTime
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.prune import PruneStep, few_keys, prune_slices
from lakebed.read.snapshot import completion_of_point, counted_instants, take_snapshot
from lakebed.storage import Requests
from lakebed.table import TableState
from lakebed.timeline import Snapshot

SNAPSHOT, READ_OPTIMIZED = "snapshot", "read_optimized"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a scan was planned. `files_from` is the source of the file list."""

    table: str
    as_of: str | None
    files_from: str
    where: str | None
    steps: tuple[PruneStep, ...]
    slices: int
    slices_merged: int
    bytes: int
    requests: Requests
    """Requests to the store made by planning."""

    @property
    def asked(self) -> str:
        """The requests as a phrase."""
        counts = self.requests
        gets = counts.gets + counts.ranged_gets + counts.opens
        return f"{counts.lists} listings and {gets} reads of {counts.bytes_read:,} bytes"

    def __str__(self) -> str:
        lines = [
            f"scan of {self.table}" + (f" as of {self.as_of}" if self.as_of else ""),
            f"  files from {self.files_from}",
            f"  where {self.where}" if self.where else "  no filter",
            *(f"  {step}" for step in self.steps),
            f"  reads {self.slices} file slices ({self.slices_merged} merged with logs), {self.bytes:,} bytes stored",
            f"  planning took {self.asked}",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A planned scan: one task per file slice, and how it was planned."""

    tasks: tuple[SliceTask, ...]
    schema: pa.Schema
    predicate: Predicate | None
    explanation: Explanation


def plan_scan(
    state: TableState,
    *,
    columns: Sequence[str] | None = None,
    where: str | Predicate | None = None,
    as_of: object = None,
    mode: str = SNAPSHOT,
) -> ScanPlan:
    """Plans a scan of a snapshot, pruned by partition paths and indexes."""
    if mode not in (SNAPSHOT, READ_OPTIMIZED):
        raise InvalidInputError(f"unknown read mode {mode!r}", hint=f'use "{SNAPSHOT}" or "{READ_OPTIMIZED}"')
    before = state.storage.counts.snapshot()
    snapshot = take_snapshot(state, as_of)
    slices = state.latest_slices if as_of is None else state.slices(snapshot)
    if mode == READ_OPTIMIZED:
        slices = tuple(replace(file_slice, logs=()) for file_slice in slices if file_slice.base is not None)
    plan = plan_slices(state, snapshot, slices, columns=columns, where=where, is_latest=as_of is None)
    return replace(plan, explanation=replace(plan.explanation, requests=state.storage.counts.snapshot() - before))


def plan_slices(
    state: TableState,
    snapshot: Snapshot,
    slices: tuple[FileSlice, ...],
    *,
    columns: Sequence[str] | None,
    where: str | Predicate | None,
    is_latest: bool,
) -> ScanPlan:
    """Plans a scan of the given slices of a snapshot."""
    schema = state.schema(snapshot)
    output = select_columns(schema, columns, state.config.name)
    predicate = parse_where(where, schema) if isinstance(where, str) else where
    steps: tuple[PruneStep, ...] = ()
    keys = None
    if predicate is not None:
        query = Query(state.config, schema, predicate, state.metadata, is_latest)
        slices, steps = prune_slices(query, slices)
        keys = few_keys(query, steps)
    counted = counted_instants(snapshot)
    tasks = tuple(
        SliceTask(state.storage, state.config, file_slice, schema, tuple(output.names), counted, predicate, keys)
        for file_slice in slices
    )
    return ScanPlan(
        tasks, output, predicate, _explain(state, snapshot, where if isinstance(where, str) else None, steps, slices)
    )


def select_columns(schema: pa.Schema, columns: Sequence[str] | None, table: str) -> pa.Schema:
    """The fields of `columns`, all if None; raises InvalidInputError with the nearest name for an unknown column."""
    if columns is None:
        return schema
    if isinstance(columns, str):
        raise InvalidInputError(f"columns is a string: {columns!r}", hint=f"give a list: columns=[{columns!r}]")
    for name in columns:
        if name not in schema.names:
            near = get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(schema.names)}"
            raise InvalidInputError(f"table {table} has no column {name!r}", hint=hint)
    return pa.schema([schema.field(name) for name in dict.fromkeys(columns)])


def _explain(
    state: TableState,
    snapshot: Snapshot,
    where: str | None,
    steps: tuple[PruneStep, ...],
    slices: tuple[FileSlice, ...],
) -> Explanation:
    metadata = state.metadata
    files_from = f"a listing of folders: {metadata.reason}" if isinstance(metadata, Unusable) else "the metadata table"
    files = [file for s in slices for file in ((s.base,) if s.base else ()) + s.logs]
    return Explanation(
        table=state.config.name,
        as_of=snapshot.until,
        files_from=files_from,
        where=where,
        steps=steps,
        slices=len(slices),
        slices_merged=sum(bool(file_slice.logs) for file_slice in slices),
        bytes=sum(file.size or 0 for file in files),
        requests=Requests(),
    )


def read_arrow(plan: ScanPlan) -> pa.Table:
    """Reads the rows of a scan in this process."""
    tables = list(map_tasks(plan.tasks, read_slice))
    return pa.concat_tables(tables) if tables else empty_table(plan.schema)


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
    """Plans an incremental scan: rows written by commits that completed after `since` and up to `until`.

    Rows have their values as of `until`; deleted rows are left out. Only file groups that these commits wrote are read.
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
    """File groups that the commits wrote, including those of table services, which may have moved ingested rows."""
    return frozenset(
        FileGroupId(partition, stat.file_id)
        for instant in commits
        for partition, stats in state.documents.commit(instant).write_stats.items()
        for stat in stats
    )
