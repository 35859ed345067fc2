"""The public API: thin methods over the packages below.

Imports inside functions: only writes, table services or Spark need them, and a process that only reads should not wait
for them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.engines import InProcess
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.model.text import check_texts
from lakebed.options import (
    parse_index_options,
    parse_table_options,
    parse_write_options,
    storage_options,
    warn_of_unknown,
)
from lakebed.read.lease import expiry_told, plan_leased, take_lease
from lakebed.read.lookup import lookup_keys
from lakebed.read.scan import Explanation, ScanPlan, plan_changes, plan_scan, read_arrow
from lakebed.read.snapshot import take_snapshot
from lakebed.storage import open_storage
from lakebed.table import TableHandle, open_handle
from lakebed.table.transactions import choose_timing, open_ports, open_transactions
from lakebed.timeline import Timeline
from lakebed.transaction.transactions import Transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.services.doctor.finding import Finding
    from lakebed.services.due import InlineServices
    from lakebed.services.indexing.indexes import Indexes
    from lakebed.services.table_services import TableServices
    from lakebed.services.values import ServiceContext, ServiceResult
    from lakebed.transaction.heartbeats import Heartbeat
    from lakebed.write.verbs import TableWrites
    from lakebed.write.writer import WriteResult

_LOG = logging.getLogger(__name__)


def open_table(
    path: str | os.PathLike[str], *, spark: SparkSession | None = None, options: Mapping[str, str] | None = None
) -> Table:
    """Opens the Hudi table at a path or URL (local, `s3://`, `gs://`, `az://`).

    `options` are `hoodie.*` options and options of the store. `spark` is the session for `to_spark`; by default the
    active one.
    """
    _check_options(options or {})
    given = parse_table_options(options or {})
    warn_of_unknown(options or {})
    handle = open_handle(path, storage_options(options or {}), use_metadata=given.use_metadata)
    return Table(handle, spark, options)


def create_table(
    path: str | os.PathLike[str],
    *,
    schema: object,
    key: str | Sequence[str],
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str = "cow",
    indexes: Sequence[str] = (),
    spark: SparkSession | None = None,
    options: Mapping[str, str] | None = None,
) -> Table:
    """Creates an empty table at a path or URL where nothing exists yet.

    `schema` is an Arrow or Spark schema. Of two rows with the same `key`, the one with the greater `ordering` value
    is kept, or without `ordering` the one written last. `table_type` is "cow" (updates rewrite files) or "mor" (updates
    are appended to log files). `options` are `hoodie.*` options of the table and its writes, and options of the store.
    """
    from lakebed.services.due import parse_inline_services
    from lakebed.write.create import create_table_files, parse_spec
    from lakebed.write.rows.sources import to_arrow_schema

    _check_options(options or {})
    given = {key: str(value) for key, value in (options or {}).items()}
    parse_table_options(given)
    parse_inline_services(given)
    storage = open_storage(path, storage_options(given))
    columns = to_arrow_schema(schema)
    spec = parse_spec(storage.url, columns, key, partition_by, ordering, table_type, indexes, given)
    create_table_files(open_ports(storage, parse_write_options(given).lock), spec)
    return open_table(path, spark=spark, options=options)


def _check_options(options: Mapping[str, str]) -> None:
    check_texts(map(str, options), "the name of an option")
    check_texts(map(str, options.values()), "the value of an option")


class Table:
    """A Hudi table. Every call sees the newest state of the table."""

    def __init__(
        self, handle: TableHandle, spark: SparkSession | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self._handle = handle
        self._spark = spark
        self._options = dict(options or {})

    def __repr__(self) -> str:
        return f"Table({self._handle.storage.url!r})"

    @property
    def config(self) -> TableConfig:
        """The table's configuration, from hoodie.properties."""
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
        """The table's indexes: list, create, drop, validate, reshard."""
        from lakebed.services.indexing.indexes import Indexes

        return Indexes(self._handle, lambda: self._transactions, self._options)

    @cached_property
    def services(self) -> TableServices:
        """The table's services, such as compaction, clustering and cleaning: to schedule, execute, or run when due."""
        from lakebed.services.table_services import TableServices

        return TableServices(self._service_context, self._options, self._session)

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
        "snapshot", or "read_optimized" to read base files only, without log files.
        """
        with expiry_told(self._handle):
            return read_arrow(self._plan(columns, where, as_of, mode))

    @contextmanager
    def lease(self, as_of: object = None) -> Iterator[LeasedReader]:
        """A reader of one snapshot, the newest or the one at `as_of`, protected from cleaning until the block ends.

        The lease is a small file in the table, renewed in the background. Only lakebed's cleaning respects it; other
        engines clean by their own retention.
        """
        options = parse_write_options(self._options)
        ports = open_ports(self._handle.storage, options.lock)
        timing = choose_timing(ports, heartbeat_ms=options.heartbeat_ms, heartbeat_misses=options.heartbeat_misses)
        lease = take_lease(self._handle, ports, timing, as_of)
        try:
            yield LeasedReader(self._handle, lease, self._session)
        finally:
            lease.stop()

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
        with expiry_told(self._handle):
            return lookup_keys(self._handle.state(), keys, columns)

    def upsert(self, rows: object, *, partial: bool = False) -> WriteResult:
        """Inserts rows with new keys and updates the others; of rows with the same key, the table's ordering decides.

        Rows are an Arrow table, record batch or reader, a pandas frame, a list of dicts, or a Spark DataFrame. New
        columns are added to the table, and a null makes its column nullable. If `partial`, columns that the rows lack
        keep their stored values. Otherwise, as in all writes of whole rows, a missing column is an error, or null with
        the option `hoodie.write.set.null.for.missing.columns`.
        """
        return self._maintained(self._writes.upsert(rows, partial=partial))

    def insert(self, rows: object) -> WriteResult:
        """Appends rows without looking for their keys."""
        return self._maintained(self._writes.insert(rows))

    def bulk_insert(self, rows: object) -> WriteResult:
        """Appends rows to new files without looking for their keys: for bulk loads."""
        return self._maintained(self._writes.bulk_insert(rows))

    def overwrite(self, rows: object, *, whole_table: bool = False) -> WriteResult:
        """Replaces all rows of the partitions that occur in `rows`, or of the whole table."""
        return self._maintained(self._writes.overwrite(rows, whole_table=whole_table))

    def delete(self, keys: object) -> WriteResult:
        """Deletes rows, given as record keys (values of `_hoodie_record_key`) or as rows with the key columns."""
        return self._maintained(self._writes.delete(keys))

    def delete_partitions(self, partitions: str | Iterable[str]) -> WriteResult:
        """Deletes all rows of partitions, given as values of `_hoodie_partition_path`.

        Raises InvalidInputError, and deletes nothing, if the table has no files in one of them.
        """
        return self._maintained(self._writes.delete_partitions(partitions))

    def rollback(self, instant: str) -> None:
        """Rolls back the newest completed write."""
        rollbacks = self._transactions.rollbacks
        rollbacks.execute(rollbacks.schedule_completed(InstantTime(instant)))

    def savepoint(self, instant: str | None = None) -> InstantTime:
        """Keeps the table as of a write, by default the newest, readable until the savepoint is deleted; returns it."""
        from lakebed.services.savepoint import savepoint

        return savepoint(self._service_context, None if instant is None else InstantTime(instant))

    def delete_savepoint(self, instant: str) -> None:
        """Deletes the savepoint of a write."""
        from lakebed.services.savepoint import delete_savepoint

        delete_savepoint(self._service_context, InstantTime(instant))

    def restore(self, instant: str) -> ServiceResult:
        """Restores the table to its state after a write that has a savepoint, and rebuilds lost indexes.

        Indexes that cannot be rebuilt are listed in `missing` of the result; `doctor` says what that means.
        """
        from lakebed.services.restore import restore

        return restore(self._service_context, InstantTime(instant), indexes=parse_index_options(self._options))

    def doctor(self, repair: bool = False, *, quick: bool = False) -> tuple[Finding, ...]:
        """Finds what is wrong with the table, what it blocks, and how to repair it. Writes nothing unless `repair`.

        With `repair`, safe repairs are made, and each finding has the outcome. `quick` skips the comparison of indexes
        with all rows.
        """
        from lakebed.services.doctor.doctor import open_doctor

        doctor = open_doctor(self._handle.storage, self._options)
        try:
            return doctor.cure(quick=quick) if repair else doctor.examine(quick=quick)
        finally:
            self._handle.forget()

    def changes(
        self,
        since: object,
        until: object = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Rows written after `since` and up to `until`, by completion time, with their values as of `until`.

        Both are instants or times as in `to_arrow`; `since="earliest"` returns all rows. Deleted rows are left out.
        """
        with expiry_told(self._handle):
            return read_arrow(plan_changes(self._handle.state(), since, until, columns=columns, where=where))

    def explain(
        self,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: object = None,
        mode: str = "snapshot",
    ) -> Explanation:
        """Which files a read would open: which indexes were used, what they excluded, why others were not used."""
        return self._plan(columns, where, as_of, mode).explanation

    @cached_property
    def _transactions(self) -> Transactions:
        options = parse_write_options(self._options)
        ports = open_ports(self._handle.storage, options.lock)
        return open_transactions(
            ports,
            heartbeat_ms=options.heartbeat_ms,
            heartbeat_misses=options.heartbeat_misses,
            service_delay_minutes=options.service_delay_minutes,
        )

    @cached_property
    def _service_context(self) -> ServiceContext:
        from lakebed.services.values import ServiceContext

        return ServiceContext(self._handle, self._transactions, InProcess(), parse_write_options(self._options))

    def _maintained(self, result: WriteResult) -> WriteResult:
        """Runs the table services that a write made due; returns its result."""
        try:
            due = self._inline.due(self._handle.last_look, result.completed_at)
        except (
            LakebedError
        ) as error:  # The write has completed; a failure from here on must not look like a failed write.
            _LOG.warning("after a write: could not determine which table services are due: %s", error)
            return result
        if due:
            self.services.run_after_write(due)
        return result

    @cached_property
    def _inline(self) -> InlineServices:
        from lakebed.services.due import parse_inline_services

        return parse_inline_services(self._options)

    @cached_property
    def _writes(self) -> TableWrites:
        from lakebed.write.verbs import TableWrites

        options = parse_write_options(self._options)
        _ = self._inline  # Reports invalid options before anything is written.
        return TableWrites(self._handle, self._transactions, options)

    def _plan(self, columns: Sequence[str] | None, where: str | None, as_of: object, mode: str) -> ScanPlan:
        return plan_scan(self._handle.state(), columns=columns, where=where, as_of=as_of, mode=mode)

    def _session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        session = self._spark or SparkSession.getActiveSession()
        if session is None:
            raise InvalidInputError(
                "there is no Spark session",
                hint="pass one: open_table(path, spark=spark); lakebed.local_session() creates one",
            )
        return session


def handle_of(table: Table) -> TableHandle:
    """The handle of a table, for the packages above this one and for benchmarks. Not public."""
    return table._handle


class LeasedReader:
    """A reader of one snapshot, which is protected from cleaning within the block of `Table.lease`."""

    def __init__(self, handle: TableHandle, lease: Heartbeat, session: Callable[[], SparkSession]) -> None:
        self._handle = handle
        self._lease = lease
        self._session = session

    @property
    def as_of(self) -> InstantTime:
        """The completion time of the snapshot."""
        return self._lease.instant

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, mode: str = "snapshot"
    ) -> pa.Table:
        """The snapshot's rows, read in this process; arguments as in `Table.to_arrow`.

        Raises SnapshotExpiredError if this process was paused until the lease expired, and files were cleaned.
        """
        with expiry_told(self._handle, self._lease):
            return read_arrow(self._plan(columns, where, mode))

    def to_spark(
        self, columns: Sequence[str] | None = None, where: str | None = None, mode: str = "snapshot"
    ) -> DataFrame:
        """The snapshot's rows as a Spark DataFrame, which must be evaluated before the block ends."""
        from lakebed.read.spark import read_spark

        return read_spark(self._plan(columns, where, mode), self._session())

    def explain(
        self, where: str | None = None, columns: Sequence[str] | None = None, mode: str = "snapshot"
    ) -> Explanation:
        """Which files a read would open, and why."""
        return self._plan(columns, where, mode).explanation

    def _plan(self, columns: Sequence[str] | None, where: str | None, mode: str) -> ScanPlan:
        return plan_leased(self._handle, self._lease, columns, where, mode)
