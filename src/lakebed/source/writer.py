"""`df.write.format("lakebed")`: Spark's workers stage rows as Arrow files, one process on the driver writes them.

Spark calls `write` in a worker for each partition, then `commit` or `abort` in a process of its own on the driver. The
instant begins and ends inside `commit`: no other process lives long enough to keep its heartbeat up. So a job that
fails earlier has no instant, and the rows that it staged are nobody's. `Table.upsert(df)` leaves more of the work to
Spark.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakebed.api import Table, open_table
from lakebed.clock import SystemClock
from lakebed.errors import InvalidInputError, StorageUnavailableError
from lakebed.model.config import TableConfig
from lakebed.model.words import TableType
from lakebed.options import parse_table_options, parse_write_options, storage_options
from lakebed.services.due import parse_inline_services
from lakebed.source.options import PARTITIONS_TO_DELETE, PROPERTIES, SaveOptions, check_agrees, parse_save_options
from lakebed.storage import Storage, open_storage
from lakebed.table import TableState, open_handle
from lakebed.table.transactions import open_ports
from lakebed.timeline.config import has_config
from lakebed.write.checks import check_writable
from lakebed.write.create import INDEXES as CREATED_INDEXES
from lakebed.write.create import TableSpec, create_files, metadata_partitions, parse_spec, table_properties
from lakebed.write.handover import drop_rows, hand_over, new_folder, sweep_rows, take_over
from lakebed.write.inputs import arrow_batches, to_arrow_schema
from lakebed.write.prepare import plan_rows
from lakebed.write.writer import WriteResult

_LOG = logging.getLogger(__name__)
_SETTINGS = ("name", "merge_mode", "hive_style", "url_encoded", "timezone")
"""Properties that create_table takes as options."""


@dataclass(frozen=True, slots=True)
class SaveJob:
    """One save: all that tasks and the commit need to know. Rows have `columns`, and are staged in `folder`."""

    path: str
    columns: pa.Schema
    folder: str
    is_overwrite: bool
    given: SaveOptions

    @property
    def storage(self) -> Storage:
        """The files of the table."""
        return open_storage(self.path, storage_options(self.given.others))


@dataclass(frozen=True)
class HandedOver(ds.WriterCommitMessage):
    """What a task tells the driver: where its rows are, if it has any."""

    path: str | None


class LakebedWriter(ds.DataSourceArrowWriter):
    """A save, in the processes where Spark runs its parts."""

    def __init__(self, job: SaveJob) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> HandedOver:
        """Stages the rows of a partition. Each attempt makes a file of its own; that of the one that counts is told."""
        return HandedOver(hand_over(self._job.storage, self._job.folder, self._job.columns, iterator))

    def commit(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Writes the rows in one commit."""
        storage = self._job.storage
        paths = [message.path for message in messages if isinstance(message, HandedOver) and message.path]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They were shown when the save was planned.
            result = _save(self._job, storage, paths)
        _LOG.info("%s", result)
        with suppress(StorageUnavailableError):  # The write has taken place: what is left goes with the next sweep.
            drop_rows(storage, self._job.folder)
            sweep_rows(storage, SystemClock())

    def abort(self, messages: list[ds.WriterCommitMessage | None]) -> None:
        """Removes what was staged, by attempts that failed as well."""
        del messages
        drop_rows(self._job.storage, self._job.folder)


def plan_save(options: Mapping[str, str], schema: object, *, overwrite: bool) -> SaveJob:
    """What `save` is to do, checked as far as it can be before there are rows."""
    path = options.get("path")
    if not path:
        raise InvalidInputError("no table was named", hint='give its path: df.write.format("lakebed").save(path)')
    columns, _ = arrow_batches(to_arrow_schema(schema).empty_table())
    job = SaveJob(path, columns, new_folder(), overwrite, parse_save_options(options))
    parse_table_options(job.given.others)
    parse_write_options(job.given.others)
    parse_inline_services(job.given.others)
    is_new = not has_config(job.storage)
    if is_new:
        _plan_table(job)
    else:
        _check_rows(job, _check_table(job))
    _find_operation(job, is_new=is_new)
    return job


def _save(job: SaveJob, storage: Storage, paths: Sequence[str]) -> WriteResult:
    is_new = _create_if_missing(job, storage)
    if not is_new:
        _check_table(job)
    write = _find_operation(job, is_new=is_new)
    return write(open_table(job.path, options=job.given.others), take_over(storage, paths, job.columns))


def _create_if_missing(job: SaveJob, storage: Storage) -> bool:
    """Whether this save has made the table; another one may have been faster, and then it is as theirs asked for."""
    if has_config(storage):
        return False
    try:
        create_files(open_ports(storage, parse_write_options(job.given.others).lock), _plan_table(job))
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
            f"there is no table at {job.path}, and to make one its key must be known",
            hint=f"name the key columns in the option {PROPERTIES['key'].spellings[0]}",
        )
    spec = parse_spec(
        job.storage.url,
        job.columns,
        said["key"],
        said.get("partition_by"),
        said.get("ordering"),
        "mor" if said.get("table_type") is TableType.MERGE_ON_READ else "cow",
        [index for index in CREATED_INDEXES if job.given.indexes.get(index)],
        {**job.given.others, **_settings(said)},
    )
    partitions = metadata_partitions(spec)
    check_agrees(
        job.given, TableConfig(table_properties(spec, partitions)), _index_names(partitions, spec.has_partitioned_index)
    )
    return spec


def _settings(said: Mapping[str, Any]) -> dict[str, str]:
    """What is said of a new table, as the options that create_table takes."""
    named = {PROPERTIES[name].spellings[0]: said[name] for name in _SETTINGS if name in said}
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in named.items()}


def _check_table(job: SaveJob) -> TableState:
    """The table as it stands, if lakebed writes to it and it is as the options say."""
    state = open_handle(job.path, storage_options(job.given.others)).state()
    definition = state.definitions.get("record_index")
    is_partitioned = definition is not None and definition.is_partitioned
    check_agrees(job.given, state.config, _index_names(state.config.metadata_partitions, is_partitioned))
    check_writable(state)
    return state


def _check_rows(job: SaveJob, state: TableState) -> None:
    if job.given.operation not in _BY_KEYS:
        fills = parse_write_options(job.given.others).fills_missing
        plan_rows(state.config, state.data_schema(state.latest), job.columns, fills=fills)


def _index_names(partitions: Iterable[str], is_partitioned: bool) -> frozenset[str]:
    """Partitions of the metadata table by the names that indexes have for create_table."""
    names = {"bloom_filters": "bloom", "record_index": "record_partitioned" if is_partitioned else "record"}
    return frozenset(names.get(partition, partition) for partition in partitions)


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
    """What the commit does. Mode overwrite puts the rows in the place of all that the table has."""
    operation = job.given.operation
    if operation in _BY_KEYS and (is_new or job.is_overwrite):
        raise InvalidInputError(
            f"the operation {operation} {'needs a table' if is_new else 'overwrites nothing'}",
            hint='save with mode("append") to a table that is there',
        )
    if operation == "delete_partition":
        return _delete_partitions(job.given.partitions_to_delete)
    if job.is_overwrite and not is_new and operation != "insert_overwrite":
        operation = "insert_overwrite_table"
    return _WRITES[operation]


def _delete_partitions(partitions: Sequence[str]) -> _Write:
    if not partitions or any("*" in partition for partition in partitions):
        raise InvalidInputError(
            "which partitions are to be deleted is not said",
            hint=f"give their paths, with commas between them, in the option {PARTITIONS_TO_DELETE}",
        )
    return lambda table, _: table.delete_partitions(partitions)
