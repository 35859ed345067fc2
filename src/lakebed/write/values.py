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
"""Column of prepared rows: whether a row is a delete. Absent if none is."""
POSITION = "lakebed.position"
"""Column of rows for a file group: the position of the key in the base file; -1 if unknown."""
DELETED = -2
"""Position of a key that log files have deleted. Its row is new, unless a delete has a greater ordering value."""
IS_INSERT = "lakebed.is_insert"
"""Column of rows for a file group: whether the key is new to it."""


NOT_COUNTED: Mapping[str, Any] = {
    **NO_LOGS,
    "numUpdates": 0,
    "runtimeStats": {"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": 0},
}
"""Fields of a write stat that Hudi sets to zero outside compactions, and run times, which are not measured."""


class TaskRows(Protocol):
    """Prepared rows of a task, in memory or staged."""

    @property
    def count(self) -> int:
        """Number of rows."""
        ...

    def read(self) -> pa.Table:
        """The rows: record key, partition path, data columns, and `lakebed.is_delete` if some are deletes."""
        ...


@dataclass(frozen=True, slots=True)
class InMemory:
    """Rows in memory."""

    table: pa.Table

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def read(self) -> pa.Table:
        """The rows."""
        return self.table


@dataclass(frozen=True, slots=True)
class FileSizing:
    """Sizes and encoding of data files."""

    target_bytes: int = 120 << 20
    small_bytes: int = 100 << 20
    compression: str = "snappy"
    log_format: Literal["avro", "parquet"] = "parquet"
    record_positions: bool = True


@dataclass(frozen=True, slots=True)
class WriteContext:
    """What all tasks of one write share.

    `schema` has the table's data columns after this write; `avro_json` is the Avro schema of the five meta columns and
    these. `stats_columns`, which may include meta columns, get column statistics; empty without such an index.
    `entry_ordering` is the ordering field whose values entries of the record index carry. A partitioned record index
    gives a new data partition `partition_shards`. Tasks collect the values `wanted` by other indexes.
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
    """Cache of column encodings, shared by the tasks of this process."""

    @property
    def expected(self) -> Expected:
        """The indexes that the file facts of this write are enough for."""
        partitions = (*self.config.metadata_partitions, *self.config.metadata_partitions_inflight)
        gathered = {each.partition: each.columns for each in self.wanted}
        return Expected(frozenset(partitions), self.stats_columns, self.entry_ordering, self.partition_shards, gathered)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Rows for one file group, at most one per key. Without a `file_slice` the file group is new.

    `token` is unique per attempt: a task that runs twice writes two files, and the commit names one of them.
    `has_inserts`: some keys are new to the file group. `is_blind`: rows are added without looking up their keys.
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
    """The context of a write of rows with these `columns`; None for writes without rows of their own."""
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
