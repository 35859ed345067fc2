"""`spark.read.format("lakebed")`: scans in Spark's Python workers.

Every row passes through a Python worker here. `Table.to_spark` hands plain slices to Spark's own Parquet reader
instead and is the faster way; this one is for jobs that already say `format("hudi")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakebed.errors import InvalidInputError
from lakebed.options import ReadOptions, parse_read_options, storage_options
from lakebed.read.changes import plan_changes
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.predicate import And, Compare, IsIn, IsNull, Not, Op, Predicate, StartsWith, column_name
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
        self._filters: tuple[Predicate, ...] = ()

    def pushFilters(self, filters: list[ds.Filter]) -> Iterable[ds.Filter]:  # noqa: N802 - Spark's name
        """Takes filters for pruning, and gives all of them back: Spark checks each row again."""
        self._filters = tuple(predicate for predicate in map(_to_predicate, filters) if predicate is not None)
        return filters

    def partitions(self) -> list[ds.InputPartition]:
        """Groups of slices of about equal size."""
        plan = plan_read(self._options, self._columns, And(self._filters) if self._filters else None)
        return list(map(_Group, pack_tasks(plan.tasks))) if plan.tasks else [_Group([])]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one group."""
        assert isinstance(partition, _Group)
        for task in partition.tasks:
            yield from read_slice(task).to_batches(max_chunksize=BATCH_ROWS)


def plan_read(
    options: Mapping[str, str], columns: tuple[str, ...] | None = None, predicate: Predicate | None = None
) -> ScanPlan:
    """The scan that the options of a read ask for."""
    path = options.get("path")
    if not path:
        raise InvalidInputError("no table was named", hint='give its path: spark.read.format("lakebed").load(path)')
    wanted = parse_read_options(options)
    handle = open_handle(path, storage_options(options), use_metadata=wanted.use_metadata)
    return _plan_query(handle.state(), wanted, columns, predicate)


def _plan_query(
    state: TableState, wanted: ReadOptions, columns: tuple[str, ...] | None, predicate: Predicate | None
) -> ScanPlan:
    if wanted.query_type == "incremental":
        return plan_changes(state, wanted.begin_instant, wanted.end_instant, columns=columns, where=predicate)
    return plan_scan(state, columns=columns, where=predicate, as_of=wanted.as_of, mode=wanted.query_type)


_COMPARISONS: dict[type[ds.Filter], Op] = {
    ds.EqualTo: "=",
    ds.EqualNullSafe: "<=>",
    ds.GreaterThan: ">",
    ds.GreaterThanOrEqual: ">=",
    ds.LessThan: "<",
    ds.LessThanOrEqual: "<=",
}


def _to_predicate(pushed: Any) -> Predicate | None:
    """A pushed filter as a predicate; None if it has no counterpart, or a value that Spark may see as another type."""
    if isinstance(pushed, ds.Not):
        inner = _to_predicate(pushed.child)
        return None if inner is None else Not(inner)
    name = column_name(pushed.attribute)
    if isinstance(pushed, ds.IsNull):
        return IsNull(name)
    if isinstance(pushed, ds.IsNotNull):
        return Not(IsNull(name))
    values = pushed.value if isinstance(pushed.value, tuple) else (pushed.value,)
    if not all(isinstance(value, bool | int | str) for value in values):
        return None
    if isinstance(pushed, ds.In):
        return IsIn(name, values)
    if isinstance(pushed, ds.StringStartsWith):
        return StartsWith(name, pushed.value)
    op = _COMPARISONS.get(type(pushed))
    return None if op is None else Compare(name, op, pushed.value)
