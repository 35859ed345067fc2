"""The data source that Spark knows as `lakebed`, and its reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakebed.errors import InvalidInputError
from lakebed.options import ReadOptions, parse_read_options, storage_options, warn_of_unknown
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import ScanPlan, plan_changes, plan_scan
from lakebed.read.spark import BATCH_ROWS, pack_tasks
from lakebed.read.spark_columns import spark_schema
from lakebed.source.named import NamedWriter, find_named, find_named_target, is_naming, name_columns, naming_options
from lakebed.source.writer import LakebedWriter, plan_save
from lakebed.table import TableState, open_handle

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


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
        """Groups of slices with about equal bytes."""
        plan = plan_read(self._options, self._columns)
        return list(map(_Group, pack_tasks(plan.tasks))) if plan.tasks else [_Group([])]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        assert isinstance(partition, _Group)
        for task in partition.tasks:
            yield from read_slice(task).to_batches(max_chunksize=BATCH_ROWS)


def plan_read(options: Mapping[str, str], columns: tuple[str, ...] | None = None) -> ScanPlan:
    """Plans the scan that the options of a read describe."""
    path = options.get("path")
    if not path:
        raise InvalidInputError(
            "no table path was given", hint='give its path: spark.read.format("lakebed").load(path)'
        )
    wanted = parse_read_options(options)
    handle = open_handle(path, storage_options(options), use_metadata=wanted.use_metadata)
    return _plan_query(handle.state(), wanted, columns)


def _plan_query(state: TableState, wanted: ReadOptions, columns: tuple[str, ...] | None) -> ScanPlan:
    if wanted.query_type == "incremental":
        return plan_changes(state, wanted.begin_instant, wanted.end_instant, columns=columns)
    return plan_scan(state, columns=columns, as_of=wanted.as_of, mode=wanted.query_type)


class LakebedSource(ds.DataSource):
    """A Hudi table as a Spark data source."""

    @classmethod
    def name(cls) -> str:
        """The name that `format` takes."""
        return "lakebed"

    def schema(self) -> StructType:
        """The table's columns as of the snapshot that the options ask for."""
        warn_of_unknown(self.options)  # Only here, because Spark plans a read in several processes.
        if is_naming(self.options):
            given = naming_options(self.options)
            return name_columns(spark_schema(plan_read(given).schema), given)
        return spark_schema(plan_read(self.options).schema)

    def reader(self, schema: StructType) -> LakebedReader:
        """A reader of the columns in `schema`."""
        options = find_named(self.options, schema) or dict(self.options)
        return LakebedReader(options, tuple(schema.fieldNames()))

    def writer(self, schema: StructType, overwrite: bool) -> LakebedWriter:
        """A writer of rows with the columns in `schema`; checks options before Spark computes any row."""
        named = find_named_target(self.options, schema)
        if named is not None:
            return NamedWriter(plan_save(named, schema, overwrite=overwrite))
        return LakebedWriter(plan_save(self.options, schema, overwrite=overwrite))
