"""Executes a compaction or log compaction of one file slice.

A compaction merges base file and log files into the next base file; rows keep their commit times and sequence numbers.
A log compaction merges the log files into one, which replaces them in their slice. Its blocks name the instants that
they replace, and readers put them in the place of the newest of these. Blocks of partial updates are copied, not
merged: values that they leave out are only in the base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.engine.randomness import new_write_token
from lakebed.errors import ServiceCancelledError
from lakebed.format.file_names import encode_base_file_name
from lakebed.format.log.file import HeaderKey, encode_log_block
from lakebed.index.facts import FileFacts
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice, LogFile
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.read.file_slice import SliceParts, SliceTask, load_parts
from lakebed.read.merge import Folded, MergedRows, fold_logs, merge_counted
from lakebed.transaction.markers import write_markers
from lakebed.transaction.plans import is_cancelled
from lakebed.write.files.base import base_file_table, constant, file_schema, release_slice, store_base_file
from lakebed.write.files.log import log_stats, store_log_file
from lakebed.write.files.log_blocks import RecordBlock, encode_delete_blocks, encode_record_block, whole_blocks
from lakebed.write.rows.columns import joined
from lakebed.write.values import NOT_COUNTED, InMemory, WriteContext, WriteTask

_REPEATED = pa.dictionary(pa.int32(), pa.string())
_STORED_META = ((COMMIT_TIME, _REPEATED), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string()))
"""Meta columns that rows keep; the other ones are constant in a file."""
_DISTINCT = (COMMIT_SEQNO, RECORD_KEY)
_OF_OTHERS = (
    HeaderKey.RECORD_POSITIONS,
    HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS,
    HeaderKey.COMPACTED_BLOCK_TIMES,
)
"""Header entries that do not apply to a copied block."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A file slice to compact. Picklable. `is_removable`: the plan may be cancelled at any time."""

    context: WriteContext
    number: int
    file_slice: FileSlice
    is_removable: bool = False

    def check_not_cancelled(self) -> None:
        """Raises ServiceCancelledError if the plan was cancelled."""
        instant = self.context.instant
        if self.is_removable and is_cancelled(self.context.storage, instant):
            raise ServiceCancelledError(f"the plan {instant} was cancelled", hint="schedule a new one")

    def load_parts(self, schema: pa.Schema, *, with_base: bool) -> SliceParts:
        """The contents of the slice, with the columns of `schema`."""
        context = self.context
        task = SliceTask(context.storage, context.config, self.file_slice, schema, tuple(schema.names), context.counts)
        return load_parts(task, schema, with_base=with_base)


def compact_slice(task: CompactionTask) -> tuple[FileFacts, ...]:
    """Writes the base file that replaces a slice, even if it has no row."""
    context, file_slice = task.context, task.file_slice
    schema = pa.schema([*(pa.field(*column) for column in _STORED_META), *file_schema(context)])
    parts = task.load_parts(schema, with_base=True)
    release_slice(context, file_slice)
    merged = merge_counted(parts.base, parts.logs, parts.rules, schema)
    token = new_write_token(task.number)
    name = encode_base_file_name(file_slice.group.file_id, token, context.instant)
    stat = _base_file_stat(file_slice, name, parts, merged)
    table = _whole_table(merged.rows, file_slice.group.partition)
    del parts, merged  # Free memory for the encoder.
    write_markers(context.storage, context.instant, (stat.path,), token)
    return (store_base_file(context, table, stat),)


def log_counts(file_slice: FileSlice, parts: SliceParts, *, keys: int) -> Mapping[str, Any]:
    """Counters of a write stat for the log files read, with that many `keys` in them."""
    return {
        **NOT_COUNTED,
        "totalLogRecords": sum(len(part.kinds) for part in parts.logs),
        "totalUpdatedRecordsCompacted": keys,
        "totalLogBlocks": len(parts.blocks),
        "totalLogFilesCompacted": len(file_slice.logs),
        "totalLogSizeCompacted": sum(log.size or 0 for log in file_slice.logs),
    }


def _whole_table(rows: pa.Table, partition: str) -> pa.Table:
    """The rows with all meta columns; file names are filled in when the file is written."""
    rows = rows.unify_dictionaries()
    count = rows.num_rows
    kept = [joined(rows[name]) for name, _ in _STORED_META]
    data = rows.drop_columns([name for name, _ in _STORED_META])
    return base_file_table([*kept, constant(partition, count), constant("", count)], data)


def _base_file_stat(file_slice: FileSlice, name: str, parts: SliceParts, merged: MergedRows) -> WriteStat:
    base = file_slice.base
    return WriteStat(
        file_id=file_slice.group.file_id,
        path=file_slice.path(name),
        partition=file_slice.group.partition,
        prev_commit=base.instant if base else None,
        prev_base_file=base.name if base else None,
        num_updates=merged.updates,
        num_inserts=merged.inserts,
        num_deletes=merged.deletes,
        extra=log_counts(file_slice, parts, keys=merged.log_keys),
    )


def compact_logs(task: CompactionTask) -> tuple[FileFacts, ...]:
    """Writes the log file that replaces those of a slice; none if these hold no record."""
    task.check_not_cancelled()
    meta = [pa.field(name, pa.string() if name in _DISTINCT else _REPEATED) for name in META_COLUMNS]
    schema = pa.schema([*meta, *file_schema(task.context)])
    parts = task.load_parts(schema, with_base=False)
    if not sum(len(part.kinds) for part in parts.logs):
        return ()
    write = _write_task(task)
    content = _folded(write, parts, schema) or _copied(write, parts)
    log = store_log_file(write, content.data)
    stat = _log_file_stat(task.file_slice, log, content, parts)
    return (log_stats(write, content.blocks, log.name).facts(stat),)


@dataclass(frozen=True, slots=True)
class _Content:
    """The bytes of a log file, its data blocks, and the number of its deletes."""

    data: bytes
    blocks: tuple[RecordBlock, ...]
    deletes: int


def _write_task(task: CompactionTask) -> WriteTask:
    nothing = InMemory(pa.table({}))
    token = new_write_token(task.number)
    return WriteTask(task.context, task.number, task.file_slice.group, task.file_slice, nothing, token)


def _replaced(parts: SliceParts) -> Mapping[HeaderKey, str]:
    """The header entry with the instants that a block replaces, newest first, as Apache Hudi lists them."""
    times = dict.fromkeys(filed.instant for filed in reversed(parts.blocks))
    return {HeaderKey.COMPACTED_BLOCK_TIMES: ",".join(times)}


def _folded(task: WriteTask, parts: SliceParts, schema: pa.Schema) -> _Content | None:
    """The log records merged: one record or delete per key, and unconditional deletes that precede a record.

    None if blocks cannot be merged: partial updates, or deletes with only some of several ordering values.
    """
    if any(part.columns is not None for part in parts.logs):
        return None
    folded, extra = fold_logs(parts.logs, parts.rules, schema), _replaced(parts)
    if not folded.is_writable:
        return None
    blocks = whole_blocks(folded.rows)
    encoded = [
        *encode_delete_blocks(task, _keyed(task, folded.always), extra),
        *(encode_record_block(task, block, extra) for block in blocks),
        *encode_delete_blocks(task, _ordered(task, folded), extra),
    ]
    return _Content(b"".join(encoded), blocks, len(folded.always) + len(folded.deletes))


def _keyed(task: WriteTask, keys: pa.Array) -> pa.Table:
    return pa.table({RECORD_KEY: keys, PARTITION_PATH: constant(task.group.partition, len(keys))})


def _ordered(task: WriteTask, folded: Folded) -> pa.Table:
    """Deletes with their ordering values."""
    rows = _keyed(task, folded.deletes)
    for name, values in zip(task.context.config.ordering_fields, folded.ordering, strict=False):
        rows = rows.append_column(name, values)
    return rows


def _copied(task: WriteTask, parts: SliceParts) -> _Content:
    """All blocks copied, under the new instant."""
    data = b"".join(_copies(task, parts))
    blocks = [
        RecordBlock(_known_columns(part.rows, part.columns), None, is_partial=part.columns is not None)
        for part in parts.logs
        if part.rows is not None
    ]
    return _Content(data, tuple(blocks), sum(len(part.kinds) for part in parts.logs if part.rows is None))


def _copies(task: WriteTask, parts: SliceParts) -> Iterator[bytes]:
    own = {HeaderKey.INSTANT_TIME: str(task.context.instant), **_replaced(parts)}
    for filed in parts.blocks:
        kept = {key: value for key, value in filed.block.header.items() if key not in _OF_OTHERS}
        yield encode_log_block(filed.block.kind, {**kept, **own}, filed.block.content)


def _known_columns(rows: pa.Table, columns: frozenset[str] | None) -> pa.Table:
    return rows if columns is None else rows.select([name for name in rows.column_names if name in columns])


def _log_file_stat(file_slice: FileSlice, log: LogFile, content: _Content, parts: SliceParts) -> WriteStat:
    records, size = sum(block.rows.num_rows for block in content.blocks), log.size or 0
    return WriteStat(
        file_id=log.file_id,
        path=file_slice.path(log.name),
        partition=file_slice.group.partition,
        prev_commit=file_slice.base_instant,
        num_writes=records,
        num_deletes=content.deletes,
        num_updates=records,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(log.name,),
        log_version=log.version,
        log_offset=0,
        extra=log_counts(file_slice, parts, keys=records + content.deletes),
    )
