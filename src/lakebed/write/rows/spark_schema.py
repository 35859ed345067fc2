"""Spark schemas as Arrow schemas, from the JSON form that they all have: Spark itself is not needed."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidInputError

_SCALARS = {
    "boolean": pa.bool_(),
    "byte": pa.int32(),
    "short": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def is_spark_schema(schema: object) -> bool:
    """Whether it is a `StructType` of Spark, of any of its clients."""
    return type(schema).__module__.partition(".")[0] == "pyspark" and type(schema).__name__ == "StructType"


def spark_arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of a Spark `StructType`; a column of a type that Hudi tables lack raises InvalidInputError."""
    return pa.schema([_field(spec, spec["name"]) for spec in schema.jsonValue()["fields"]])


def _field(spec: dict[str, Any], column: str) -> pa.Field:
    return pa.field(spec["name"], _type(spec["type"], column), nullable=spec["nullable"])


def _type(spec: Any, column: str) -> pa.DataType:
    if isinstance(spec, str):
        return _scalar(spec, column)
    if spec["type"] == "struct":
        return pa.struct([_field(field, f"{column}.{field['name']}") for field in spec["fields"]])
    if spec["type"] == "array":
        return pa.list_(pa.field("item", _type(spec["elementType"], column), nullable=spec["containsNull"]))
    if spec["type"] == "map":
        item = pa.field("value", _type(spec["valueType"], column), nullable=spec["valueContainsNull"])
        return pa.map_(_type(spec["keyType"], column), item)
    raise _unsupported(spec["type"], column)


def _scalar(name: str, column: str) -> pa.DataType:
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _SCALARS:
        raise _unsupported(name, column)
    return _SCALARS[name]


def _unsupported(name: str, column: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {column!r} is of type {name}, which Hudi tables do not support",
        hint="cast it, e.g. to string or to a number",
    )
