"""`spark.read.format("lakebed")`: scans in Spark's Python workers.

Every row passes through a Python worker here. `Table.to_spark` hands plain slices to Spark's own Parquet reader
instead and is the faster way; this one is for jobs that already say `format("hudi")`.

Filters are not taken from Spark, though Spark offers them since 4.1: it keeps the partitions of a filtered read and
gives them to other queries of the same DataFrame, or to the other side of a join, where rows would then be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakebed.errors import InvalidInputError
from lakebed.options import ReadOptions, parse_read_options, storage_options
from lakebed.read.changes import plan_changes
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import ScanPlan, plan_scan
from lakebed.read.spark import BATCH_ROWS, pack_tasks
from lakebed.table import TableState, open_handle


class _Group(ds.InputPartition):
    """File slices that one Spark task reads."""

    def __init__(self, tasks: list[SliceTask]) -> None:
        self.tasks = tasks


class LakebedReader(ds.DataSourceReader):
    """Plans a scan on the driver and reads its slices in workers."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[ds.InputPartition]:
        """Groups of slices of about equal size."""
        plan = plan_read(self._options, self._columns)
        return list(map(_Group, pack_tasks(plan.tasks))) if plan.tasks else [_Group([])]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        assert isinstance(partition, _Group)
        for task in partition.tasks:
            yield from read_slice(task).to_batches(max_chunksize=BATCH_ROWS)


def plan_read(options: Mapping[str, str], columns: tuple[str, ...] | None = None) -> ScanPlan:
    """The scan that the options of a read ask for."""
    path = options.get("path")
    if not path:
        raise InvalidInputError("no table was named", hint='give its path: spark.read.format("lakebed").load(path)')
    wanted = parse_read_options(options)
    handle = open_handle(path, storage_options(options), use_metadata=wanted.use_metadata)
    return _plan_query(handle.state(), wanted, columns)


def _plan_query(state: TableState, wanted: ReadOptions, columns: tuple[str, ...] | None) -> ScanPlan:
    if wanted.query_type == "incremental":
        return plan_changes(state, wanted.begin_instant, wanted.end_instant, columns=columns)
    return plan_scan(state, columns=columns, as_of=wanted.as_of, mode=wanted.query_type)
