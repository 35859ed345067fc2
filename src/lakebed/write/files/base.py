"""Writing base files: rows to Parquet in the layout of Apache Hudi's Avro writer, and the facts that a commit needs.

Columns are optional or required as in the Avro schema, decimals are fixed-length bytes, timestamps microseconds. The
footer contains the Avro schema, the smallest and largest record key, and a Bloom filter over all keys. Lists have the
three levels of the Parquet format; Hudi writes the older two-level form, and readers accept both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.format.bloom import BloomFilter
from lakebed.format.file_names import encode_base_file_name
from lakebed.format.parquet_footer import BLOOM, footer_metadata
from lakebed.index.facts import FileFacts
from lakebed.index.keys import ordering_numbers
from lakebed.index.written import base_file_stats, wants_filters
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.words import FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.read.columns import conform_table
from lakebed.storage.confirm import create_file
from lakebed.transaction.markers import write_markers
from lakebed.write.files.encoding import cached_options, column_options, encode_file, parquet_bytes_max
from lakebed.write.rows.columns import joined, numbered_texts
from lakebed.write.values import IS_DELETE, NOT_COUNTED, FileSizing, WriteContext, WriteTask

_ROW_GROUP_BYTES = 128 << 20
"""Bytes of a row group in Arrow memory; a reader holds one at a time."""
_PAGE_ROWS = 5_000
"""Rows per page: a quarter of Arrow's default, because a lookup decodes one page per column. Costs 0.5 % in size."""
_SAMPLE_SHARE = 8
"""One in this many rows of a file is compressed first, to estimate how many rows fill the target size."""


def create_base_file(task: WriteTask) -> tuple[FileFacts, ...]:
    """Writes the task's rows to a new file group; if there are too many, to several whose ids differ in the counter.

    Deletes are dropped, and without other rows no file is written.
    """
    context = task.context
    rows = _without_deletes(task.rows.read())
    if not rows.num_rows:
        return ()
    # One call for all files keeps sequence numbers unique; the file name is filled in later.
    meta = meta_columns(rows, context.instant, task.number, "")
    pieces = tuple(_cut(base_file_table(meta, data_columns(rows, context)), context.files))
    stats = [
        new_stat(task, FileGroupId(task.group.partition, _counted_up(task.group.file_id, number)))
        for number in range(len(pieces))
    ]
    write_markers(context.storage, context.instant, [stat.path for stat in stats], task.token)
    return tuple(_store_new(context, *pair) for pair in zip(pieces, stats, strict=True))


def new_stat(task: WriteTask, group: FileGroupId) -> WriteStat:
    """The write stat of the base file that a task is about to write, without counts and sizes."""
    name = encode_base_file_name(group.file_id, task.token, task.context.instant)
    path = f"{group.partition}/{name}" if group.partition else name
    return WriteStat(group.file_id, path, group.partition, extra=NOT_COUNTED)


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """Facts on the record keys of a file: a Bloom filter, and some keys, among them the smallest and the largest."""

    bloom: BloomFilter
    outer: pa.Array


def store_base_file(
    context: WriteContext, table: pa.Table, stat: WriteStat, keys: KnownKeys | None = None
) -> FileFacts:
    """Writes all columns of `table` to the path in `stat`; returns `stat` with row count and size, and other facts.

    Fills in the column of file names. With `keys`, the key column is not scanned again.
    """
    name = stat.path.rpartition("/")[2]
    table = _with_file_name(table, name)
    _check_nulls(table)
    encoded = _encode(table, context, keys)
    if not create_file(context.storage, stat.path, encoded.data):
        raise WriteConflictError(
            f"{stat.path} already exists with different content",
            hint="run the write again; write tokens must be unique",
        )
    size = encoded.data.nbytes
    stat = replace(stat, num_writes=table.num_rows, total_write_bytes=size, file_size=size)
    stats = base_file_stats(table, name, context.stats_columns, context.wanted, encoded.footer)
    return stats.facts(stat, bloom_text=encoded.bloom if wants_filters(context.config) else None)


def release_slice(context: WriteContext, read: FileSlice) -> None:
    """Frees the memory of a slice that has been `read`, before the file that replaces it is encoded."""
    for path in read.paths:
        context.storage.dismiss(path)


def with_entries(written: FileFacts, rows: pa.Table, context: WriteContext) -> FileFacts:
    """Adds the record keys of `rows` to the facts of a file, to get index entries."""
    ordering = context.entry_ordering
    numbers = ordering_numbers(rows, ordering) if ordering is not None else None
    return replace(written, inserted_keys=rows[RECORD_KEY].combine_chunks(), ordering=numbers)


def base_file_table(meta: Sequence[pa.Array | pa.ChunkedArray], data: pa.Table) -> pa.Table:
    """The columns of a base file: five meta columns, then the data."""
    fields = [pa.field(name, values.type) for name, values in zip(META_COLUMNS, meta, strict=True)]
    return pa.table([*meta, *data.columns], schema=pa.schema([*fields, *data.schema]))


def meta_columns(rows: pa.Table, instant: str, task_number: int, file_name: str) -> list[pa.Array]:
    """Commit time, sequence number, record key, partition path and file name of prepared rows of one partition.

    Sequence numbers start at 0, so one call must serve all rows of a task. Constant columns are dictionaries of one
    value.
    """
    count = rows.num_rows
    return [
        constant(instant, count, np.int8),
        numbered_texts(f"{instant}_{task_number}_", 0, count),
        joined(rows[RECORD_KEY]),
        constant(_partition(rows), count, np.int8),
        constant(file_name, count, np.int8),
    ]


def data_columns(rows: pa.Table, context: WriteContext) -> pa.Table:
    """The data columns of prepared rows in the schema of files; missing columns are null."""
    return conform_table(rows, file_schema(context), path=f"the rows of {context.instant}")


def file_schema(context: WriteContext) -> pa.Schema:
    """The schema of data columns in files."""
    dropped = context.config.partition_fields if context.config.drops_partition_columns else ()
    return pa.schema([field.remove_metadata() for field in context.schema if field.name not in dropped])


def constant(text: str, count: int, index: type[np.signedinteger[Any]] = np.int32) -> pa.Array:
    """The same text for all rows, as a dictionary."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, index), pa.array([text], pa.string()))


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The bytes of a base file, its Parquet metadata, and the Bloom filter in its footer."""

    data: memoryview
    footer: Any
    bloom: bytes | None


def _encode(table: pa.Table, context: WriteContext, keys: KnownKeys | None) -> _Encoded:
    if keys is not None:
        entries = footer_metadata(keys.outer, context.avro_json, keys.bloom)
    else:
        every = pa.concat_arrays(table[RECORD_KEY].chunks) if table.num_rows else pa.array([], pa.string())
        entries = footer_metadata(every, context.avro_json)
    footers: list[Any] = []
    options = cached_options(table, context.files.compression, context.encodings) | _page_options()
    rows_max = max(1, table.num_rows * _ROW_GROUP_BYTES // max(table.nbytes, 1))

    def write(sink: pa.NativeFile) -> None:
        with pq.ParquetWriter(sink, table.schema, store_schema=False, metadata_collector=footers, **options) as writer:
            if table.num_rows:  # Some readers fail on an empty row group.
                writer.write_table(table, row_group_size=rows_max)
            writer.add_key_value_metadata(entries)

    data = encode_file(parquet_bytes_max(table, sum(map(len, entries.values()))), write)
    return _Encoded(data, footers[-1], entries[BLOOM])


@cache
def _page_options() -> dict[str, Any]:
    """Options for a page index and pages of equal row counts; older releases of Arrow cannot limit rows per page."""
    can_count = "max_rows_per_page" in signature(pq.ParquetWriter.__init__).parameters
    return {"write_page_index": True} | ({"max_rows_per_page": _PAGE_ROWS} if can_count else {})


def _store_new(context: WriteContext, table: pa.Table, stat: WriteStat) -> FileFacts:
    written = store_base_file(context, table, replace(stat, num_inserts=table.num_rows))
    return with_entries(written, table, context)


def _with_file_name(table: pa.Table, name: str) -> pa.Table:
    return table.set_column(table.schema.get_field_index(FILE_NAME), FILE_NAME, constant(name, table.num_rows))


def _without_deletes(rows: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(rows[IS_DELETE])) if IS_DELETE in rows.schema.names else rows


def _cut(table: pa.Table, files: FileSizing) -> Iterator[pa.Table]:
    """Splits rows into as few files as the target size allows, of about equal size."""
    count = 1
    if table.nbytes > files.target_bytes:
        sample = table.slice(0, max(1, table.num_rows * files.target_bytes // table.nbytes // _SAMPLE_SHARE))
        estimated = _encoded_bytes(sample, files) / sample.num_rows * table.num_rows
        count = min(table.num_rows, math.ceil(estimated / files.target_bytes))
    rows = -(-table.num_rows // count)
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))


def _encoded_bytes(sample: pa.Table, files: FileSizing) -> int:
    sink = pa.BufferOutputStream()
    pq.write_table(sample, sink, store_schema=False, **column_options(sample, files.compression))
    size: int = sink.tell()
    return size


def _counted_up(file_id: str, by: int) -> str:
    """The file id with its counter raised: `<uuid>-0` by 2 is `<uuid>-2`."""
    uuid, dash, counter = file_id.rpartition("-")
    return f"{uuid}{dash}{int(counter) + by}" if by else file_id


def _check_nulls(table: pa.Table) -> None:
    for field in table.schema:
        if not field.nullable and table[field.name].null_count:
            raise InvalidInputError(
                f"column {field.name} would become null in some rows, which the table's schema does not allow",
                hint="give a value for it in every new row, or make the column nullable first",
            )


def _partition(rows: pa.Table) -> str:
    paths = rows[PARTITION_PATH].unique()
    assert len(paths) <= 1, paths
    return str(paths[0].as_py()) if len(paths) else ""
