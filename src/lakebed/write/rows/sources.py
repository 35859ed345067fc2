"""Rows and schemas of users (Arrow, pandas, dicts; Spark schemas) as Arrow record batches and schemas."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakebed.engine.engines import map_tasks
from lakebed.errors import InvalidInputError
from lakebed.model.text import check_texts
from lakebed.model.words import META_COLUMNS

_META = frozenset(META_COLUMNS)
_JOINED_BYTES = 256 << 20
"""Bytes of rows up to which chunks are combined."""
_FEW_ROWS = 10_000
"""Number of rows up to which starting threads takes longer than copying."""
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


def arrow_batches(rows: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of the rows; a reader is read once, lazily.

    Takes a pyarrow Table, RecordBatch or RecordBatchReader, a pandas frame (its index is dropped), or a list of dicts.
    The five meta columns are left out, so that users can write back what they have read.
    """
    schema, batches = _open(rows)
    names = _kept_names(schema)
    if len(names) == len(schema.names):
        return schema, iter(batches)
    kept = pa.schema([schema.field(name) for name in names])
    return kept, (batch.select(names) for batch in batches)


def first_gaps(rows: object) -> dict[str, int]:
    """Columns that some dicts of a list lack, with the number of the first row that lacks each."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        return {}
    names = dict.fromkeys(name for row in rows for name in row)
    gaps = {str(name): next((n for n, row in enumerate(rows) if name not in row), -1) for name in names}
    return {name: number for name, number in gaps.items() if number >= 0}


def to_arrow_schema(schema: object) -> pa.Schema:
    """The Arrow schema of an Arrow or Spark schema."""
    if isinstance(schema, pa.Schema):
        return schema
    if is_spark_schema(schema):
        return spark_arrow_schema(schema)
    raise InvalidInputError(
        f"a schema is expected, not {_type_name(schema)}", hint="give a pyarrow.Schema or the schema of a Spark frame"
    )


def _open(rows: object) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    if isinstance(rows, pa.RecordBatch):
        return rows.schema, [rows]
    if isinstance(rows, pa.Table):
        return rows.schema, _in_one_piece(rows).to_batches()
    if isinstance(rows, pa.RecordBatchReader):
        return rows.schema, rows
    if _is_pandas_frame(rows):
        table = _from_pandas(rows)
        return table.schema, table.to_batches()
    if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
        table = _from_dicts(rows)
        return table.schema, table.to_batches()
    raise InvalidInputError(
        f"rows of type {_type_name(rows)} cannot be written",
        hint="give a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Spark frame, or a list of dicts",
    )


def _in_one_piece(rows: pa.Table) -> pa.Table:
    """Rows with one chunk per column, because later steps take time per chunk."""
    if rows.nbytes > _JOINED_BYTES or all(column.num_chunks <= 1 for column in rows.columns):
        return rows
    if rows.num_rows <= _FEW_ROWS:
        return rows.combine_chunks()
    joined = map_tasks(range(rows.num_columns), lambda number: rows.select([number]).combine_chunks().column(0))
    return pa.table([*joined], schema=rows.schema)


def _kept_names(schema: pa.Schema) -> list[str]:
    repeated = [name for name, count in Counter(schema.names).items() if count > 1]
    if repeated:
        raise InvalidInputError(f"there are several columns named {repeated[0]!r}", hint="give each its own name")
    meta = [name for name in schema.names if name in _META]
    if meta and len(meta) < len(_META):
        raise InvalidInputError(
            f"{meta[0]!r} is a meta column",
            hint="remove it, or give all five meta columns of a table; lakebed fills them",
        )
    return [name for name in schema.names if name not in _META]


def _is_pandas_frame(rows: object) -> bool:
    # Compares names, so that pandas is not loaded for other rows.
    kind = type(rows)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _from_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise InvalidInputError(
            f"the frame cannot be converted to Arrow: {error}", hint="give each column values of one type"
        ) from error


def _from_dicts(rows: list[Mapping[str, object]]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise InvalidInputError("the list has no columns", hint="give at least one dict with the key columns")
    check_texts(map(str, names), "the name of a column")
    return pa.table({str(name): _from_values([row.get(name) for row in rows], str(name)) for name in names})


def _from_values(values: list[object], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
        raise InvalidInputError(
            f"column {name!r} cannot be converted to Arrow: {error}", hint="give it values of one type"
        ) from error


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def is_spark_schema(schema: object) -> bool:
    """Whether it is a Spark `StructType`, of any Spark client."""
    return type(schema).__module__.partition(".")[0] == "pyspark" and type(schema).__name__ == "StructType"


def spark_arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema of a Spark `StructType`; raises InvalidInputError for types that Hudi tables do not support."""
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
