"""What the blocks of a log file hold: records, deletes, record positions, HFiles.

AVRO_DATA, CDC_DATA   int32 version 3 | int32 record count | per record int32 length, Avro datum of the SCHEMA header
PARQUET_DATA          a Parquet file
HFILE_DATA            an HFile
DELETE                int32 version 3 | int32 length | one Avro datum, see log_deletes.py
COMMAND               nothing
"""

from __future__ import annotations

import array
import base64
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.avro.schema import arrow_schema
from lakebed.format.guard import check_row_counts, decoding
from lakebed.format.log.deletes import CONTENT_VERSION, check_content_version, decode_deletes, encode_deletes
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock
from lakebed.format.parquet_footer import avro_metadata
from lakebed.kernels.log_records import put_records, walk_lengths
from lakebed.model.source import BytesSource

__all__ = (
    "decode_deletes",
    "decode_positions",
    "decode_records",
    "encode_avro_records",
    "encode_deletes",
    "encode_positions",
    "hfile_content",
    "holds_bytes",
    "write_parquet_records",
)

_RECORDS_START = struct.Struct(">ii")
_LENGTH_BYTES = 4
_ROWS_PER_BYTE_MAX = 64
"""Rows that a byte of a block can stand for, Parquet's run lengths included: bounds what a bitmap may unfold to."""


def decode_records(block: LogBlock, *, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The records of a data block, in block order; of `columns`, those that the block has, in its order.

    Records are typed by the block's own schema and carry the meta columns, except CDC records: these have
    `op`, `ts_ms`, `before` and `after`, as far as the table's logging mode keeps them.
    """
    if block.kind is BlockKind.PARQUET_DATA:
        return _decode_parquet_records(block, path, columns)
    if block.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
        return _decode_avro_records(block, path, columns)
    raise CorruptTableError(f"a {block.kind.name} block holds no rows", path=path, offset=block.offset)


def encode_avro_records(batch: pa.RecordBatch, avro_json: str) -> memoryview:
    """The content of an AVRO_DATA or CDC_DATA block whose SCHEMA header is `avro_json`."""
    from lakebed.format.avro.columns import encode_datums

    data, offsets = encode_datums(batch, avro_json)
    count = len(offsets) - 1
    content = np.empty(_RECORDS_START.size + count * _LENGTH_BYTES + len(data), dtype=np.uint8)
    content[: _RECORDS_START.size] = np.frombuffer(_RECORDS_START.pack(CONTENT_VERSION, count), dtype=np.uint8)
    put_records(data, offsets, content, _RECORDS_START.size)
    return content.data


def write_parquet_records(sink: pa.NativeFile, table: pa.Table, avro_json: str, **options: Any) -> None:
    """Writes the content of a PARQUET_DATA block whose SCHEMA header is `avro_json`; `options` are for the writer.

    Nulls in columns that are declared without raise InvalidInputError.
    """
    try:
        with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(avro_metadata(avro_json))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(str(error), hint="make the rows fit the table's schema") from error


def decode_positions(block: LogBlock, *, path: str) -> npt.NDArray[np.int64] | None:
    """The row numbers of the block's records in the base file that header key 8 names, ascending; None if not kept.

    The i-th record of the block is the one at the i-th position.
    """
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    if text is None:
        return None
    with decoding(path, "the record positions", offset=block.offset):
        positions = BitMap64.deserialize(base64.b64decode(text, validate=True))
        # Runs unfold to 65536 positions from a few bytes: compare with what the block can hold before they do.
        if len(positions) > len(block.content) * _ROWS_PER_BYTE_MAX or (positions and positions.max() >> 63):
            raise ValueError(f"{len(positions)} positions for {len(block.content)} bytes of records")
        return np.frombuffer(positions.to_array(), dtype=np.uint64).astype(np.int64)


def encode_positions(positions: npt.NDArray[np.int64]) -> str:
    """The text of a RECORD_POSITIONS header."""
    bitmap = BitMap64(array.array("Q", positions.astype(np.uint64).tobytes()))
    return base64.b64encode(bitmap.serialize()).decode()


def hfile_content(block: LogBlock, *, path: str) -> BytesSource:
    """The HFile of an HFILE_DATA block."""
    if block.kind is not BlockKind.HFILE_DATA:
        raise CorruptTableError(f"a {block.kind.name} block holds no HFile", path=path, offset=block.offset)
    return BytesSource(block.content, path)


def holds_bytes(block: LogBlock, wanted: bytes) -> bool:
    """Whether the content of a block, as it is stored, has these bytes somewhere: text of Avro records is plain."""
    return wanted in bytes(block.content)


def _decode_avro_records(block: LogBlock, path: str, columns: Sequence[str] | None) -> pa.Table:
    from lakebed.format.avro.columns import decode_datums

    schema = block.header.get(HeaderKey.SCHEMA)
    if schema is None:
        raise CorruptTableError("a data block has no schema", path=path, offset=block.offset)
    picked = None if columns is None else _pick(arrow_schema(schema, path=path), columns)
    starts, ends = _record_bounds(block, path)
    batch = decode_datums(
        block.content, starts, ends, schema, path=path, columns=picked, base_offset=block.content_offset
    )
    return pa.Table.from_batches([batch])


def _decode_parquet_records(block: LogBlock, path: str, columns: Sequence[str] | None) -> pa.Table:
    with decoding(path, "a Parquet log block", offset=block.content_offset):
        file = pq.ParquetFile(pa.BufferReader(block.content))
        rows = check_row_counts(_row_counts(file.metadata), len(block.content))
        picked = None if columns is None else _pick(file.schema_arrow, columns)
        table = file.read(columns=picked, use_threads=False)
        if not table.num_rows == rows == file.metadata.num_rows:
            raise ValueError(f"{table.num_rows} rows, {rows} in row groups, {file.metadata.num_rows} expected")
        return table


def _row_counts(metadata: pq.FileMetaData) -> list[int]:
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def _pick(schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    return [name for name in schema.names if name in columns]


def _record_bounds(block: LogBlock, path: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    check_content_version(block, path)
    with decoding(path, "the record count", offset=block.content_offset):
        _, count = _RECORDS_START.unpack_from(block.content)
    if not 0 <= count <= (len(block.content) - _RECORDS_START.size) // _LENGTH_BYTES:
        raise CorruptTableError(f"the block cannot hold {count} records", path=path, offset=block.content_offset)
    bounds = walk_lengths(np.frombuffer(block.content, dtype=np.uint8), _RECORDS_START.size, count)
    if bounds is None:
        raise CorruptTableError("the records do not fill their block", path=path, offset=block.content_offset)
    return bounds
