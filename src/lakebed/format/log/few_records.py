"""A few records of an Avro log block, without compiled code.

Records are plain bytes one after the other, so those that mention a key are found by searching for it. Records whose
columns are all scalars are decoded here; of others the caller decodes the block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, number_array, text_array
from lakebed.format.avro.numbers import decode_long
from lakebed.format.avro.schema import arrow_field
from lakebed.format.avro.types import AvroType, Record, Scalar, Union, Wire, parse_record
from lakebed.format.guard import decoding
from lakebed.format.log.file import LogBlock

_START = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")
_FLOATS = {Wire.FLOAT: struct.Struct("<f"), Wire.DOUBLE: struct.Struct("<d")}
_NUMBERS = {Wire.INT: np.int32, Wire.LONG: np.int64, Wire.FLOAT: np.float32, Wire.DOUBLE: np.float64}
Value = bytes | int | float | bool | None


def find_avro_records(
    block: LogBlock, schema: str, columns: Sequence[str], wanted: Sequence[bytes], *, path: str
) -> pa.Table | None:
    """Those of `columns` that an AVRO_DATA block has, of records that hold any of the `wanted` bytes.

    None if its records are not of the kind that is decoded here.
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


def _decode(datum: bytes, record: Record) -> list[Value]:
    at, values = 0, []
    for field in record.fields:
        value, at = _decode_value(datum, at, field.type)
        values.append(value)
    if at != len(datum):
        raise ValueError(f"{len(datum) - at} bytes too many")
    return values


def _decode_value(datum: bytes, at: int, node: AvroType) -> tuple[Value, int]:
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


def _array(node: AvroType, values: list[Value]) -> ArrowArray:
    assert isinstance(node, Scalar), node
    if node.wire is Wire.BYTES:
        return text_array([value.decode() if isinstance(value, bytes) else None for value in values])
    numbers = np.array([0 if value is None else value for value in values], _NUMBERS[node.wire])
    present = number_array(numbers, node.arrow)
    if None not in values:
        return present
    marks = text_array([None if value is None else "" for value in values])
    return pa.Array.from_buffers(node.arrow, len(values), [marks.buffers()[0], present.buffers()[1]])
