"""Runs scans on Spark. PySpark is optional and slow to load, so functions import it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.session import check_spark, ensure_workers
from lakebed.engine.spark import with_code
from lakebed.filter.evaluate import to_spark_sql
from lakebed.filter.keys import columns_from_path
from lakebed.read.file_slice import PARQUET, SliceTask, read_slice
from lakebed.read.scan import ScanPlan
from lakebed.read.spark_columns import leave_out, plan_spark_columns, put_back, sent_schema, sent_task, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASK_BYTES = 64 << 20
"""Bytes of stored files per Spark task, about."""
BATCH_ROWS = 32_768
"""Maximum rows per Arrow batch that a worker sends to Spark."""


def read_spark(plan: ScanPlan, spark: SparkSession) -> DataFrame:
    """The rows of a scan as a DataFrame: slices with logs are merged in Arrow, others go to Spark's Parquet reader."""
    from pyspark import __version__

    check_spark(__version__)
    plain = [task for task in plan.tasks if _is_plain(task)]
    merged = [task for task in plan.tasks if not _is_plain(task)]
    frames = []
    if plain or not merged:
        frames.append(_scan_parquet(plan, plain, spark))
    if merged:
        frames.append(_scan_merged(plan, merged, spark))
    return reduce(lambda left, right: left.unionByName(right), frames)


def _is_plain(task: SliceTask) -> bool:
    """Whether Spark's own Parquet reader returns the right rows and columns for the slice."""
    base, config = task.file_slice.base, task.config
    if base is None or base.extension != PARQUET or task.file_slice.logs or config.drops_partition_columns:
        return False
    knows_paths = config.has_meta_columns or not columns_from_path(config, task.needed_schema)
    return knows_paths and task.keys is None and task.written_by is None


def _scan_parquet(plan: ScanPlan, tasks: Sequence[SliceTask], spark: SparkSession) -> DataFrame:
    if not tasks:
        return spark.createDataFrame([], spark_schema(plan.schema))
    task = tasks[0]
    columns = plan_spark_columns(task.needed_schema.names, task.schema, task.config)
    paths = (task.storage.uri(task.file_slice.paths[0]) for task in tasks)
    frame = columns.derive(spark.read.schema(spark_schema(columns.read)).parquet(*paths))
    if plan.predicate is not None:
        frame = frame.filter(to_spark_sql(plan.predicate))
    return frame.select(*(f"`{name}`" for name in plan.schema.names))


def _scan_merged(plan: ScanPlan, tasks: Sequence[SliceTask], spark: SparkSession) -> DataFrame:
    ensure_workers(spark)
    columns = plan_spark_columns(plan.schema.names, tasks[0].schema, tasks[0].config)
    sent = sent_schema(tasks, columns.read)
    if sent is None:
        groups = pack_tasks([replace(task, columns=tuple(columns.read.names)) for task in tasks])
        frame = _map_groups(groups, columns.read, _read_all, spark)
    else:
        groups = pack_tasks([sent_task(task, sent) for task in tasks])
        frame = _map_groups(groups, sent, partial(_read_sent, sent=sent), spark)
        frame = put_back(frame, [task for group in groups for task in group])
    return columns.derive(frame).select(*(f"`{name}`" for name in plan.schema.names))


def pack_tasks(tasks: Sequence[SliceTask]) -> list[list[SliceTask]]:
    """Packs slices into groups of about equal bytes, one per Spark task: a task costs more than a small slice."""
    cores = os.cpu_count() or 1
    by_size = -(-sum(_bytes(task) for task in tasks) // _TASK_BYTES)
    count = min(len(tasks), -(-max(by_size, 1) // cores) * cores)
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


def _map_groups(
    groups: list[list[SliceTask]], schema: pa.Schema, read: Callable[[SliceTask, int], pa.Table], spark: SparkSession
) -> DataFrame:
    """The rows that `read` returns for each slice and its number; slices are numbered across all groups."""
    firsts = list(accumulate(map(len, groups), initial=0))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for number, task in enumerate(groups[group], firsts[group]):
                    yield from read(task, number).to_batches(max_chunksize=BATCH_ROWS)

    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(with_code(run), spark_schema(schema))


def _read_all(task: SliceTask, number: int) -> pa.Table:
    del number
    return read_slice(task)


def _read_sent(task: SliceTask, number: int, *, sent: pa.Schema) -> pa.Table:
    return leave_out(read_slice(task), task, number, sent)
