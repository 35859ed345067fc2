"""Avro schemas to Arrow and back, with the same text as Hudi's.

Hudi writes the table's schema as Avro JSON into commit metadata, log block headers and Parquet footers. A nullable
column is a union of null (first) and its type with default null; a nested record is named after its column, in a
namespace that grows by the name of each record around it; a decimal is a `fixed` in the namespace of its column.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.format.avro.types import Array, AvroType, Map, Record, Scalar, Union, is_null, parse_record
from lakebed.format.guard import decoding
from lakebed.model.words import META_COLUMNS

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIMESTAMPS = {"ms": "timestamp-millis", "us": "timestamp-micros"}


def arrow_schema(avro_json: str, *, path: str) -> pa.Schema:
    """The Arrow schema of an Avro record schema; CorruptTableError, which names `path`, if it is invalid."""
    with decoding(path, "the Avro schema"):
        return _arrow_schema(avro_json)


@lru_cache(maxsize=64)
def _arrow_schema(avro_json: str) -> pa.Schema:
    return pa.schema(arrow_fields(parse_record(avro_json)))


def arrow_fields(record: Record) -> list[pa.Field]:
    """The fields of a record as Arrow fields."""
    return [arrow_field(field.name, field.type) for field in record.fields]


def arrow_field(name: str, node: AvroType) -> pa.Field:
    """A field of the Avro type: nullable exactly when the type has the null value."""
    return pa.field(name, arrow_type(node), nullable=is_nullable(node))


def is_nullable(node: AvroType) -> bool:
    """Whether null is a value of the type."""
    return is_null(node) or (isinstance(node, Union) and node.null_branch is not None)


def arrow_type(node: AvroType) -> pa.DataType:
    """The Arrow type of the Avro type's values other than null.

    A union of one type (and null) is that type. A union of several is a struct with one nullable child per type, named
    by the type, of which at most one is set.
    """
    match node:
        case Scalar(arrow=arrow):
            return arrow
        case Record():
            return pa.struct(arrow_fields(node))
        case Array(item=item):
            return pa.list_(arrow_field("item", item))
        case Map(value=value):
            return pa.map_(pa.string(), arrow_field("value", value))
        case Union():
            return _arrow_union(node)


def _arrow_union(node: Union) -> pa.DataType:
    values = node.value_branches
    if not values:
        return pa.null()
    if len(values) == 1:
        return arrow_type(node.branches[values[0]])
    return pa.struct([pa.field(node.labels[index], arrow_type(node.branches[index])) for index in values])


def avro_schema(schema: pa.Schema, *, name: str, namespace: str) -> str:
    """The Avro JSON of an Arrow schema, byte for byte the same as Hudi's Spark writer's.

    A column whose type or name Avro cannot express raises InvalidInputError.
    """
    return json.dumps(_record(list(schema), name, namespace), separators=(",", ":"))


def _record(fields: list[pa.Field], name: str, namespace: str) -> dict[str, Any]:
    head = {"type": "record", "name": name} | ({"namespace": namespace} if namespace else {})
    inner = f"{namespace}.{name}" if namespace else name
    return head | {"fields": [_record_field(field, inner) for field in fields]}


def _record_field(field: pa.Field, namespace: str) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise InvalidInputError(
            f"column {field.name!r} cannot have this name in a Hudi table",
            hint="rename it: letters, digits and underscores, no digit first",
        )
    spec = {"name": field.name, "type": _nullable(field, field.name, namespace)}
    if field.name in META_COLUMNS:
        spec["doc"] = ""
    return spec | ({"default": None} if field.nullable else {})


def _nullable(field: pa.Field, name: str, namespace: str) -> Any:
    spec = _type(field.type, name, namespace)
    return ["null", spec] if field.nullable and spec != "null" else spec


def _type(kind: pa.DataType, name: str, namespace: str) -> Any:
    """The Avro type of a column's or item's type; items carry the name and namespace of their column."""
    if pat.is_dictionary(kind):
        return _type(kind.value_type, name, namespace)
    if pat.is_struct(kind):
        return _record(list(kind.fields), name, namespace)
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, namespace)}
    if pat.is_map(kind) and _is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_field, name, namespace)}
    if pat.is_decimal128(kind) or pat.is_decimal256(kind):
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return _fixed(_decimal_bytes(kind.precision), name, namespace) | logical
    if pat.is_fixed_size_binary(kind):
        return _fixed(kind.byte_width, name, namespace)
    spec = _scalar(kind)
    if spec is None:
        raise InvalidInputError(
            f"column {name!r} of type {kind} cannot be stored as Avro",
            hint="cast it to a type that Hudi tables support",
        )
    return spec


def _scalar(kind: pa.DataType) -> Any:
    if pat.is_timestamp(kind) and kind.unit in _TIMESTAMPS:
        return {"type": "long", "logicalType": ("" if kind.tz else "local-") + _TIMESTAMPS[kind.unit]}
    for spec, *accepts in _SCALARS:
        if any(accept(kind) for accept in accepts):
            return spec
    return None


def _is_string(kind: pa.DataType) -> bool:
    return pat.is_string(kind) or pat.is_large_string(kind) or pat.is_string_view(kind)


_SCALARS: tuple[tuple[Any, ...], ...] = (
    ("null", pat.is_null),
    ("boolean", pat.is_boolean),
    ("int", pat.is_int8, pat.is_int16, pat.is_int32, pat.is_uint8, pat.is_uint16),
    ("long", pat.is_int64, pat.is_uint32),
    ("float", pat.is_float16, pat.is_float32),
    ("double", pat.is_float64),
    ("string", _is_string),
    ("bytes", pat.is_binary, pat.is_large_binary, pat.is_binary_view),
    ({"type": "int", "logicalType": "date"}, pat.is_date32),
    ({"type": "int", "logicalType": "time-millis"}, lambda kind: kind == pa.time32("ms")),
    ({"type": "long", "logicalType": "time-micros"}, lambda kind: kind == pa.time64("us")),
)


def _fixed(size: int, name: str, namespace: str) -> dict[str, Any]:
    return {"type": "fixed", "name": "fixed", "namespace": f"{namespace}.{name}", "size": size}


def _decimal_bytes(precision: int) -> int:
    """The fewest bytes that hold every decimal of that many digits, sign included."""
    return next(size for size in range(1, 33) if 2 ** (8 * size - 1) >= 10**precision)
