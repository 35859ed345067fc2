"""Delete blocks: the record keys that a write removes.

    int32 version 3 | int32 length | one Avro datum of HoodieDeleteRecordList

A delete has the ordering value of its event in a union of wrapper records, one per type. A delete without an event
time has the int 0, whatever the type of the ordering field, and always applies.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.avro.columns import decode_datums, encode_datums
from lakebed.format.guard import decoding
from lakebed.format.log.file import BlockKind, LogBlock

CONTENT_VERSION = 3

_CONTENT_START = struct.Struct(">ii")
_EMPTY_LIST = b"\0"
_INT, _LONG, _ARRAY = "IntWrapper", "LongWrapper", "ArrayWrapper"
_CONTENTS = {_ARRAY: "wrappedValues"}
"""Name of the field of a wrapper, if not `value`."""
# Wrappers whose Avro type is a bare number.
_MEANINGS = {
    "DateWrapper": pa.date32(),
    "LocalDateWrapper": pa.date32(),
    "TimestampMicrosWrapper": pa.timestamp("us"),
}
# The wrapper of each Arrow type. Timestamps are plain longs in their own unit, and dates plain ints, like the ordering
# field of an Avro record. Apache Hudi 1.2 cannot compare values from a DateWrapper.
_WRAPPERS: tuple[tuple[pa.DataType, str], ...] = (
    (pa.bool_(), "BooleanWrapper"),
    (pa.int32(), _INT),
    (pa.int64(), _LONG),
    (pa.float32(), "FloatWrapper"),
    (pa.float64(), "DoubleWrapper"),
    (pa.binary(), "BytesWrapper"),
    (pa.string(), "StringWrapper"),
    (pa.decimal128(30, 15), "DecimalWrapper"),
    (pa.time64("us"), "TimeMicrosWrapper"),
)


def decode_deletes(block: LogBlock, *, path: str) -> pa.Table:
    """The deletes of a block, in block order.

    `key` and `partition` are strings. `always`: the delete has no event time and applies to every record; then
    `ordering` is null. Otherwise `ordering` is the event's ordering value, in the common type of the block's values
    (long for ints and longs, null type if there are none). Values of several ordering fields are a struct with
    children `0`, `1`, …
    """
    if block.kind is not BlockKind.DELETE:
        raise CorruptTableError(f"a {block.kind.name} block holds no deletes", path=path, offset=block.offset)
    payload = _payload(block, path)
    if payload == _EMPTY_LIST:
        return _deletes(pa.nulls(0, pa.string()), pa.nulls(0, pa.string()), pa.nulls(0), pa.nulls(0, pa.bool_()))
    with decoding(path, "the delete list", offset=block.content_offset):
        keys, partitions, wrapped = _decode_list(payload, path, block.content_offset + _CONTENT_START.size)
        is_zero: Any = pc.equal(_values(wrapped)[_INT], pa.scalar(0, pa.int32()))
        always = pc.or_(wrapped.is_null(), is_zero.fill_null(False))
        return _deletes(keys, partitions, _unwrap(_without(wrapped, always)), always)


def encode_deletes(keys: pa.Array, partitions: pa.Array, ordering: pa.Array | None = None) -> bytes:
    """The content of a DELETE block. Deletes without an ordering value always apply.

    Values of several ordering fields are a struct, as `decode_deletes` gives them; its children may have any names.
    """
    columns = [keys.cast(pa.string()), partitions.cast(pa.string()), _wrap(len(keys), ordering)]
    items = pa.StructArray.from_arrays(columns, names=["recordKey", "partitionPath", "orderingVal"])
    lists = pa.ListArray.from_arrays(pa.array([0, len(keys)], pa.int32()), items)
    data, _ = encode_datums(pa.RecordBatch.from_arrays([lists], names=["deleteRecordList"]), _schema())
    payload = bytes(data)
    return _CONTENT_START.pack(CONTENT_VERSION, len(payload)) + payload


def check_content_version(block: LogBlock, path: str) -> None:
    """CorruptTableError if the content has another version than the one Hudi writes since 0.13."""
    version = int.from_bytes(block.content[:4], "big", signed=True)
    if len(block.content) < _CONTENT_START.size or version != CONTENT_VERSION:
        raise CorruptTableError(
            f"{block.kind.name} block of content version {version} is unknown",
            path=path,
            offset=block.content_offset,
            hint="compact the table with Apache Hudi: lakebed reads log blocks of version 0.14 and later",
        )


@cache
def _schema() -> str:
    return (files("lakebed.format") / "schemas" / "HoodieDeleteRecordList.avsc").read_text()


def _payload(block: LogBlock, path: str) -> memoryview:
    check_content_version(block, path)
    _, length = _CONTENT_START.unpack_from(block.content)
    if length != len(block.content) - _CONTENT_START.size:
        raise CorruptTableError(
            f"a delete list of {length} bytes does not fill its block", path=path, offset=block.offset
        )
    return block.content[_CONTENT_START.size :]


def _decode_list(payload: memoryview, path: str, offset: int) -> tuple[pa.Array, pa.Array, Any]:
    """Keys, partitions and wrapped ordering values of one HoodieDeleteRecordList."""
    bounds = np.array([0, len(payload)], dtype=np.int64)
    batch = decode_datums(payload, bounds[:1], bounds[1:], _schema(), path=path, base_offset=offset)
    lists: Any = batch.column(0)
    keys, partitions, wrapped = lists.flatten().flatten()
    return keys, partitions, wrapped


def _deletes(keys: pa.Array, partitions: pa.Array, ordering: pa.Array, always: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "partition": partitions, "ordering": ordering, "always": always})


def _without(wrapped: Any, mask: Any) -> pa.StructArray:
    """The union with nulls where `mask` holds."""
    return pa.StructArray.from_arrays(wrapped.flatten(), fields=list(wrapped.type), mask=mask)


def _unwrap(wrapped: Any) -> pa.Array:
    """One array of the values of a union of wrappers."""
    present = {name: values for name, values in _values(wrapped).items() if values.null_count < len(values)}
    match sorted(present):
        case []:
            return pa.nulls(len(wrapped))
        case [name] if name == _ARRAY:
            return _unwrap_fields(present[name])
        case [name]:
            return present[name].cast(_MEANINGS.get(name, present[name].type))
        case [ints, longs] if (ints, longs) == (_INT, _LONG):
            return pc.coalesce(present[ints].cast(pa.int64()), present[longs])
        case mixed:
            raise ValueError(f"ordering values of several types: {', '.join(mixed)}")


def _unwrap_fields(lists: Any) -> pa.StructArray:
    """Lists of wrapped values, one per ordering field, as a struct."""
    counts = pc.unique(pc.drop_null(pc.list_value_length(lists))).to_pylist()
    if len(counts) != 1:
        raise ValueError(f"lists of {counts} ordering values in one block")
    fields = [_unwrap(pc.list_element(lists, index)) for index in range(counts[0])]
    return pa.StructArray.from_arrays(fields, names=[str(index) for index in range(counts[0])], mask=lists.is_null())


def _values(wrapped: Any) -> dict[str, pa.Array]:
    """The values of each kind of wrapper, null where the union has another kind."""
    return {field.name: child.flatten()[0] for field, child in zip(wrapped.type, wrapped.flatten(), strict=True)}


def _wrap(count: int, ordering: pa.Array | None) -> pa.StructArray:
    """Ordering values in the wrapper of their type, and the int 0 where there is none."""
    name, values = (_INT, pa.nulls(count, pa.int32())) if ordering is None else _wrapper_of(ordering)
    zeros = pa.array(np.zeros(count, dtype=np.int32), mask=np.asarray(values.is_valid()))
    present = {_INT: pc.coalesce(values, zeros)} if name == _INT else {_INT: zeros, name: values}
    return _wrappers(present)


def _wrappers(present: dict[str, pa.Array]) -> pa.StructArray:
    """A union of wrappers from the values of each kind; null where no kind has a value."""
    wrapped = [
        pa.StructArray.from_arrays([values], names=[_CONTENTS.get(name, "value")], mask=values.is_null())
        for name, values in present.items()
    ]
    is_set = [np.asarray(values.is_valid()) for values in present.values()]
    return pa.StructArray.from_arrays(wrapped, names=list(present), mask=pa.array(~np.any(is_set, axis=0)))


def _wrap_fields(ordering: pa.StructArray) -> pa.ListArray:
    """Lists of wrapped values, one per ordering field: inverse of `_unwrap_fields`."""
    fields = [_wrapper_of(values) for values in ordering.flatten()]
    rows, kinds = len(ordering), {name: values.type for name, values in fields}
    parts = [_wrappers({**{k: pa.nulls(rows, kinds[k]) for k in kinds}, name: values}) for name, values in fields]
    by_row = np.arange(rows * len(fields)).reshape(len(fields), rows).T.reshape(-1)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * len(fields))
    items = pa.concat_arrays(parts).take(pa.array(by_row))
    return pa.ListArray.from_arrays(offsets, items, mask=ordering.is_null())


def _wrapper_of(ordering: pa.Array) -> tuple[str, pa.Array]:
    """The wrapper for the type of the values, and the values in the wrapper's type."""
    kind = ordering.type
    if pa.types.is_struct(kind):
        return _ARRAY, _wrap_fields(ordering)
    if pa.types.is_timestamp(kind):
        return _LONG, ordering.cast(pa.int64())
    if pa.types.is_date32(kind) or (pa.types.is_integer(kind) and kind.bit_width < 32):
        return _INT, ordering.cast(pa.int32())
    if pa.types.is_decimal(kind):
        return "DecimalWrapper", ordering.cast(pa.decimal128(30, 15))
    for arrow, name in _WRAPPERS:
        if kind == arrow:
            return name, ordering
    raise InvalidInputError(
        f"values of type {kind} cannot order deletes", hint="use a number, string, date or time as ordering field"
    )
