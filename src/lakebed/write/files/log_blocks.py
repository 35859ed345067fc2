"""Blocks of new log files: prepared rows as the records and deletes that Apache Hudi would write for them.

    data blocks     updates and inserts; where rows have only some of the table's columns, inserts come in a block of
                    their own, with all columns: a reader finds no older record to take the missing values from
    delete blocks   deletes that apply by their ordering value, then those that always apply: hudi-rs takes the type of
                    a block's ordering values from its first delete

Records of a block are in the order of their positions in the base file, if all of them are known.

In the usual case the rows of all log files lie in one table, and each block is encoded from there (`LogLot`), without
collecting its rows first: all columns of the table, no deletes, Parquet blocks, no known positions in base files, no
ordering values in the record index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import InvalidInputError
from lakebed.format.avro.schema import arrow_schema
from lakebed.format.log.blocks import encode_avro_records, encode_deletes, encode_positions, write_parquet_records
from lakebed.format.log.file import BlockKind, HeaderKey, encode_log_block
from lakebed.format.parquet_encode import Numbered, ParquetEncoder, Rows, Spread, can_encode
from lakebed.format.parquet_footer import avro_metadata
from lakebed.kernels.buffers import Int64s
from lakebed.kernels.parquet import serves_pages
from lakebed.model.words import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    MergeMode,
)
from lakebed.write.files.base import file_schema, meta_columns
from lakebed.write.files.encoding import cached_options, column_options, encode_file, parquet_bytes_max, scratch_memory
from lakebed.write.plan import Picked
from lakebed.write.rows.columns import joined
from lakebed.write.values import IS_DELETE, IS_INSERT, POSITION, WriteContext, WriteTask

LOG_BLOCK_BYTES_MAX = 256 << 20
"""Bytes of rows per block, about: readers hold whole blocks, and fail at 2 GB."""
_META_BYTES = 128
"""Bytes of the meta columns of a row in a block, about. In memory they are dictionaries."""

Positions = Int64s
Header = Mapping[HeaderKey, str]
NO_EXTRA: Header = {}


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """The rows of a data block: meta columns and data columns. `is_partial`: some columns of the table are missing."""

    rows: pa.Table
    positions: Positions | None
    is_partial: bool


def plan_record_blocks(task: WriteTask, records: pa.Table) -> tuple[RecordBlock, ...]:
    """Plans the data blocks of prepared rows without deletes; `records` has the column `IS_INSERT`."""
    if not records.num_rows:
        return ()
    schema = file_schema(task.context)
    given = [name for name in schema.names if name in records.column_names]
    rows = _with_meta_columns(task, records, given)
    if len(given) == len(schema.names):
        return tuple(_blocks(task, rows, given, is_partial=False))
    _check_ordering_fields(task.context, given)
    inserts = _all_columns(rows.filter(records[IS_INSERT]), schema)
    updates = rows.filter(pc.invert(records[IS_INSERT]))
    new = _blocks(task, inserts, schema.names, is_partial=False)
    return *new, *_blocks(task, updates, given, is_partial=True)


def whole_blocks(rows: pa.Table) -> tuple[RecordBlock, ...]:
    """Plans the data blocks of rows that have all columns of the table, and meta columns."""
    return tuple(RecordBlock(piece, None, is_partial=False) for _, piece in _pieces(rows))


def encode_record_block(task: WriteTask, block: RecordBlock, extra: Header = NO_EXTRA) -> bytes:
    """Encodes a data block in the log format of the write; `extra` entries are added to its header."""
    files = task.context.files
    avro_json = reduced_schema(task.context.avro_json, tuple(block.rows.column_names))
    header = {**block_header(task, avro_json, block.positions), **extra}
    if block.is_partial:
        header[HeaderKey.IS_PARTIAL] = "true"
    rows = _as_declared(block.rows, avro_json)
    if files.log_format == "parquet":
        options = cached_options(rows, files.compression, task.context.encodings, is_log=True)
        write = partial(write_parquet_records, table=rows, avro_json=avro_json, **options)
        content = encode_file(parquet_bytes_max(rows, len(avro_json)), write)
        return encode_log_block(BlockKind.PARQUET_DATA, header, content)
    (batch,) = rows.combine_chunks().to_batches()
    return encode_log_block(BlockKind.AVRO_DATA, header, encode_avro_records(batch, avro_json))


def encode_delete_blocks(task: WriteTask, deletes: pa.Table, extra: Header = NO_EXTRA) -> Iterator[bytes]:
    """Encodes the delete blocks of prepared deletes; `extra` entries are added to their headers."""
    if not deletes.num_rows:
        return
    ordering = ordering_values(task.context, deletes)
    if ordering is None:
        yield from _delete_blocks(task, deletes, None, extra)
    else:
        valid = ordering.is_valid()
        yield from _delete_blocks(task, deletes.filter(valid), ordering.filter(valid), extra)
        yield from _delete_blocks(task, deletes.filter(pc.invert(valid)), None, extra)


def ordering_values(context: WriteContext, deletes: pa.Table) -> pa.Array | None:
    """The ordering values of deletes, as a struct if there are several fields. Null, or None for all: always applies.

    A delete that lacks one of several ordering values cannot be compared, so it always applies.
    """
    names = context.config.ordering_fields
    if context.config.merge_mode is not MergeMode.EVENT_TIME_ORDERING or not names:
        return None
    if any(name not in deletes.column_names for name in names):
        return None
    arrays = [joined(deletes[name]) for name in names]
    if len(arrays) == 1:
        return arrays[0]
    missing = np.any([np.asarray(array.is_null()) for array in arrays], axis=0)
    return pa.StructArray.from_arrays(arrays, names=list(names), mask=pa.array(missing))


def _with_meta_columns(task: WriteTask, records: pa.Table, given: Sequence[str]) -> pa.Table:
    """The records with meta columns, the given data columns and, if known, positions."""
    meta = meta_columns(records, task.context.instant, task.number, task.group.file_id)
    names = [*given, *([POSITION] if POSITION in records.column_names else ())]
    return pa.table([*meta, *(records[name] for name in names)], names=[*META_COLUMNS, *names])


def _check_ordering_fields(context: WriteContext, given: Sequence[str]) -> None:
    missing = [name for name in context.config.ordering_fields if name not in given]
    if missing and context.config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        raise InvalidInputError(
            f"the update does not set {missing[0]}, an ordering field of table {context.config.name}",
            hint=f"give every row its {', '.join(missing)}",
        )


def _all_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with all data columns; missing ones are null."""
    for field in schema:
        if field.name not in rows.column_names:
            rows = rows.append_column(field.name, pa.nulls(rows.num_rows, field.type))
    return rows


def _blocks(task: WriteTask, rows: pa.Table, columns: Sequence[str], *, is_partial: bool) -> Iterator[RecordBlock]:
    rows, positions = _by_position(task, rows)
    rows = rows.select([*META_COLUMNS, *columns])
    for start, piece in _pieces(rows):
        own = None if positions is None else positions[start : start + piece.num_rows]
        yield RecordBlock(piece, own, is_partial)


def _delete_blocks(task: WriteTask, deletes: pa.Table, ordering: pa.Array | None, extra: Header) -> Iterator[bytes]:
    columns = deletes.select([name for name in (RECORD_KEY, PARTITION_PATH, POSITION) if name in deletes.column_names])
    columns = columns if ordering is None else columns.append_column("ordering", ordering)
    columns, positions = _by_position(task, columns)
    for start, piece in _pieces(columns):
        own = None if positions is None else positions[start : start + piece.num_rows]
        values = None if ordering is None else joined(piece["ordering"])
        content = encode_deletes(joined(piece[RECORD_KEY]), joined(piece[PARTITION_PATH]), values)
        header = {**block_header(task, task.context.avro_json, own), **extra}
        yield encode_log_block(BlockKind.DELETE, header, content)


def _by_position(task: WriteTask, rows: pa.Table) -> tuple[pa.Table, Positions | None]:
    """The rows sorted by position, and the positions; unsorted, and None, unless each row has a distinct position."""
    base = None if task.file_slice is None else task.file_slice.base
    if base is None or POSITION not in rows.column_names or not task.context.files.record_positions:
        return rows, None
    positions = rows[POSITION].to_numpy()
    if not len(positions) or positions.min() < 0:
        return rows, None
    if _ascends(positions):
        return rows, positions
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    return (rows.take(pa.array(order)), ordered) if _ascends(ordered) else (rows, None)


def _ascends(positions: Positions) -> bool:
    return bool((positions[1:] > positions[:-1]).all())


def _pieces(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Pieces that are small enough for a block, with the number of their first row."""
    if not rows.num_rows:
        return
    step = _block_rows(rows)
    for start in range(0, rows.num_rows, step):
        yield start, rows.slice(start, step)


def fits_one_block(rows: pa.Table, count: int) -> bool:
    """Whether `count` rows of average size fit into one block."""
    return count <= _block_rows(rows)


def _block_rows(rows: pa.Table) -> int:
    return max(1, LOG_BLOCK_BYTES_MAX // (rows.nbytes // rows.num_rows + _META_BYTES))


def block_header(task: WriteTask, avro_json: str, positions: Positions | None) -> dict[HeaderKey, str]:
    """The header of a block with this schema, and with positions in the base file if they are known."""
    header = {HeaderKey.INSTANT_TIME: str(task.context.instant), HeaderKey.SCHEMA: avro_json}
    if positions is not None:
        assert task.file_slice is not None
        assert task.file_slice.base is not None
        header[HeaderKey.RECORD_POSITIONS] = encode_positions(positions)
        header[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] = str(task.file_slice.base.instant)
    return header


@lru_cache(maxsize=64)
def reduced_schema(avro_json: str, names: tuple[str, ...]) -> str:
    """The schema with these fields only; unchanged text if these are all."""
    record = json.loads(avro_json)
    kept = [field for field in record["fields"] if field["name"] in names]
    return avro_json if kept == record["fields"] else json.dumps({**record, "fields": kept}, separators=(",", ":"))


def _as_declared(rows: pa.Table, avro_json: str) -> pa.Table:
    """The rows with columns in the order and nullability of the Avro schema."""
    schema = declared_like(avro_json, rows.schema)
    return pa.table([rows[name] for name in schema.names], schema=schema)


@lru_cache(maxsize=64)
def declared_like(avro_json: str, rows: pa.Schema) -> pa.Schema:
    """The columns of the Avro schema, with the types of the rows where these have the column."""
    kinds = dict(zip(rows.names, rows.types, strict=True))
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in _declared(avro_json)])


@lru_cache(maxsize=64)
def _declared(avro_json: str) -> pa.Schema:
    return arrow_schema(avro_json, path="the schema of the table")


@dataclass(frozen=True, slots=True)
class LotBlock:
    """A data block, and the value ranges of its columns."""

    data: bytes
    spreads: Mapping[str, Spread]


@dataclass(frozen=True, slots=True)
class LogLot:
    """The rows of several log files, ready to be encoded."""

    encoder: ParquetEncoder
    avro_json: str

    def encode(self, task: WriteTask, rows: Rows) -> LotBlock:
        """Encodes the data block of some of the rows, for the file group of a task."""
        context, group = task.context, task.group
        alike: dict[str, Numbered | str] = {
            COMMIT_TIME: str(context.instant),
            COMMIT_SEQNO: Numbered(f"{context.instant}_{task.number}_", 0),
            PARTITION_PATH: group.partition,
            FILE_NAME: group.file_id,
        }
        file = self.encoder.encode(rows, avro_metadata(self.avro_json), scratch_memory, alike)
        header = block_header(task, self.avro_json, None)
        return LotBlock(encode_log_block(BlockKind.PARQUET_DATA, header, *file.parts), file.spreads)


def prepare_lot(tasks: Sequence[WriteTask]) -> LogLot | None:
    """Prepares the rows of the tasks of one write; None if each must be encoded on its own."""
    picks = [task.rows for task in tasks if isinstance(task.rows, Picked) and not task.rows.is_apart]
    if not picks or len(picks) < len(tasks) or not serves_pages(sum(pick.count for pick in picks)):
        return None
    context, table = tasks[0].context, picks[0].table
    names = file_schema(context).names
    if context.files.log_format != "parquet" or context.entry_ordering is not None:
        return None
    if IS_DELETE in table.column_names or not {*names} <= {*table.column_names}:
        return None
    if any(pick.table is not table or pick.has_positions for pick in picks):
        return None
    if not fits_one_block(table, max(pick.count for pick in picks)):
        return None
    return _lot(context, table.select([RECORD_KEY, *names]), len(picks))


def _lot(context: WriteContext, table: pa.Table, files: int) -> LogLot | None:
    avro_json = reduced_schema(context.avro_json, (*META_COLUMNS, *table.column_names[1:]))
    schema = declared_like(avro_json, table.schema)
    options = column_options(table, context.files.compression, is_log=True)
    codec = context.files.compression.upper()
    codecs = {**dict.fromkeys(META_COLUMNS, codec), **options["compression"]}
    constants = dict.fromkeys(META_COLUMNS, "")
    columns = {**constants, **dict(zip(table.column_names, table.columns, strict=True))}
    if not can_encode(schema, columns, codecs):
        return None
    repetitive = options["use_dictionary"] or ()
    return LogLot(ParquetEncoder(schema, columns, codecs=codecs, repetitive=repetitive, files=files), avro_json)
