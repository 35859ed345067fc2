"""Running scans on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.config import TableConfig
from lakebed.model.words import PARTITION_PATH
from lakebed.read.base_file import PARQUET
from lakebed.read.evaluate import to_spark_sql
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.partitions import NO_VALUE, columns_from_path
from lakebed.read.scan import ScanPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_TASK_BYTES = 64 << 20
_PARTITIONS_MIN = 8
BATCH_ROWS = 32_768


def read_spark(plan: ScanPlan, spark: SparkSession) -> DataFrame:
    """The rows of a scan as a DataFrame: slices with logs are merged in Arrow, others go to Spark's Parquet reader."""
    plain = [task for task in plan.tasks if _is_plain(task)]
    merged = [task for task in plan.tasks if not _is_plain(task)]
    frames = []
    if plain or not merged:
        frames.append(_scan_parquet(plan, plain, spark))
    if merged:
        frames.append(_scan_merged(plan, merged, spark))
    return reduce(lambda left, right: left.unionByName(right), frames)


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark spells it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _is_plain(task: SliceTask) -> bool:
    """Whether Spark reads the slice's one Parquet file to the same rows, with every column that is asked for."""
    base = task.file_slice.base
    fills_columns = task.config.drops_partition_columns
    filters_rows = task.keys is not None or task.written_by is not None
    return (
        base is not None and base.extension == PARQUET and not (task.file_slice.logs or fills_columns or filters_rows)
    )


def _scan_parquet(plan: ScanPlan, tasks: Sequence[SliceTask], spark: SparkSession) -> DataFrame:
    from pyspark.sql.functions import expr

    if not tasks:
        return spark.createDataFrame([], spark_schema(plan.schema))
    task = tasks[0]
    from_path = columns_from_path(task.config, task.needed_schema)
    read = {*task.needed_schema.names, *([PARTITION_PATH] if from_path else [])}
    wanted = spark_schema(pa.schema([field for field in task.schema if field.name in read]))
    frame = spark.read.schema(wanted).parquet(*(task.storage.uri(task.file_slice.paths[0]) for task in tasks))
    for name in from_path:
        frame = frame.withColumn(name, expr(path_expression(name, wanted[name].dataType.simpleString(), task.config)))
    if plan.predicate is not None:
        frame = frame.filter(to_spark_sql(plan.predicate))
    return frame.select(*(f"`{name}`" for name in plan.schema.names))


def path_expression(name: str, spark_type: str, config: TableConfig) -> str:
    """SQL for a partition column's value from the row's partition path, as `with_path_values` has it."""
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


def _scan_merged(plan: ScanPlan, tasks: Sequence[SliceTask], spark: SparkSession) -> DataFrame:
    groups = pack_tasks(tasks)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(_reader_of(groups), spark_schema(plan.schema))


def pack_tasks(tasks: Sequence[SliceTask]) -> list[list[SliceTask]]:
    """Tasks in groups of about equal bytes: each group is one Spark task, which costs more than a small slice."""
    total = sum(_bytes(task) for task in tasks)
    count = min(len(tasks), max(_PARTITIONS_MIN, -(-total // _TASK_BYTES)))
    groups: list[list[SliceTask]] = [[] for _ in range(count)]
    filled = [0] * count
    for task in sorted(tasks, key=_bytes, reverse=True):
        smallest = filled.index(min(filled))
        groups[smallest].append(task)
        filled[smallest] += _bytes(task)
    return groups


def _bytes(task: SliceTask) -> int:
    files = ((task.file_slice.base,) if task.file_slice.base else ()) + task.file_slice.logs
    return sum(file.size or 0 for file in files)


def _reader_of(
    groups: list[list[SliceTask]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for task in groups[number]:
                    yield from read_slice(task).to_batches(max_chunksize=BATCH_ROWS)

    return run
