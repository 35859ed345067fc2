"""Planning a scan (which snapshot, which slices, which columns), and running it in this process."""

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
from lakebed.model.files import FileSlice
from lakebed.model.words import Action
from lakebed.read.as_of import completion_as_of
from lakebed.read.explain import Explanation, PruneStep
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.prune import few_keys, prune_slices
from lakebed.read.retention import check_retained
from lakebed.storage import Requests
from lakebed.table import TableState
from lakebed.timeline import Snapshot
from lakebed.view.blocks import CountedInstants

SNAPSHOT, READ_OPTIMIZED = "snapshot", "read_optimized"


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """A scan that is ready to run: one task per file slice, and how it was planned."""

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
    """The scan of a snapshot, pruned by everything the table knows."""
    if mode not in (SNAPSHOT, READ_OPTIMIZED):
        raise InvalidInputError(f"there is no read mode {mode!r}", hint=f'use "{SNAPSHOT}" or "{READ_OPTIMIZED}"')
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
    """The scan of given slices of a snapshot."""
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


def take_snapshot(state: TableState, as_of: object) -> Snapshot:
    """The newest snapshot, or the one a reader saw at `as_of`."""
    if as_of is None:
        _check_restore(state)
        return state.latest
    snapshot = state.snapshot_at(completion_as_of(state, as_of))
    check_retained(state, snapshot)
    return snapshot


def _check_restore(state: TableState) -> None:
    """During a restore, the newest snapshot may be one whose files have been cleaned."""
    newest = state.timeline.last_completed_at
    if newest is not None and any(i.action is Action.RESTORE for i in state.timeline.pending()):
        check_retained(state, state.snapshot_at(newest))


def counted_instants(snapshot: Snapshot) -> CountedInstants:
    """The writes of a snapshot, in a form that can be sent to workers."""
    commits = snapshot.timeline.commits()
    return CountedInstants(frozenset(i.requested_at for i in commits), snapshot.archived_before or "")


def select_columns(schema: pa.Schema, columns: Sequence[str] | None, table: str) -> pa.Schema:
    """The fields of `columns`, all if None; an unknown one raises with the nearest name."""
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
    """The rows of a scan."""
    tables = list(map_tasks(plan.tasks, read_slice))
    return pa.concat_tables(tables) if tables else empty_table(plan.schema)
