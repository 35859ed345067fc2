"""`df.write.format("lakebed")`: Spark's workers stage rows as Arrow files, and one process on the driver writes them.

Spark calls `write` in a worker for each partition, then `commit` or `abort` in a separate process on the driver. The
instant begins and ends inside `commit`, because no other process lives long enough to renew its heartbeat. A job that
fails earlier has no instant, and its staged rows are swept later. `Table.upsert(df)` does more of the work on Spark.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakebed.api import Table, open_table
from lakebed.errors import InvalidInputError, LakebedError, StorageUnavailableError
from lakebed.index.keys import is_global, keys_are_indexed
from lakebed.index.names import new_table_words, words_of
from lakebed.model.config import TableConfig
from lakebed.model.words import TableType
from lakebed.options import WriteOptions, parse_table_options, parse_write_options, storage_options, warn_of_unknown
from lakebed.services.clustering.plan import parse_clustering_options
from lakebed.services.due import parse_inline_services
from lakebed.source.options import (
    PARTITIONS_TO_DELETE,
    TABLE_PROPERTIES,
    SaveOptions,
    check_agrees,
    check_consistent,
    parse_save_options,
)
from lakebed.storage import Storage, open_storage
from lakebed.table import TableState, open_handle
from lakebed.table.transactions import choose_timing, open_ports
from lakebed.timeline.config import has_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.ports import Ports
from lakebed.write.checks import check_options, check_writable
from lakebed.write.create import (
    TableSpec,
    check_free,
    create_table_files,
    metadata_partitions,
    parse_spec,
    remove_unused,
    table_properties,
)
from lakebed.write.handover import drop_rows, hand_over, kept_alive, new_folder, sweep_rows, take_over
from lakebed.write.rows.prepare import PreparePlan, plan_prepare
from lakebed.write.rows.schema import nullable_schema
from lakebed.write.rows.sources import arrow_batches, to_arrow_schema
from lakebed.write.writer import WriteResult

_LOG = logging.getLogger(__name__)
_SETTINGS = ("name", "merge_mode", "hive_style", "url_encoded", "timezone")
"""Table properties that `create_table` takes as options."""


@dataclass(frozen=True, slots=True)
class SaveJob:
    """One save, as tasks and the commit need it. Rows have `columns`, and are staged in `folder`.

    Rows for a table that does not exist yet are checked by `check` before they are staged.
    """

    path: str
    columns: pa.Schema
    folder: str
    is_overwrite: bool
    given: SaveOptions
    check: PreparePlan | None = None

    @property
    def storage(self) -> Storage:
        """The storage of the table."""
        return open_storage(self.path, storage_options(self.given.others))

    @property
    def world(self) -> tuple[Ports, Timing]:
        """Ports and timing for the heartbeats of the job."""
        given = parse_write_options(self.given.others)
        ports = open_ports(self.storage, given.lock)
        return ports, choose_timing(ports, heartbeat_ms=given.heartbeat_ms, heartbeat_misses=given.heartbeat_misses)


@dataclass(frozen=True)
class HandedOver(ds.WriterCommitMessage):
    """The message of a task to the driver: the path of its rows, None without rows."""

    path: str | None


class LakebedWriter(ds.DataSourceArrowWriter):
    """A save: the callbacks that Spark runs in workers and on the driver."""

    def __init__(self, job: SaveJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> HandedOver:
        """Stages the rows of a partition. Each attempt writes its own file; only that of the successful one is used."""
        job = self._job
        with kept_alive(*job.world, job.folder):
            return HandedOver(hand_over(job.storage, job.folder, job.columns, iterator, job.check))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Writes the rows in one commit."""
        storage, world = self._job.storage, self._job.world
        paths = [message.path for message in messages if isinstance(message, HandedOver) and message.path]
        with warnings.catch_warnings(), kept_alive(*world, self._job.folder):
            warnings.simplefilter("ignore")  # They were shown while the save was planned.
            result = _save(self._job, storage, paths)
        _LOG.info("%s", result)
        with suppress(StorageUnavailableError):  # The write has completed; the next sweep removes what is left.
            drop_rows(storage, self._job.folder)
            sweep_rows(*world)

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Removes all staged rows, including those of failed attempts."""
        del messages
        drop_rows(self._job.storage, self._job.folder)


def plan_save(options: Mapping[str, str], schema: object, *, overwrite: bool) -> SaveJob:
    """Plans a save, with all checks that need no rows."""
    path = options.get("path")
    if not path:
        raise InvalidInputError("no table path was given", hint='give its path: df.write.format("lakebed").save(path)')
    columns, _ = arrow_batches(to_arrow_schema(schema).empty_table())
    job = SaveJob(path, columns, new_folder(), overwrite, parse_save_options(options))
    parse_table_options(job.given.others)
    writes = parse_write_options(job.given.others)
    parse_inline_services(job.given.others)
    parse_clustering_options(job.given.others)
    warn_of_unknown(job.given.others)
    is_new = not has_config(job.storage)
    _find_operation(job, is_new=is_new)
    if is_new:
        return replace(job, check=_plan_first_rows(job, writes))
    _check_rows(job, _check_table(job), fills=writes.fills_missing)
    return job


def _plan_first_rows(job: SaveJob, writes: WriteOptions) -> PreparePlan:
    """How rows are prepared for a table that does not exist yet."""
    check_free(job.storage)
    spec = _plan_table(job)
    partitions = metadata_partitions(spec)
    if writes.index == "record" and not keys_are_indexed(partitions):
        raise InvalidInputError(
            "the option hoodie.index.type asks for the record index, but there is no record index in a new table",
            hint="add the option hoodie.metadata.record.index.enable=true, or leave hoodie.index.type out",
        )
    return plan_prepare(TableConfig(table_properties(spec, partitions)), spec.schema, job.columns)


def _save(job: SaveJob, storage: Storage, paths: Sequence[str]) -> WriteResult:
    if _create_if_missing(job, storage):
        try:
            return _write(job, storage, paths, is_new=True)
        except BaseException:
            with suppress(LakebedError):  # If this fails, an empty table remains, which the next save uses.
                remove_unused(_open_ports(job, storage))
            raise
    try:
        _check_table(job)
        return _write(job, storage, paths, is_new=False)
    except InvalidInputError:
        if has_config(storage) or not _create_if_missing(job, storage):
            raise
    # The save that created the table failed and removed it.
    return _write(job, storage, paths, is_new=True)


def _write(job: SaveJob, storage: Storage, paths: Sequence[str], *, is_new: bool) -> WriteResult:
    write = _find_operation(job, is_new=is_new)
    return write(open_table(job.path, options=job.given.others), take_over(storage, paths, job.columns))


def _open_ports(job: SaveJob, storage: Storage) -> Ports:
    return open_ports(storage, parse_write_options(job.given.others).lock)


def _create_if_missing(job: SaveJob, storage: Storage) -> bool:
    """Creates the table if it is missing; False if it exists, perhaps created by a concurrent save."""
    if has_config(storage):
        return False
    try:
        create_table_files(_open_ports(job, storage), _plan_table(job))
    except InvalidInputError:
        if not has_config(storage):
            raise
        return False
    return True


def _plan_table(job: SaveJob) -> TableSpec:
    """The table that the options describe."""
    said = job.given.properties
    if not said.get("key"):
        raise InvalidInputError(
            f"there is no table at {job.path}, and creating one needs a record key",
            hint=f"name the key columns in the option {job.given.option('key')}",
        )
    spec = parse_spec(
        job.storage.url,
        # Whether a column is nullable for Spark depends on how this frame was computed.
        nullable_schema(job.columns),
        said["key"],
        said.get("partition_by"),
        said.get("ordering"),
        "mor" if said.get("table_type") is TableType.MERGE_ON_READ else "cow",
        [index for index in new_table_words() if job.given.indexes.get(index)],
        {**job.given.others, **_settings(said)},
        {name: f"the option {job.given.option(name)}" for name in ("key", "partition_by", "ordering")},
    )
    partitions = metadata_partitions(spec)
    indexes = words_of(partitions, is_partitioned=spec.has_partitioned_index)
    check_consistent(job.given, TableConfig(table_properties(spec, partitions)), indexes)
    return spec


def _settings(said: Mapping[str, Any]) -> dict[str, str]:
    """Properties of a new table, as options of `create_table`."""
    named = {TABLE_PROPERTIES[name].spellings[0]: said[name] for name in _SETTINGS if name in said}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in named.items()}


def _check_table(job: SaveJob) -> TableState:
    """The current table; raises unless lakebed can write to it and it agrees with the options."""
    state = open_handle(job.path, storage_options(job.given.others)).state()
    indexes = words_of(state.config.metadata_partitions, is_partitioned=not is_global(state.definitions))
    check_agrees(job.given, state.config, indexes)
    check_writable(state)
    check_options(state, parse_write_options(job.given.others))
    return state


def _check_rows(job: SaveJob, state: TableState, *, fills: bool) -> None:
    if job.given.operation not in _BY_KEYS:
        plan_prepare(state.config, state.data_schema(state.latest), job.columns, fills=fills)


_Write = Callable[[Table, pa.RecordBatchReader], WriteResult]
_BY_KEYS = ("delete", "delete_partition")
_WRITES: Mapping[str, _Write] = {
    "upsert": Table.upsert,
    "insert": Table.insert,
    "bulk_insert": Table.bulk_insert,
    "delete": Table.delete,
    "insert_overwrite": Table.overwrite,
    "insert_overwrite_table": partial(Table.overwrite, whole_table=True),
}


def _find_operation(job: SaveJob, *, is_new: bool) -> _Write:
    """The write that the commit makes. Mode "overwrite" replaces all rows of the table."""
    operation = job.given.operation
    if operation in _BY_KEYS and (is_new or job.is_overwrite):
        raise InvalidInputError(
            f"the operation {operation} {'needs a table' if is_new else 'overwrites nothing'}",
            hint='save with mode("append") to an existing table',
        )
    if operation == "delete_partition":
        return _delete_partitions(job.given.partitions_to_delete)
    if job.is_overwrite and not is_new and operation != "insert_overwrite":
        operation = "insert_overwrite_table"
    return _WRITES[operation]


def _delete_partitions(partitions: Sequence[str]) -> _Write:
    if not partitions or any("*" in partition for partition in partitions):
        raise InvalidInputError(
            "the partitions to delete are not named",
            hint=f"give their paths, separated by commas, in the option {PARTITIONS_TO_DELETE}",
        )
    return lambda table, _: table.delete_partitions(partitions)
