"""Requests to write, and the plan of one: find keys, find small files with room, assign rows to file groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from lakebed.engine.engines import Engine, InProcess
from lakebed.engine.exchange import lots
from lakebed.engine.randomness import new_file_id
from lakebed.errors import WriteConflictError
from lakebed.index.key_batches import ShardCache, are_current
from lakebed.index.keys import find_key_index, find_ordering, key_index_files, key_window
from lakebed.metadata import MetadataTable
from lakebed.model.files import FileSlice
from lakebed.model.index import EntryOrdering
from lakebed.model.instant import InstantTime
from lakebed.model.words import TableType
from lakebed.options import WriteOptions
from lakebed.read.file_slice import SliceTask
from lakebed.read.scan import plan_slices
from lakebed.table import TableState
from lakebed.write.assign import Room, find_room
from lakebed.write.operations import DELETE_PARTITION, Operation
from lakebed.write.plan import (
    NO_SPACES,
    Finder,
    TagRule,
    WritePlan,
    find_in_files,
    key_scans,
    plan_rows,
    replaced_groups,
)
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.staged_plan import TaggedLot, TagLot, plan_split, plan_staged, tag_in_worker
from lakebed.write.staging import Prepared, RowSource, Staged
from lakebed.write.tag.index import KeyIndex, tag_by_index
from lakebed.write.tag.window import tag_in_window
from lakebed.write.values import WriteContext, write_context

_LOT_BYTES = 64 << 20
"""Bytes of rows that a task of a large write tags at once, unless a single bucket has more."""


@dataclass(frozen=True, slots=True)
class WriteRows:
    """Write rows with these data columns; `rule` says how their keys are looked up."""

    source: RowSource
    columns: pa.Schema
    operation: Operation
    rule: TagRule
    arrangement: Arrangement


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    """Delete partitions, given by path."""

    partitions: frozenset[str]
    operation: Operation = DELETE_PARTITION


WriteRequest = WriteRows | DeletePartitions


def plan_write(
    state: TableState, instant: InstantTime, request: WriteRequest, options: WriteOptions, cache: ShardCache
) -> tuple[WriteContext, WritePlan]:
    """Plans a write on a snapshot; also returns the context of its tasks."""
    if isinstance(request, DeletePartitions):
        replaced = replaced_groups(state.latest_slices, {*request.partitions})
        return write_context(state, instant, options), WritePlan(request.operation, (), replaced, InProcess())
    given = request.source(instant, plan_split(state, request.operation, request.rule, request.arrangement))
    context = write_context(state, instant, options, _settled(request.columns, given.complete))
    scans = plan_slices(state, state.latest, state.latest_slices, columns=None, where=None, is_latest=True).tasks
    if isinstance(given, Staged):
        return context, _plan_staged(state, context, request, given, scans, cache)
    return context, _plan_rows(state, context, request, given, scans, cache)


def _plan_rows(
    state: TableState,
    context: WriteContext,
    request: WriteRows,
    given: Prepared,
    scans: Sequence[SliceTask],
    cache: ShardCache,
) -> WritePlan:
    """Plans a write of rows in memory."""
    operation, slices = request.operation, _slices(scans)
    rows = request.arrangement.whole(given.rows, context.instant)
    room = find_room(state, operation, context, slices, rows_bytes=rows.nbytes, rows=rows.num_rows)
    find = _finder(state, scans, InProcess(), request.rule, cache, room=room)
    return plan_rows(rows, operation, context, slices, InProcess(), find, room=room, new_file_id=new_file_id)


def _plan_staged(
    state: TableState,
    context: WriteContext,
    request: WriteRows,
    staged: Staged,
    scans: Sequence[SliceTask],
    cache: ShardCache,
) -> WritePlan:
    """Plans a write of staged rows."""
    operation, slices, arrangement = request.operation, _slices(scans), request.arrangement
    tagged = _tag_lots(state, request, staged, scans, cache)
    room = find_room(state, operation, context, slices, rows_bytes=staged.bytes, rows=staged.rows)
    return plan_staged(staged, tagged, operation, context, slices, arrangement, room=room, new_file_id=new_file_id)


def _tag_lots(
    state: TableState, request: WriteRows, staged: Staged, scans: Sequence[SliceTask], cache: ShardCache
) -> Sequence[TaggedLot]:
    """Combines and tags staged rows; empty if they can be written as they are."""
    operation, arrangement = request.operation, request.arrangement
    if not operation.finds_keys and not arrangement.combines:
        return ()
    is_found = operation.finds_keys
    find = _finder(state, scans, InProcess(1), request.rule, cache, travels=True) if is_found else None
    return staged.engine.map(lots(staged.files, _LOT_BYTES), TagLot(staged.shelf, arrangement, find))


def _finder(
    state: TableState,
    scans: Sequence[SliceTask],
    engine: Engine,
    rule: TagRule,
    cache: ShardCache,
    *,
    travels: bool = False,
    room: Room | None = None,
) -> Finder:
    """The function that tags rows; picklable if it `travels` to workers."""
    if not rule.by_index:
        # Writing a log file does not tell which rows are new, so merge-on-read tables always look up keys.
        is_merged = state.config.table_type is TableType.COPY_ON_WRITE
        spaces = room.spaces if room is not None and is_merged else NO_SPACES
        return partial(find_in_files, scans=key_scans(scans), engine=engine, rule=rule, spaces=spaces)
    metadata = find_key_index(state)
    if metadata is None:
        raise WriteConflictError("the record index was dropped while the write began", hint="run the write again")
    index = KeyIndex(metadata, state.config, scans, engine, cache, rule.moves, _ordering(state))
    window = key_window(state.definitions)
    if travels:
        files = replace(index, metadata=key_index_files(metadata))
        return partial(tag_in_worker, index=files, window=window)
    if window is not None:
        return partial(tag_in_window, index=index, window=window, everywhere=rule.everywhere)
    return partial(tag_by_index, index=index, everywhere=rule.everywhere)


def _ordering(state: TableState) -> EntryOrdering | None:
    """The ordering values in index entries, and whether they are known to be current."""
    ordering = find_ordering(state.definitions, state.config)
    if ordering is None or not isinstance(state.metadata, MetadataTable):
        return None
    return replace(ordering, is_current=are_current(state.metadata, ordering))


def _settled(columns: pa.Schema, complete: frozenset[str]) -> pa.Schema:
    """`columns`, with those that are `complete` (have no nulls) as required."""
    return pa.schema([field.with_nullable(False) if field.name in complete else field for field in columns])


def _slices(scans: Sequence[SliceTask]) -> tuple[FileSlice, ...]:
    return tuple(scan.file_slice for scan in scans)
