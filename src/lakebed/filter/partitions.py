"""Partition paths and the column values they stand for."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.arrow import text_array
from lakebed.model.config import TableConfig

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows whose partition column is null or empty."""
_SPELLED_AS_IS = ("SIMPLE", "COMPLEX", "SimpleKeyGenerator", "ComplexKeyGenerator", "SIMPLE_AVRO", "COMPLEX_AVRO")
"""Key generators whose path segments spell the column's value; others may format or hash it."""


def partition_values(path: str, config: TableConfig) -> dict[str, str | None]:
    """The text of each partition column in a partition path; empty if the path does not match the columns."""
    fields = config.partition_fields
    segments = [path] if len(fields) == 1 else path.split("/")
    if not path or not fields or len(segments) != len(fields):
        return {}
    values: dict[str, str | None] = {}
    for field, segment in zip(fields, segments, strict=True):
        text = segment.removeprefix(f"{field}=") if config.hive_style_partitioning else segment
        text = unquote(text) if config.url_encoded_partitions else text
        values[field] = None if text == NO_VALUE else text
    return values


def columns_from_path(config: TableConfig, schema: pa.Schema) -> tuple[str, ...]:
    """Partition columns whose value is that of the path, whatever the file says.

    As in Apache Hudi: an update whose partition value has changed may stay in its old folder, and belongs to it.
    """
    if config.drops_partition_columns:
        return tuple(name for name in config.partition_fields if name in schema.names)
    if config.key_generator not in _SPELLED_AS_IS:
        return ()
    return tuple(n for n in config.partition_fields if n in schema.names and _spelled_plainly(schema.field(n).type))


def path_constants(path: str, config: TableConfig, schema: pa.Schema) -> dict[str, pa.Array]:
    """The partition columns that a partition's path gives, and their value in all rows there, as arrays of one."""
    values = partition_values(path, config)
    names = [name for name in columns_from_path(config, schema) if name in values]
    typed = {name: _in_type([values[name]], schema.field(name).type) for name in names}
    return {name: column for name, column in typed.items() if column is not None}


def typed_partition_values(paths: list[str], config: TableConfig, schema: pa.Schema) -> dict[str, pa.Array]:
    """For each partition column whose value the path gives: the value of each path, in the column's type.

    Null where a path does not tell. Columns whose text does not convert are left out: nothing is concluded from them.
    """
    texts = [partition_values(path, config) for path in paths]
    if not all(texts):
        return {}
    typed = {n: _in_type([t[n] for t in texts], schema.field(n).type) for n in columns_from_path(config, schema)}
    return {name: values for name, values in typed.items() if values is not None}


def _in_type(texts: list[str | None], wanted: pa.DataType) -> pa.Array | None:
    try:
        return pc.cast(text_array(texts), wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _spelled_plainly(wanted: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return any(check(wanted) for check in checks)
