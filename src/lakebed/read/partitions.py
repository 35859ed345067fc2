"""Partition paths and the column values they stand for."""

from __future__ import annotations

from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.config import TableConfig

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
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
        values[field] = None if text == _NO_VALUE else text
    return values


def partition_array(text: str | None, wanted: pa.DataType, count: int) -> pa.Array:
    """A partition column's value, `count` times, in the column's type."""
    return pa.repeat(pc.cast(pa.scalar(text, pa.string()), wanted), count)


def typed_partition_values(paths: list[str], config: TableConfig, schema: pa.Schema) -> dict[str, pa.Array]:
    """For each partition column whose paths spell its values: the value of each path, in the column's type.

    Null where a path does not tell. Columns whose text does not convert are left out: nothing is concluded from them.
    """
    if config.key_generator not in _SPELLED_AS_IS:
        return {}
    texts = [partition_values(path, config) for path in paths]
    if not all(texts):
        return {}
    found = {}
    for name in config.partition_fields:
        wanted = schema.field(name).type if name in schema.names else None
        if wanted is None or not _spelled_plainly(wanted):
            continue
        try:
            found[name] = pc.cast(pa.array([text[name] for text in texts], pa.string()), wanted)
        except pa.ArrowInvalid:
            continue
    return found


def _spelled_plainly(wanted: pa.DataType) -> bool:
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return any(check(wanted) for check in checks)
