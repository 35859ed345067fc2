"""Columns that Spark derives by itself from others: what is not read need not be decoded, sent and copied.

The counterpart, in SQL, of `read/derived.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.filter.keys import NO_VALUE, columns_from_path
from lakebed.model.config import TableConfig
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.read.derived import key_copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark spells it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


@dataclass(frozen=True, slots=True)
class SparkColumns:
    """The columns to read, and the SQL of those that follow from them."""

    read: pa.Schema
    derived: dict[str, str]

    def derive(self, frame: DataFrame) -> DataFrame:
        """A frame of the columns read, with the derived ones."""
        from pyspark.sql.functions import expr

        return frame.withColumns({name: expr(text) for name, text in self.derived.items()}) if self.derived else frame


def plan_spark_columns(names: Iterable[str], schema: pa.Schema, config: TableConfig) -> SparkColumns:
    """How Spark comes by the columns `names` of a table."""
    wanted = set(names)
    if not config.has_meta_columns:
        return SparkColumns(_only(schema, wanted), {})
    from_path = [name for name in columns_from_path(config, schema) if name in wanted]
    types = {field.name: field.dataType.simpleString() for field in spark_schema(_only(schema, set(from_path)))}
    derived = {name: path_expression(name, types[name], config) for name in from_path}
    copy = key_copy(_only(schema, wanted), config)
    if copy is not None:
        derived[copy] = f"`{RECORD_KEY}`"
    # With several partition columns, a path that does not match them leaves the value to the file.
    unread = derived.keys() if len(config.partition_fields) <= 1 else derived.keys() - set(from_path)
    sources = {PARTITION_PATH} if from_path else set()
    sources |= {RECORD_KEY} if copy is not None else set()
    return SparkColumns(_only(schema, wanted - unread | sources), derived)


def path_expression(name: str, spark_type: str, config: TableConfig) -> str:
    """SQL for a partition column's value from the row's partition path, as `path_constants` has it."""
    fields, path = config.partition_fields, f"`{PARTITION_PATH}`"
    text = path if len(fields) == 1 else f"split({path}, '/')[{fields.index(name)}]"
    if config.hive_style_partitioning:
        label = f"{name}=".replace("'", "\\'")
        text = f"if(startswith({text}, '{label}'), substring({text}, {len(name) + 2}), {text})"
    if config.url_encoded_partitions:
        text = f"try_url_decode(replace({text}, '+', '%2B'))"
    text = f"nullif({text}, '{NO_VALUE}')"
    if spark_type != "string":
        text = f"try_cast({text} as {spark_type})"
    if len(fields) == 1:
        return text
    return f"if(size(split({path}, '/')) = {len(fields)}, {text}, `{name}`)"


def _only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    return pa.schema([field for field in schema if field.name in names])
