"""Values that pass between the phases of a write, and what all tasks share. All are picklable, for Spark workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

from lakebed.index.kind import Expected
from lakebed.index.kinds import wanted_of
from lakebed.index.wanted import Wanted
from lakebed.index.written import expect
from lakebed.model.commit import NO_LOGS
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.index import EntryOrdering
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.read.snapshot import counted_instants
from lakebed.storage import Storage
from lakebed.table import TableState
from lakebed.view.blocks import CountedInstants
from lakebed.write.checks import check_writable
from lakebed.write.files.encoding import Encodings
from lakebed.write.rows.schema import declared_schema, evolve_schema

IS_DELETE = "lakebed.is_delete"
"""The column of prepared rows that says which of them are deletes; absent if none is."""
POSITION = "lakebed.position"
"""The column of rows for a file group that says where their keys are in the base file; -1 if that is not known."""
DELETED = -2
"""The position of a key that log files of the file group have deleted: a row of it is new, unless they outlive it."""
IS_INSERT = "lakebed.is_insert"
"""The column of rows for a file group that says which keys are new to it."""


NOT_COUNTED: Mapping[str, Any] = {
    **NO_LOGS,
    "numUpdates": 0,
    "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": 0},
}
"""Fields of a write stat that Hudi fills with zeros outside compactions, and run times, which we do not take."""


class TaskRows(Protocol):
    """Prepared rows, wherever they lie."""

    @property
    def count(self) -> int:
        """How many they are."""
        ...

    def read(self) -> pa.Table:
        """The rows: record key, partition path, data columns, and `lakebed.is_delete` if some are deletes."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows that are at hand."""

    table: pa.Table

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.table.num_rows)

    def read(self) -> pa.Table:
        """The rows."""
        return self.table


@dataclass(frozen=True, slots=True)
class FileSizing:
    """How data files are cut and encoded."""

    target_bytes: int = 120 << 20
    small_bytes: int = 100 << 20
    compression: str = "snappy"
    log_format: Literal["avro", "parquet"] = "parquet"
    record_positions: bool = True


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all tasks of one write share.

    `schema` has the table's data columns after this write; `avro_json` declares them after the five meta columns.
    `stats_columns`, meta columns among them, get column statistics; none if the table keeps no such index. Entries of
    the record index carry the values of `entry_ordering`, if they do; one that is partitioned gives a new data
    partition `partition_shards`. Tasks gather of the rows of each file what other indexes have `wanted`.
    """

    storage: Storage
    config: TableConfig
    schema: pa.Schema
    avro_json: str
    instant: InstantTime
    stats_columns: tuple[str, ...]
    counts: CountedInstants
    files: FileSizing = field(default_factory=FileSizing)
    entry_ordering: EntryOrdering | None = None
    partition_shards: int = 1
    wanted: tuple[Wanted, ...] = ()
    encodings: Encodings = field(default_factory=dict, repr=False, compare=False)
    """How columns are encoded, as tasks in this process find it."""

    @property
    def expected(self) -> Expected:
        """The indexes that files of this write have facts for."""
        partitions = (*self.config.metadata_partitions, *self.config.metadata_partitions_inflight)
        gathered = {each.partition: each.columns for each in self.wanted}
        return Expected(frozenset(partitions), self.stats_columns, self.entry_ordering, self.partition_shards, gathered)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Rows for one file group, at most one per key. Without a `file_slice` the file group is new.

    `token` is unique per attempt, so that a task that runs twice makes two files, of which the commit names one.
    `has_inserts`: some keys are new to the file group. `is_blind`: rows are added without looking for their keys.
    """

    context: WriteContext
    number: int
    group: FileGroupId
    file_slice: FileSlice | None
    rows: TaskRows
    token: str
    has_inserts: bool = False
    is_blind: bool = False


def write_context(
    state: TableState, instant: InstantTime, options: WriteOptions, columns: pa.Schema | None = None
) -> WriteContext:
    """The context of a write of rows with these `columns`, none if it brings no rows of its own."""
    check_writable(state)
    schema = evolve_schema(state.data_schema(state.latest), columns if columns is not None else pa.schema([]))
    return make_context(state, instant, schema, options)


def make_context(state: TableState, instant: InstantTime, schema: pa.Schema, options: WriteOptions) -> WriteContext:
    """The context of a write whose files have the data columns of `schema`."""
    expected = expect(state.config, state.definitions)
    return WriteContext(
        storage=state.storage,
        config=state.config,
        schema=schema,
        avro_json=declared_schema(schema, state.config, meta_columns=True),
        instant=instant,
        stats_columns=expected.columns,
        counts=counted_instants(state.latest),
        files=FileSizing(
            options.target_file_bytes,
            options.small_file_bytes,
            options.compression,
            options.log_format,  # type: ignore[arg-type]
            options.record_positions,
        ),
        entry_ordering=expected.ordering,
        partition_shards=options.partition_shards,
        wanted=wanted_of(sorted(expected.partitions), state.definitions),
    )
