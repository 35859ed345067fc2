"""The surface that users call: thin methods over the packages below."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.options import parse_table_options, storage_options
from lakebed.read.arrow import read_arrow
from lakebed.read.changes import plan_changes
from lakebed.read.explain import Explanation
from lakebed.read.indexes import Indexes
from lakebed.read.lookup import lookup_keys
from lakebed.read.scan import ScanPlan, plan_scan, take_snapshot
from lakebed.table import TableHandle, open_handle
from lakebed.timeline import Timeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def open_table(
    path: str | os.PathLike[str], *, spark: SparkSession | None = None, options: Mapping[str, str] | None = None
) -> Table:
    """The Hudi table at a path or URL (local, `s3://`, `gs://`, `az://`).

    `options` are `hoodie.*` read options and options of the store. `spark` is the session for `to_spark`; the active
    one is used if it is not given.
    """
    given = parse_table_options(options or {})
    return Table(open_handle(path, storage_options(options or {}), use_metadata=given.use_metadata), spark)


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("lakebed")` known to a Spark session; it takes the `hoodie.*` read options."""
    from lakebed.read import source

    source.register(spark)


class Table:
    """A Hudi table. Every call sees the table as it stands at that moment."""

    def __init__(self, handle: TableHandle, spark: SparkSession | None = None) -> None:
        self._handle = handle
        self._spark = spark

    def __repr__(self) -> str:
        return f"Table({self._handle.storage.url!r})"

    @property
    def config(self) -> TableConfig:
        """What hoodie.properties says."""
        return self._handle.config

    @property
    def timeline(self) -> Timeline:
        """The instants of the active timeline."""
        return self._handle.state().timeline

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest snapshot, meta columns first."""
        state = self._handle.state()
        return state.schema(state.latest)

    @property
    def indexes(self) -> Indexes:
        """The table's indexes."""
        return Indexes(self._handle.state())

    def files(self, as_of: object = None) -> tuple[FileSlice, ...]:
        """The file slices that a snapshot reads."""
        state = self._handle.state()
        return state.latest_slices if as_of is None else state.slices(take_snapshot(state, as_of))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: object = None,
        mode: str = "snapshot",
    ) -> pa.Table:
        """The table's rows, read in this process.

        `where` is a SQL predicate. `as_of` is an instant, a datetime, or text such as '2026-11-16 09:30:00'. `mode` is
        "snapshot", or "read_optimized" to leave out what is only in log files.
        """
        return read_arrow(self._plan(columns, where, as_of, mode))

    def to_spark(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        as_of: object = None,
        mode: str = "snapshot",
    ) -> DataFrame:
        """The table's rows as a Spark DataFrame; arguments as in `to_arrow`."""
        from lakebed.read.spark import read_spark

        return read_spark(self._plan(columns, where, as_of, mode), self._session())

    def lookup(self, keys: Iterable[str], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of record keys, found through the record index."""
        return lookup_keys(self._handle.state(), keys, columns)

    def changes(
        self,
        since: object,
        until: object = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Rows written after `since` and up to `until`, by completion time, as they stand at `until`.

        Both are instants or moments as in `to_arrow`; `since="earliest"` gives all rows. Deleted rows are not shown.
        """
        return read_arrow(plan_changes(self._handle.state(), since, until, columns=columns, where=where))

    def explain(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: object = None,
        mode: str = "snapshot",
    ) -> Explanation:
        """Which files a read would touch: which indexes were used, what they excluded, why others were not used."""
        return self._plan(columns, where, as_of, mode).explanation

    def _plan(self, columns: Sequence[str] | None, where: str | None, as_of: object, mode: str) -> ScanPlan:
        return plan_scan(self._handle.state(), columns=columns, where=where, as_of=as_of, mode=mode)

    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        session = self._spark or SparkSession.getActiveSession()
        if session is None:
            raise InvalidInputError(
                "there is no Spark session",
                hint="pass one: open_table(path, spark=spark); lakebed.local_session() makes one",
            )
        return session
