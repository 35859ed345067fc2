"""Columns that workers do not send to Spark, because Spark can compute them.

- Columns that follow from others: the counterpart, in SQL, of `read/columns.py`.
- Values that most rows of a slice repeat: its partition path and, in rows that no log file has changed, the file name
  and the commit time. They are sent once, in the plan, and each row carries the number of its slice. Rows from a Python
  worker cost time per value.

PySpark is optional and slow to load, so functions import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.keys import NO_VALUE, columns_from_path
from lakebed.filter.predicate import columns_of
from lakebed.model.config import TableConfig
from lakebed.model.words import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakebed.read.columns import REPETITIVE, as_dictionary, key_copy
from lakebed.read.file_slice import SliceTask

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

SLICE = "_lakebed_slice"
"""Name of the column of slice numbers; `~number` marks rows that were sent with all values."""
_SEPARATOR = "\x1f"


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


@dataclass(frozen=True, slots=True)
class SparkColumns:
    """The columns to read, and SQL expressions for those derived from them."""

    read: pa.Schema
    derived: dict[str, str]

    def derive(self, frame: DataFrame) -> DataFrame:
        """Adds the derived columns to a frame of the columns read."""
        from pyspark.sql.functions import expr

        return frame.withColumns({name: expr(text) for name, text in self.derived.items()}) if self.derived else frame


def plan_spark_columns(names: Iterable[str], schema: pa.Schema, config: TableConfig) -> SparkColumns:
    """Plans how Spark gets the columns `names` of a table."""
    wanted = set(names)
    if not config.has_meta_columns:
        return SparkColumns(_only(schema, wanted), {})
    from_path = [name for name in columns_from_path(config, schema) if name in wanted]
    types = {field.name: field.dataType.simpleString() for field in spark_schema(_only(schema, set(from_path)))}
    derived = {name: path_expression(name, types[name], config) for name in from_path}
    copy = key_copy(_only(schema, wanted), config)
    if copy is not None:
        derived[copy] = f"`{RECORD_KEY}`"
    # With several partition columns, a path may not match them; then the file has the value.
    unread = derived.keys() if len(config.partition_fields) <= 1 else derived.keys() - set(from_path)
    sources = {PARTITION_PATH} if from_path else set()
    sources |= {RECORD_KEY} if copy is not None else set()
    return SparkColumns(_only(schema, wanted - unread | sources), derived)


def path_expression(name: str, spark_type: str, config: TableConfig) -> str:
    """SQL for the value of a partition column, from the row's partition path, like `path_constants`."""
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


def sent_schema(tasks: Sequence[SliceTask], read: pa.Schema) -> pa.Schema | None:
    """The schema in which rows of `read` are sent; None if no values can be left out."""
    if not tasks[0].config.has_meta_columns or not {PARTITION_PATH, FILE_NAME} & set(read.names):
        return None
    ambiguous = any(_SEPARATOR in value for task in tasks for value in _repeated(task).values())
    if ambiguous or SLICE in map(str.lower, read.names):
        return None
    kept = [field for field in read if field.name != PARTITION_PATH]
    fields = [field.with_nullable(True) if field.name in REPETITIVE else field for field in kept]
    return pa.schema([*fields, pa.field(SLICE, pa.int32())])


def sent_task(task: SliceTask, sent: pa.Schema) -> SliceTask:
    """The task whose rows suit `leave_out`: repetitive columns as dictionaries, unless the task filters by them."""
    compared = columns_of(task.predicate) if task.predicate is not None else frozenset()
    plain = compared | {COMMIT_TIME} if task.written_by is not None else compared
    fields = [as_dictionary(f) if f.name in REPETITIVE and f.name not in plain else f for f in task.schema]
    columns = tuple(name for name in sent.names if name != SLICE)
    return replace(task, schema=pa.schema(fields), columns=columns)


def leave_out(rows: pa.Table, task: SliceTask, number: int, sent: pa.Schema) -> pa.Table:
    """The rows of a slice as they are sent, with its number and without repeated values."""
    often = [name for name in REPETITIVE if name in sent.names]
    # Null stands for a value that Spark restores, so rows with real nulls are sent whole.
    sends_all = any(rows[name].null_count for name in often)
    repeated = {} if sends_all else _repeated(task)
    columns = {name: rows[name] for name in sent.names if name != SLICE}
    for name in often:
        chunks = [_without(chunk, repeated.get(name)) for chunk in rows[name].chunks]
        columns[name] = pa.chunked_array(chunks, pa.string())
    columns[SLICE] = pa.repeat(pa.scalar(~number if sends_all else number, pa.int32()), rows.num_rows)
    return pa.table(columns, schema=sent)


def put_back(frame: DataFrame, tasks: Sequence[SliceTask]) -> DataFrame:
    """Restores the values that were left out of sent rows; `tasks` in the order of their numbers."""
    from pyspark.sql import functions as f

    known, number = [_repeated(task) for task in tasks], f.col(SLICE)

    def of_slice(name: str, at: Column) -> Column:
        # One literal that Spark splits while planning; thousands of literals would cost more than the scan.
        joined = f.lit(_SEPARATOR.join(values.get(name, "") for values in known))
        return f.get(f.split(joined, _SEPARATOR), at)

    whole = {PARTITION_PATH: of_slice(PARTITION_PATH, f.greatest(number, f.bitwise_not(number)))}
    often = [name for name in REPETITIVE if name in frame.columns]
    return frame.withColumns(whole | {name: f.coalesce(f.col(name), of_slice(name, number)) for name in often})


def _repeated(task: SliceTask) -> dict[str, str]:
    base, folder = task.file_slice.base, {PARTITION_PATH: task.file_slice.group.partition}
    return folder if base is None else {**folder, FILE_NAME: base.name, COMMIT_TIME: base.instant}


def _without(column: pa.Array, value: str | None) -> pa.Array:
    """`column` as plain text, with nulls in place of `value`."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = encoded.dictionary
    if value is not None:
        words = pc.if_else(pc.equal(words, value), pa.scalar(None, pa.string()), words)
    return words.take(encoded.indices)
