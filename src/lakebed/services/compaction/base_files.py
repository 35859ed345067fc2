"""Compacting a file slice: its base file and its log files become the file group's next base file.

Rows stay as they were written, with the instants and sequence numbers of the writes that made them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.engine.randomness import new_write_token
from lakebed.errors import ServiceCancelledError
from lakebed.format.file_names import encode_base_file_name
from lakebed.index.facts import FileFacts
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY
from lakebed.read.file_slice import SliceParts, SliceTask, load_parts
from lakebed.read.merge import MergedRows, merge_counted
from lakebed.transaction.markers import write_markers
from lakebed.transaction.plans import is_cancelled
from lakebed.write.files.base import base_file_table, constant, file_schema, release_slice, store_base_file
from lakebed.write.rows.columns import joined
from lakebed.write.values import NOT_COUNTED, WriteContext

_REPEATED = pa.dictionary(pa.int32(), pa.string())
_STORED_META = ((COMMIT_TIME, _REPEATED), (COMMIT_SEQNO, pa.string()), (RECORD_KEY, pa.string()))
"""Meta columns that rows keep; the others are the same in all rows of a file."""


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """A file slice whose files are to become one. Picklable. `is_removable`: its plan may be cancelled meanwhile."""

    context: WriteContext
    number: int
    file_slice: FileSlice
    is_removable: bool = False

    def check_not_cancelled(self) -> None:
        """Raises ServiceCancelledError if the plan must never complete: then the work is for nothing."""
        instant = self.context.instant
        if self.is_removable and is_cancelled(self.context.storage, instant):
            raise ServiceCancelledError(f"the plan {instant} was cancelled", hint="schedule a new one")

    def load_parts(self, schema: pa.Schema, *, with_base: bool) -> SliceParts:
        """What the slice consists of, with the columns of `schema`."""
        context = self.context
        task = SliceTask(context.storage, context.config, self.file_slice, schema, tuple(schema.names), context.counts)
        return load_parts(task, schema, with_base=with_base)


def compact_slice(task: CompactionTask) -> tuple[FileFacts, ...]:
    """Writes the base file that takes the place of a slice, also if no row is left in it."""
    context, file_slice = task.context, task.file_slice
    schema = pa.schema([*(pa.field(*column) for column in _STORED_META), *file_schema(context)])
    parts = task.load_parts(schema, with_base=True)
    release_slice(context, file_slice)
    merged = merge_counted(parts.base, parts.logs, parts.rules, schema)
    token = new_write_token(task.number)
    name = encode_base_file_name(file_slice.group.file_id, token, context.instant)
    stat = _stat(file_slice, name, parts, merged)
    table = _whole_table(merged.rows, file_slice.group.partition)
    del parts, merged  # The encoder needs the memory.
    write_markers(context.storage, context.instant, (stat.path,), token)
    return (store_base_file(context, table, stat),)


def log_counts(file_slice: FileSlice, parts: SliceParts, *, keys: int) -> Mapping[str, Any]:
    """What a write stat says of the log files that were read, with so many `keys` in them."""
    return {
        **NOT_COUNTED,
        "totalLogRecords": sum(len(part.kinds) for part in parts.logs),
        "totalUpdatedRecordsCompacted": keys,
        "totalLogBlocks": len(parts.blocks),
        "totalLogFilesCompacted": len(file_slice.logs),
        "totalLogSizeCompacted": sum(log.size or 0 for log in file_slice.logs),
    }


def _whole_table(rows: pa.Table, partition: str) -> pa.Table:
    """The rows with all meta columns; that of file names is filled in when the file is written."""
    rows = rows.unify_dictionaries()
    count = rows.num_rows
    kept = [joined(rows[name]) for name, _ in _STORED_META]
    data = rows.drop_columns([name for name, _ in _STORED_META])
    return base_file_table([*kept, constant(partition, count), constant("", count)], data)


def _stat(file_slice: FileSlice, name: str, parts: SliceParts, merged: MergedRows) -> WriteStat:
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
