"""The data plane that users get: rows as Arrow tables, files as Apache Hudi spells them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from lakebed.commit.entries import NOTHING_AHEAD, Ahead, CommitEntries
from lakebed.commit.prepared import NewKeys, PreparedCommit, StagedKeys
from lakebed.engine.engines import Engine, InProcess
from lakebed.format.properties import PARTITION_METAFILE, PartitionMetafile, encode_partition_metafile
from lakebed.index.facts import FileFacts
from lakebed.index.key_batches import KeyFiles, NewTables, ShardCache, default_cache
from lakebed.index.kinds import kind_of
from lakebed.index.upkeep import maintain
from lakebed.model.commit import CommitMetadata, stats_by_partition
from lakebed.model.instant import InstantTime
from lakebed.options import WriteOptions
from lakebed.read.file_slice import SliceTask
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file
from lakebed.table import TableState
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions
from lakebed.write.checks import check_writable
from lakebed.write.committing import keys_of_groups, read_hidden, recheck, scan_keys
from lakebed.write.execute import RunStaged, delete_strays, key_shards, run_write_tasks
from lakebed.write.files.encoding import trim_scratch
from lakebed.write.files.log import begin_lot
from lakebed.write.files.log_blocks import LogLot
from lakebed.write.metrics import METRICS, probe_metrics
from lakebed.write.new_keys import prepare_entries
from lakebed.write.plan import WritePlan
from lakebed.write.planner import WriteRequest, plan_write
from lakebed.write.rows.schema import declared_schema
from lakebed.write.values import WriteContext, WriteTask


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """The tasks of a write and what they share. Rows for log files are being got ready as a `lot`."""

    context: WriteContext
    plan: WritePlan
    lot: Future[LogLot | None]

    @property
    def declaration(self) -> CommitMetadata:
        """The write set, for the inflight file."""
        return self.plan.declaration


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of a write, what was made `ahead` for its commit section, and the keys of a large write.

    With `uses_tables`, keys were found in key tables.
    """

    facts: tuple[FileFacts, ...]
    engine: Engine
    uses_tables: bool = False
    ahead: Ahead = NOTHING_AHEAD
    keys: KeyFiles | None = None
    knows_keys: bool = True


class ColumnarPlane:
    """Writes of one process to one table, as far as they are work on rows."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._cache: ShardCache = default_cache()

    def check(self, state: TableState) -> None:
        """Raises for a table that a write would leave wrong."""
        check_writable(state)

    def plan(self, state: TableState, instant: InstantTime, request: WriteRequest) -> PlannedWrite:
        """Decides which rows go to which file group, and begins to get them ready."""
        context, plan = plan_write(state, instant, request, self._options, self._cache)
        return PlannedWrite(context, plan, begin_lot(plan.appends))

    def execute(self, state: TableState, planned: PlannedWrite) -> WrittenFiles:
        """Stores the files of a write, and the metafiles of new partitions before them."""
        context, plan = planned.context, planned.plan
        _create_partitions(state, context, {task.group.partition for task in plan.tasks})
        try:
            written = _run_staged(state, planned) if plan.shelf is not None else self._run(state, planned)
        finally:
            trim_scratch()
        if not isinstance(plan.engine, InProcess):  # Which runs no task twice.
            delete_strays(context, written.facts)
        return written

    def _run(self, state: TableState, planned: PlannedWrite) -> WrittenFiles:
        context, plan = planned.context, planned.plan
        # Whoever used key tables to find keys will do so again.
        tables = NewTables(self._cache) if plan.uses_tables else None
        facts, keys = run_write_tasks(plan, planned.lot, partial(prepare_entries, state, context, plan, tables))
        return WrittenFiles(facts, plan.engine, plan.uses_tables, Ahead(keys, tables))

    def prepare(
        self, state: TableState, planned: PlannedWrite, written: WrittenFiles, times: Mapping[str, int]
    ) -> PreparedCommit:
        """The commit of the files, as a value."""
        context, plan = planned.context, planned.plan
        schema = declared_schema(context.schema, context.config, meta_columns=False)
        metadata = CommitMetadata(
            write_stats=stats_by_partition(file.stat for file in written.facts),
            replaced_file_ids=plan.replaced,
            operation=plan.operation.name,
            extra_metadata={"schema": schema, METRICS: json.dumps({**times, **probe_metrics(plan.counts)})},
        )
        is_read = plan.shelf is None and _has_key_index(state)  # Tasks of a large write have read them.
        return PreparedCommit(
            context.instant,
            plan.operation.action(context.config),
            metadata,
            plan.write_set,
            frozenset(instant.requested_at for instant in state.timeline.commits()),
            context.expected,
            written.facts,
            columns=state.data_schema(state.latest),
            replaced=plan.replaced_groups,
            hidden_keys=keys_of_groups(state, plan.replaced_groups, plan.engine) if is_read else (),
            key_files=written.keys,
            new_keys=_new_keys(plan),
            knows_keys=written.knows_keys,
            # Late rows among updates are told by the index alone.
            keeps_current=plan.counts is not None or not plan.operation.finds_keys,
        )

    def entries(self, state: TableState, prepared: PreparedCommit, written: WrittenFiles | None) -> CommitEntries:
        """Writes what the commit adds to the metadata table; without `written`, another process had prepared it."""
        engine, ahead = (written.engine, written.ahead) if written is not None else (InProcess(), NOTHING_AHEAD)
        return CommitEntries(state, prepared, ahead, partial(read_hidden, state, prepared, engine))

    def recheck(
        self, state: TableState, prepared: PreparedCommit, written: WrittenFiles | None, section: Section
    ) -> None:
        """Raises if other writes changed the columns, or inserted keys that are new to this one too."""
        recheck(state, prepared, section, self._cache, InProcess() if written is None else written.engine)

    def keep(self, storage: Storage, written: WrittenFiles, completed_at: InstantTime) -> None:
        """Caches key tables of the entries that the write added."""
        if written.ahead.tables is not None:
            written.ahead.tables.keep(storage, completed_at)

    def maintain(self, transactions: Transactions, written: WrittenFiles) -> None:
        """Compacts, cleans and archives the metadata table as far as that is due."""
        cache = self._cache if written.uses_tables else None
        maintain(transactions, InProcess(), self._options.metadata_log_blocks, cache)


def _run_staged(state: TableState, planned: PlannedWrite) -> WrittenFiles:
    """Runs the tasks of a large write, and scans of the keys that it hides. Keys stay in files."""
    context, plan = planned.context, planned.plan
    assert plan.shelf is not None, "its rows are staged"
    shards = key_shards(state, shards_of_new=context.partition_shards)
    hidden = scan_keys(state, plan.replaced_groups) if shards is not None else ()
    tasks: list[WriteTask | SliceTask] = [*plan.tasks, *hidden]
    results = plan.engine.map(tasks, RunStaged(plan.shelf, shards))
    return WrittenFiles(
        tuple(file for result in results for file in result.files),
        plan.engine,
        plan.uses_tables,
        keys=KeyFiles(plan.shelf, tuple(stored for result in results for stored in result.keys)),
        knows_keys=shards is not None,
    )


def _new_keys(plan: WritePlan) -> NewKeys | None:
    if isinstance(plan.new_keys, tuple):
        assert plan.shelf is not None, "its rows are staged"
        return StagedKeys(plan.shelf, plan.new_keys)
    return plan.new_keys


def _create_partitions(state: TableState, context: WriteContext, partitions: Iterable[str]) -> None:
    """Marks folders as partitions before the first file lies in them."""
    for partition in sorted(partitions):
        if not state.files.get(partition):
            depth = len(partition.split("/")) if partition else 0
            metafile = PartitionMetafile(context.instant, depth)
            path = "/".join(filter(None, (partition, PARTITION_METAFILE)))
            create_file(context.storage, path, encode_partition_metafile(metafile, date=context.instant))


def _has_key_index(state: TableState) -> bool:
    """Whether there is an index of record keys, ready or being built."""
    config = state.config
    return any(kind_of(p).wants_keys for p in (*config.metadata_partitions, *config.metadata_partitions_inflight))
