"""Appends log files to file groups of a merge-on-read table: one per task, with updates, inserts and deletes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.engines import aside, map_bounded, start
from lakebed.errors import WriteConflictError
from lakebed.format.file_names import encode_log_file_name, log_merge_order
from lakebed.index.facts import FileFacts
from lakebed.index.wanted import gather_all
from lakebed.index.written import FileStats, log_file_stats, spread_file_stats
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice, LogFile
from lakebed.model.words import META_COLUMNS, RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.merge import Rules, merge_rules
from lakebed.storage import Storage
from lakebed.storage.confirm import create_files
from lakebed.transaction.markers import write_markers
from lakebed.write.files.base import with_entries
from lakebed.write.files.log_blocks import (
    LogLot,
    RecordBlock,
    encode_delete_blocks,
    encode_record_block,
    ordering_values,
    plan_record_blocks,
    prepare_lot,
)
from lakebed.write.plan import Picked
from lakebed.write.rows.columns import joined
from lakebed.write.values import DELETED, IS_DELETE, IS_INSERT, NOT_COUNTED, POSITION, WriteContext, WriteTask

T = TypeVar("T")
_VERSION = 1
"""Version of new log files. Hudi starts version 2 when a file exceeds a size limit; ours are written at once."""
_LOT_BYTES = 4 << 20
"""Bytes of log files per batch, which a separate thread stores while others are encoded."""


@dataclass(frozen=True, slots=True)
class LogDraft:
    """An encoded log file that is not stored yet, with the facts for indexes.

    `count` is the number of records without deletes. `records` are those that may get index entries, with the columns
    needed for them. `doubtful` are new keys that an older log file deletes, perhaps with a greater ordering value.
    """

    task: WriteTask
    log: LogFile
    data: bytes
    count: int
    records: pa.Table
    deletes: pa.Table
    stats: FileStats
    doubtful: pa.Array


def append_log_file(task: WriteTask) -> tuple[FileFacts, ...]:
    """Writes one log file with the task's rows; none if there are no rows."""
    return append_log_files([task], begin_lot([task]), lambda: None)[0]


def begin_lot(tasks: Sequence[WriteTask]) -> Future[LogLot | None]:
    """Starts preparing the rows of one write for its log files; nothing is stored."""
    (begun,) = start([tasks], prepare_lot)
    return begun


def append_log_files(
    tasks: Sequence[WriteTask], lot_begun: Future[LogLot | None], beside: Callable[[], T]
) -> tuple[tuple[FileFacts, ...], T]:
    """Like `append_log_file`, for all tasks of a write, on threads. Files are stored in batches, which share syncs.

    `beside` runs once all files have been started; its result is returned too.
    """
    results: list[T] = []

    def begin() -> Iterator[WriteTask]:
        yield from tasks
        results.append(beside())

    _mark([task for task in tasks if task.rows.count])
    together = lot_begun.result()
    lot: list[LogDraft] = []
    stored: list[Future[tuple[FileFacts, ...]]] = []
    with aside() as begin_aside:
        for draft in map_bounded(begin(), partial(_draft, lot=together)):
            lot += [] if draft is None else [draft]
            if sum(len(each.data) for each in lot) >= _LOT_BYTES:
                if len(stored) > 1:
                    stored[-2].result()  # At most two batches wait.
                stored.append(begin_aside(_store, lot))
                lot = []
        last = _store(lot)
        return (*(file for future in stored for file in future.result()), *last), results[0]


def _draft(task: WriteTask, lot: LogLot | None = None) -> LogDraft | None:
    """The log file of a task; None if there are no rows.

    It has one data block, or several for many rows or partial updates, then delete blocks.
    """
    if lot is not None and isinstance(task.rows, Picked):
        return _draft_of(lot, task, task.rows)
    rows = _with_is_insert(task)
    if not rows.num_rows:
        return None
    records, deletes = _split(rows)
    blocks = plan_record_blocks(task, records)
    encoded = (encode_record_block(task, block) for block in blocks)
    data = b"".join([*encoded, *encode_delete_blocks(task, deletes)])
    log = _log_file(task, len(data))
    known = records.select([name for name in _entry_columns(task.context) if name in records.column_names])
    return LogDraft(
        task,
        log,
        data,
        records.num_rows,
        known,
        deletes,
        log_stats(task, blocks, log.name),
        _doubtful(task, joined(_revived(records)[RECORD_KEY])),
    )


def _draft_of(lot: LogLot, task: WriteTask, rows: Picked) -> LogDraft | None:
    """Like `_draft`, for rows of a lot."""
    if not rows.count:
        return None
    block = lot.encode(task, rows.assignment.rows)
    log = _log_file(task, len(block.data))
    keys = rows.new_keys if rows.new_keys is not None else pa.array([], pa.string())
    new = pa.table({RECORD_KEY: keys, IS_INSERT: pa.repeat(True, len(keys))})
    gathered = _gathered(task.context, rows)
    stats = spread_file_stats(block.spreads, log.name, task.context.stats_columns, rows.count, gathered)
    doubtful = _doubtful(task, joined(rows.table[RECORD_KEY].take(pa.array(rows.assignment.revived))))
    return LogDraft(task, log, block.data, rows.count, new, new.slice(0, 0), stats, doubtful)


def _gathered(context: WriteContext, rows: Picked) -> Mapping[str, bytes]:
    """The values that indexes want from the rows; takes only the columns that they need from the lot."""
    if not context.wanted:
        return {}
    asked = {column for wanted in context.wanted for column in wanted.columns}
    known = rows.table.select([name for name in rows.table.column_names if name in asked])
    return gather_all(context.wanted, [known if rows.is_apart else known.take(pa.array(rows.assignment.rows))])


def _store(drafts: Sequence[LogDraft]) -> tuple[FileFacts, ...]:
    """Stores log files of one write; their markers are written already."""
    if not drafts:
        return ()
    _create_files(drafts[0].task.context.storage, {_path(draft.task): draft.data for draft in drafts})
    return tuple(map(_written, drafts))


def _written(draft: LogDraft) -> FileFacts:
    """The facts of a stored log file."""
    task, records, gone = draft.task, draft.records, _gone(draft)
    deleted = _deleted_keys(task, draft.deletes, draft.log)
    inserts = (pc.sum(records[IS_INSERT]).as_py() or 0) - len(gone)
    written = draft.stats.facts(
        _write_stat(draft, inserts, updates=draft.count - inserts - len(gone)),
        deleted_keys=deleted,
        deleted=0 if deleted is None else len(deleted),
    )
    entered = _entered(records, gone, task.context)
    return with_entries(written, entered, task.context) if entered.num_rows else written


def _entry_columns(context: WriteContext) -> tuple[str, ...]:
    """The columns that index entries need."""
    return (RECORD_KEY, IS_INSERT, *((context.entry_ordering.field,) if context.entry_ordering else ()))


def _entered(records: pa.Table, gone: pa.Array, context: WriteContext) -> pa.Table:
    """The rows that get index entries: those with new keys and, if entries carry current ordering values, updates.

    New keys that are `gone` get none. If the stored row has a greater ordering value and wins, the update's value is
    still a valid lower bound.
    """
    is_new, ordering = records[IS_INSERT], context.entry_ordering
    if len(gone):
        is_new = pc.and_(is_new, pc.invert(pc.is_in(records[RECORD_KEY], value_set=gone)))
    if ordering is None or not ordering.is_current or ordering.field not in records.column_names:
        return records.filter(is_new)
    is_update = pc.invert(records[IS_INSERT])
    return records.filter(pc.or_(is_new, pc.and_(is_update, records[ordering.field].is_valid())))


def _with_is_insert(task: WriteTask) -> pa.Table:
    """The task's rows with `IS_INSERT`; by default, keys are new only if the file group is new."""
    rows = task.rows.read()
    if IS_INSERT in rows.column_names:
        return rows
    return rows.append_column(IS_INSERT, pa.repeat(task.file_slice is None, rows.num_rows))


def _split(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Splits rows into records (updates and inserts) and deletes."""
    if IS_DELETE not in rows.column_names:
        return rows, rows.slice(0, 0)
    return rows.filter(pc.invert(rows[IS_DELETE])), rows.filter(rows[IS_DELETE])


def store_log_file(task: WriteTask, data: bytes) -> LogFile:
    """Writes the marker of a task's log file, then the file."""
    _mark([task])
    _create_files(task.context.storage, {_path(task): data})
    return _log_file(task, len(data))


def _log_file(task: WriteTask, size: int) -> LogFile:
    return LogFile(_name(task), task.group.file_id, task.context.instant, _VERSION, task.token, size=size)


def _name(task: WriteTask) -> str:
    return encode_log_file_name(task.group.file_id, task.context.instant, _VERSION, task.token)


def _path(task: WriteTask) -> str:
    return "/".join(filter(None, (task.group.partition, _name(task))))


def _mark(tasks: Sequence[WriteTask]) -> None:
    """Writes the markers of the log files of one write."""
    if tasks:
        context = tasks[0].context
        write_markers(context.storage, context.instant, map(_path, tasks), tasks[0].token)


def _create_files(storage: Storage, files: Mapping[str, bytes]) -> None:
    if not create_files(storage, files):
        raise WriteConflictError(
            f"one of {', '.join([*files][:3])} already exists with different content",
            hint="run the write again; write tokens must be unique",
        )


def _slice_after(task: WriteTask, log: LogFile) -> FileSlice:
    """The file slice with the new log file."""
    before = task.file_slice or FileSlice(task.group, task.context.instant, None)
    return replace(before, logs=tuple(sorted((*before.logs, log), key=log_merge_order)))


def _write_stat(draft: LogDraft, inserts: int, updates: int) -> WriteStat:
    task, log = draft.task, draft.log
    size = log.size or 0
    stat = WriteStat(
        file_id=log.file_id,
        path=_path(task),
        partition=task.group.partition,
        prev_commit=log.instant,
        num_writes=draft.count,
        num_deletes=draft.deletes.num_rows,
        num_updates=updates,
        num_inserts=inserts,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(log.name,),
        log_version=log.version,
        log_offset=0,
        extra=NOT_COUNTED,
    )
    before = task.file_slice
    if before is None or task.context.config.properties.get("hoodie.table.cdc.enabled", "").lower() != "true":
        return stat
    # Readers of change data follow a file slice through its write stats.
    older = [file.name for file in sorted(before.logs, key=log_merge_order, reverse=True)]
    base_file = before.base.name if before.base else ""
    return replace(stat, prev_commit=before.base_instant, base_file=base_file, log_files=(*older, log.name))


def log_stats(task: WriteTask, blocks: Sequence[RecordBlock], name: str) -> FileStats:
    """The statistics that indexes want of the records of all blocks."""
    return log_file_stats([block.rows for block in blocks], name, task.context.stats_columns, task.context.wanted)


def _gone(draft: LogDraft) -> pa.Array:
    """New keys that stay deleted: a delete in an older log file wins against an insert with a lower ordering value."""
    doubtful = draft.doubtful
    if not len(doubtful):
        return doubtful
    return doubtful.filter(pc.invert(pc.is_in(doubtful, value_set=_find_keys(draft.task, doubtful, draft.log))))


def _revived(records: pa.Table) -> pa.Table:
    """The records whose keys log files have deleted."""
    if POSITION not in records.column_names:
        return records.slice(0, 0)
    return records.filter(pc.equal(records[POSITION], DELETED))


def _doubtful(task: WriteTask, revived: pa.Array) -> pa.Array:
    """The keys that may stay deleted; none with commit-time ordering."""
    if not len(revived) or merge_rules(task.context.config) is Rules.COMMIT_TIME:
        return revived.slice(0, 0)
    return revived


def _deleted_keys(task: WriteTask, deletes: pa.Table, log: LogFile) -> pa.Array | None:
    """Keys that the deletes remove from the table."""
    if not deletes.num_rows:
        return None
    present = deletes.filter(pc.invert(deletes[IS_INSERT]))
    keys = present[RECORD_KEY].combine_chunks()
    ordering = ordering_values(task.context, present)
    if ordering is not None and ordering.null_count < len(ordering):
        keys = keys.filter(pc.invert(pc.is_in(keys, value_set=_find_keys(task, keys, log))))
    return keys if len(keys) else None


def _find_keys(task: WriteTask, keys: pa.Array, log: LogFile) -> pa.Array:
    """The keys that exist after the new log file: a delete loses to a record with a greater ordering value."""
    context = task.context
    schema = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *context.schema])
    wanted = frozenset(keys.to_pylist())
    scan = SliceTask(
        context.storage, context.config, _slice_after(task, log), schema, (RECORD_KEY,), context.counts, keys=wanted
    )
    return read_slice(scan)[RECORD_KEY].combine_chunks()
