"""The content of log blocks: records, deletes, record positions, HFiles.

AVRO_DATA, CDC_DATA   int32 version 3 | int32 record count | per record int32 length, Avro datum of the SCHEMA header
PARQUET_DATA          a Parquet file
HFILE_DATA            an HFile
DELETE                int32 version 3 | int32 length | one Avro datum, see deletes.py
COMMAND               nothing
"""

from __future__ import annotations

import array
import base64
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.arrow import ArrowArray, number_array, text_array
from lakebed.format.avro.columns import decode_datums, encode_datums
from lakebed.format.avro.schema import arrow_field, arrow_schema
from lakebed.format.avro.types import AvroType, Record, Scalar, Union, Wire, parse_record
from lakebed.format.guard import check_row_counts, decoding
from lakebed.format.log.deletes import CONTENT_VERSION, check_content_version, decode_deletes, encode_deletes
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock
from lakebed.format.parquet_footer import avro_metadata
from lakebed.format.varint import decode_long
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
"""Maximum number of rows per byte of a block, Parquet's run lengths included: bounds the size of a decoded bitmap."""


def decode_records(block: LogBlock, *, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The records of a data block, in block order, with those of `columns` that the block has, in its column order.

    Records have the block's own schema and the meta columns, except CDC records: these have `op`, `ts_ms`, `before` and
    `after`, depending on the table's logging mode.
    """
    if block.kind is BlockKind.PARQUET_DATA:
        return _decode_parquet_records(block, path, columns)
    if block.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
        return _decode_avro_records(block, path, columns)
    raise CorruptTableError(f"a {block.kind.name} block holds no rows", path=path, offset=block.offset)


def encode_avro_records(batch: pa.RecordBatch, avro_json: str) -> memoryview:
    """The content of an AVRO_DATA or CDC_DATA block whose SCHEMA header is `avro_json`."""
    data, offsets = encode_datums(batch, avro_json)
    count = len(offsets) - 1
    content = np.empty(_RECORDS_START.size + count * _LENGTH_BYTES + len(data), dtype=np.uint8)
    content[: _RECORDS_START.size] = np.frombuffer(_RECORDS_START.pack(CONTENT_VERSION, count), dtype=np.uint8)
    put_records(data, offsets, content, _RECORDS_START.size)
    return content.data


def write_parquet_records(sink: pa.NativeFile, table: pa.Table, avro_json: str, **options: Any) -> None:
    """Writes the content of a PARQUET_DATA block whose SCHEMA header is `avro_json`; `options` are for the writer.

    Nulls in columns that are not nullable raise InvalidInputError.
    """
    try:
        with pq.ParquetWriter(sink, table.schema, store_schema=False, **options) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata(avro_metadata(avro_json))
    except pa.ArrowInvalid as error:
        raise InvalidInputError(str(error), hint="make the rows fit the table's schema") from error


def decode_positions(block: LogBlock, *, path: str) -> npt.NDArray[np.int64] | None:
    """The ascending row numbers of the block's records in the base file that header key 8 names; None if not stored.

    The i-th position is that of the i-th record.
    """
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    if text is None:
        return None
    with decoding(path, "the record positions", offset=block.offset):
        positions = BitMap64.deserialize(base64.b64decode(text, validate=True))
        # A few bytes of runs can decode to 65536 positions each: check the count first.
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
    """Whether the stored content of a block contains these bytes: text in Avro records is not compressed."""
    return wanted in bytes(block.content)


def _decode_avro_records(block: LogBlock, path: str, columns: Sequence[str] | None) -> pa.Table:
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


_START = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_FLOATS = {Wire.FLOAT: struct.Struct("<f"), Wire.DOUBLE: struct.Struct("<d")}
_NUMBERS = {Wire.INT: np.int32, Wire.LONG: np.int64, Wire.FLOAT: np.float32, Wire.DOUBLE: np.float64}
_Value = bytes | int | float | bool | None


def find_avro_records(
    block: LogBlock, schema: str, columns: Sequence[str], wanted: Sequence[bytes], *, path: str
) -> pa.Table | None:
    """The records of an AVRO_DATA block that contain any of the `wanted` bytes, with those of `columns` that it has.

    For few records, without compiled code. None if columns are not all scalars: then the caller decodes the block.
    """
    with decoding(path, "the Avro schema", offset=block.offset):
        record = parse_record(schema)
    if not all(_is_plain(field.type) for field in record.fields):
        return None
    content = bytes(block.content)
    with decoding(path, "the records of a log block", offset=block.content_offset):
        datums = [datum for datum in _datums(content, path, block.content_offset) if any(w in datum for w in wanted)]
        rows = [_decode(datum, record) for datum in datums]
    fields = [(place, field) for place, field in enumerate(record.fields) if field.name in columns]
    arrays = [_array(_scalar(field.type), [row[place] for row in rows]) for place, field in fields]
    return pa.table(arrays, schema=pa.schema([arrow_field(field.name, field.type) for _, field in fields]))


def _datums(content: bytes, path: str, offset: int) -> Iterator[bytes]:
    at, unpack = _START.size, _LENGTH.unpack_from
    _, count = _START.unpack_from(content)
    for _ in range(count):
        (length,) = unpack(content, at)
        at += _LENGTH.size
        if not 0 <= length <= len(content) - at:
            raise CorruptTableError("a record exceeds its block", path=path, offset=offset + at)
        yield content[at : at + length]
        at += length
    if at != len(content):
        raise CorruptTableError("the records do not fill their block", path=path, offset=offset)


def _is_plain(node: AvroType) -> bool:
    if isinstance(node, Union):
        return len(node.branches) == 2 and node.null_branch is not None and _is_plain(_scalar(node))
    if not isinstance(node, Scalar):
        return False
    return node.wire in _NUMBERS or (node.wire is Wire.BYTES and node.arrow == pa.string())


def _scalar(node: AvroType) -> AvroType:
    return node.branches[node.value_branches[0]] if isinstance(node, Union) else node


def _decode(datum: bytes, record: Record) -> list[_Value]:
    at, values = 0, []
    for field in record.fields:
        value, at = _decode_value(datum, at, field.type)
        values.append(value)
    if at != len(datum):
        raise ValueError(f"{len(datum) - at} bytes too many")
    return values


def _decode_value(datum: bytes, at: int, node: AvroType) -> tuple[_Value, int]:
    if isinstance(node, Union):
        branch, at = decode_long(datum, at)
        if not 0 <= branch < len(node.branches):
            raise ValueError(f"no branch {branch}")
        return (None, at) if branch == node.null_branch else _decode_value(datum, at, node.branches[branch])
    assert isinstance(node, Scalar), node
    if node.wire in _FLOATS:
        (number,) = _FLOATS[node.wire].unpack_from(datum, at)
        return number, at + _FLOATS[node.wire].size
    number, at = decode_long(datum, at)
    if node.wire is not Wire.BYTES:
        return number, at
    if not 0 <= number <= len(datum) - at:
        raise ValueError(f"a text of {number} bytes")
    return datum[at : at + number], at + number


def _array(node: AvroType, values: list[_Value]) -> ArrowArray:
    assert isinstance(node, Scalar), node
    if node.wire is Wire.BYTES:
        return text_array([value.decode() if isinstance(value, bytes) else None for value in values])
    numbers = np.array([0 if value is None else value for value in values], _NUMBERS[node.wire])
    present = number_array(numbers, node.arrow)
    if None not in values:
        return present
    marks = text_array([None if value is None else "" for value in values])
    return pa.Array.from_buffers(node.arrow, len(values), [marks.buffers()[0], present.buffers()[1]])
