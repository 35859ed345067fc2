"""Payloads of many metadata records as Arrow arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.avro.columns import decode_datums
from lakebed.format.avro.types import parse_record
from lakebed.format.guard import decoding


def decode_payloads(values: ArrowArray, schema: str, payload: str, *, path: str, required: bool = False) -> ArrowArray:
    """One payload of each record, null where a record has another; with `required` such a record is refused."""
    with decoding(path, "the schema of metadata records"):
        if payload not in {field.name for field in parse_record(schema).fields}:
            raise CorruptTableError(f"the schema of its records has no {payload}", path=path)
    data, offsets = _bytes_and_offsets(values)
    batch = decode_datums(data, offsets[:-1], offsets[1:], schema, path=path, columns=(payload,))
    column = batch.column(0)
    if required and column.null_count:
        raise CorruptTableError(f"a record has no {payload}", path=path)
    return column


def texts(keys: ArrowArray) -> ArrowArray:
    """Keys as strings; bytes that are not UTF-8 raise an Arrow error."""
    return pc.cast(_one_array(keys), pa.string())


def field_of(struct: ArrowArray, name: str, kind: pa.DataType) -> ArrowArray:
    """A field of a struct, null where the struct is, in the type it must have; all null if it has no such field.

    A field of another type raises ValueError: it is not the record that its schema claims to be.
    """
    field = part_of(struct, name)
    if field is None:
        return pa.nulls(len(struct), kind)
    if field.type != kind:
        raise ValueError(f"field {name} is of type {field.type}, not {kind}")
    return field


def part_of(struct: ArrowArray, name: str) -> ArrowArray | None:
    """A field of a struct, null where the struct is; None if there is no such field, or nothing but nulls in it."""
    at = struct.type.get_field_index(name)
    if at < 0 or struct.field(at).null_count == len(struct) > 0:
        return None
    return struct.field(at) if struct.null_count == 0 else pc.struct_field(struct, [at])


def _bytes_and_offsets(values: ArrowArray) -> tuple[memoryview, ArrowArray]:
    array = _one_array(values)
    width = np.int64 if pat.is_large_binary(array.type) else np.int32
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return memoryview(data or b""), bounds if len(array) else np.zeros(1, np.int64)


def _one_array(array: ArrowArray) -> ArrowArray:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
