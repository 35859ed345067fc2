"""Writes to one table: begin, plan, write, commit. What fails leaves nothing behind that readers see."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakebed.commit.commit import commit
from lakebed.commit.entries import Ahead
from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import Engine, InProcess
from lakebed.engine.exchange import lots
from lakebed.engine.randomness import new_file_id
from lakebed.engine.threads import shared_threads
from lakebed.errors import CommitUnknownError, LakebedError, WriteConflictError
from lakebed.format.partition_metafile import PARTITION_METAFILE, PartitionMetafile, encode_partition_metafile
from lakebed.index.facts import FileFacts
from lakebed.index.kinds import kind_of
from lakebed.index.record.current_entries import are_current
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.ordering import find_ordering
from lakebed.index.record.prepared_keys import PreparedKeys
from lakebed.index.record.probe import RECORD_INDEX, record_index_files
from lakebed.index.record.shard_cache import ShardCache, default_cache
from lakebed.index.record.stored_keys import KeyFiles
from lakebed.index.upkeep import maintain
from lakebed.metadata import MetadataTable
from lakebed.metadata.upkeep.maintenance import is_due
from lakebed.model.commit import CommitMetadata, stats_by_partition
from lakebed.model.index import EntryOrdering
from lakebed.model.instant import InstantTime
from lakebed.model.words import RECORD_KEY, State, TableType
from lakebed.options import WriteOptions
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import plan_slices
from lakebed.storage import Requests
from lakebed.storage.confirm import create_file
from lakebed.table import TableHandle, TableState
from lakebed.timeline import Timeline
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions
from lakebed.write.checks import check_schema, check_writable
from lakebed.write.context import write_context
from lakebed.write.early_keys import prepare_entries
from lakebed.write.execute import RunStaged, delete_strays, hidden_keys, key_shards, run_write_tasks
from lakebed.write.files.scratch import trim_scratch
from lakebed.write.metrics import METRICS, Phases, probe_metrics, uses_tables
from lakebed.write.new_keys import check_new_keys
from lakebed.write.operations import DELETE_PARTITION, Operation
from lakebed.write.plan import (
    NO_SPACES,
    Finder,
    TagRule,
    WritePlan,
    find_in_files,
    key_scans,
    plan_rows,
    replaced_groups,
)
from lakebed.write.room import Room, find_room
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.rows.schema import declared_schema
from lakebed.write.staged_plan import plan_staged
from lakebed.write.staging import Prepared, RowSource, Staged
from lakebed.write.tag.buckets import plan_split
from lakebed.write.tag.index import KeyIndex, tag_by_index
from lakebed.write.tag.staged import TaggedLot, TagLot, tag_in_worker
from lakebed.write.tag.window import tag_in_window
from lakebed.write.values import WriteContext, WriteTask

_LOG = logging.getLogger(__name__)
_LOT_BYTES = 64 << 20
"""Rows that a task of a large write tags at once, unless those of one bucket are more."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: its instant, how many rows, the files that it made, and what it cost.

    `inserted` and `deleted` rows were not there before, or are not there after it. An update that turns out to be older
    than what is stored is not among the `updated` of a copy-on-write table; of a merge-on-read table it is, as only
    readers find that out. `jobs` are Spark jobs; `requests` those of this process to the store, up to the commit.
    `metrics` has milliseconds by phase and, if keys were found through the record index, how many were asked for, were
    found, and what that took.
    """

    instant: InstantTime
    completed_at: InstantTime
    operation: str
    inserted: int
    updated: int
    deleted: int
    files: tuple[str, ...] = field(repr=False)
    jobs: int = 0
    requests: Requests = field(default_factory=Requests, repr=False)
    metrics: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class _Made:
    """What a write has made before it commits: its files, keys of a large one, and what is on its way to an index."""

    files: tuple[FileFacts, ...] = ()
    keys: KeyFiles | None = None
    tables: NewTables | None = None
    prepared: PreparedKeys | None = None
    knows_keys: bool = True


class Writer:
    """Writes of one process to one table."""

    def __init__(self, handle: TableHandle, transactions: Transactions, options: WriteOptions) -> None:
        self._handle = handle
        self._transactions = transactions
        self._options = options
        self._cache = default_cache()

    def write_rows(
        self, source: RowSource, columns: pa.Schema, operation: Operation, rule: TagRule, arrangement: Arrangement
    ) -> WriteResult:
        """Writes prepared rows whose data columns are `columns`."""

        def plan(state: TableState, instant: InstantTime) -> tuple[WriteContext, WritePlan]:
            given = source(instant, plan_split(state, operation, rule, arrangement))
            context = write_context(state, instant, self._options, _settled(columns, given.complete))
            return context, plan_given(state, context, given)

        def plan_given(state: TableState, context: WriteContext, given: Prepared | Staged) -> WritePlan:
            scans = plan_slices(state, state.latest, state.latest_slices, columns=None, where=None, is_latest=True)
            slices = tuple(scan.file_slice for scan in scans.tasks)
            if isinstance(given, Staged):
                tagged = self._tag_lots(given, state, scans.tasks, operation, rule, arrangement)
                room = find_room(state, operation, context, slices, rows_bytes=given.bytes, rows=given.rows)
                return plan_staged(
                    given, tagged, operation, context, slices, arrangement, room=room, new_file_id=new_file_id
                )
            rows = arrangement.whole(given.rows, context.instant)
            room = find_room(state, operation, context, slices, rows_bytes=rows.nbytes, rows=rows.num_rows)
            find = self._finder(state, scans.tasks, InProcess(), rule, room=room)
            return plan_rows(rows, operation, context, slices, InProcess(), find, room=room, new_file_id=new_file_id)

        return self._run(operation, plan)

    def _tag_lots(
        self,
        staged: Staged,
        state: TableState,
        scans: Sequence[SliceTask],
        operation: Operation,
        rule: TagRule,
        arrangement: Arrangement,
    ) -> Sequence[TaggedLot]:
        """Staged rows, one per key and with the slices that hold it; none if they can be written as they are."""
        if not operation.finds_keys and not arrangement.combines:
            return ()
        find = self._finder(state, scans, InProcess(1), rule, travels=True) if operation.finds_keys else None
        return staged.engine.map(lots(staged.files, _LOT_BYTES), TagLot(staged.shelf, arrangement, find))

    def delete_partitions(self, partitions: Iterable[str]) -> WriteResult:
        """Hides every file group of partitions, given as their paths."""
        wanted = set(partitions)

        def plan(state: TableState, instant: InstantTime) -> tuple[WriteContext, WritePlan]:
            replaced = replaced_groups(state.latest_slices, wanted)
            return write_context(state, instant, self._options), WritePlan(DELETE_PARTITION, (), replaced, InProcess())

        return self._run(DELETE_PARTITION, plan)

    def _finder(
        self,
        state: TableState,
        scans: Sequence[SliceTask],
        engine: Engine,
        rule: TagRule,
        *,
        travels: bool = False,
        room: Room | None = None,
    ) -> Finder:
        """What finds keys; one that `travels` to workers is picklable."""
        if not rule.by_index:
            # Log files do not tell which of their rows are new: there keys are always looked for.
            is_merged = state.config.table_type is TableType.COPY_ON_WRITE
            spaces = room.spaces if room is not None and is_merged else NO_SPACES
            return partial(find_in_files, scans=key_scans(scans), engine=engine, rule=rule, spaces=spaces)
        if not isinstance(state.metadata, MetadataTable) or not state.metadata.has(RECORD_INDEX):
            raise WriteConflictError("the record index was dropped while the write began", hint="run the write again")
        index = KeyIndex(state.metadata, state.config, scans, engine, self._cache, rule.moves, _ordering(state))
        definition = state.definitions.get(RECORD_INDEX)
        window = definition.window if definition is not None else None
        if travels:
            files = replace(index, metadata=record_index_files(state.metadata))
            return partial(tag_in_worker, index=files, window=window)
        if window is not None:
            return partial(tag_in_window, index=index, window=window, everywhere=rule.everywhere)
        return partial(tag_by_index, index=index, everywhere=rule.everywhere)

    def _run(self, operation: Operation, make_plan: _Planner) -> WriteResult:
        before = self._handle.storage.counts.snapshot()
        check_writable(self._handle.last_look)
        attempt = self._transactions.begin(operation.action(self._handle.config))
        try:
            with shared_threads():
                result = self._write(attempt, make_plan)
            result = replace(result, requests=self._handle.storage.counts.snapshot() - before)
        except CommitUnknownError:
            attempt.heartbeat.rest()  # It may have taken place: nothing may be deleted. If not, others find it dead.
            raise
        except BaseException:
            self._transactions.abandon(attempt)
            raise
        finally:
            trim_scratch()
        self._maintain(attempt, self._cache if uses_tables(result.metrics) else None)
        return result

    def _write(self, attempt: Attempt, make_plan: _Planner) -> WriteResult:
        phases = Phases()
        state = self._state_of(attempt)
        context, plan = make_plan(state, attempt.instant)
        phases.end("plan")
        made = self._execute(attempt, state, context, plan)
        phases.end("write")
        return self._commit(attempt, state, context, plan, made, phases)

    def _state_of(self, attempt: Attempt) -> TableState:
        """The table as the attempt has seen it last; under the lock, so it need not be looked at again."""
        if attempt.look is None:
            return self._handle.state()
        return self._handle.state_at(attempt.look, attempt.in_state(State.REQUESTED))

    def _maintain(self, attempt: Attempt, cache: ShardCache | None) -> None:
        """Looks after the metadata table. The write has taken place: what goes wrong here is the next one's to do."""
        look = attempt.look
        assert look is not None, "it is there once the attempt has completed"
        log_blocks, timeline = self._options.metadata_log_blocks, Timeline.of(look.metadata_instants)
        is_maintained = bool(look.config.metadata_partitions) and is_due(timeline, log_blocks)
        self._handle.state_at(look, is_maintained=is_maintained)
        if not is_maintained:
            return
        try:
            maintain(self._transactions, InProcess(), log_blocks, cache)
        except LakebedError as error:
            _LOG.warning("the metadata table was not maintained: %s", error)

    def _execute(self, attempt: Attempt, state: TableState, context: WriteContext, plan: WritePlan) -> _Made:
        """Says what a write is about to do, and does it: its files, and what its commit is to have of them."""

        def declare() -> None:
            self._transactions.declare(attempt, plan.declaration)
            _create_partitions(state, context, {task.group.partition for task in plan.tasks})

        made = _Made()
        if plan.shelf is None:
            # Whoever used key tables to find keys will do so again.
            made.tables = NewTables(self._cache) if plan.counts is not None and plan.counts.uses_tables else None

            def prepare() -> None:
                made.prepared = prepare_entries(state, context, plan, made.tables)

            made.files = run_write_tasks(plan.tasks, plan.engine, declare, prepare)
        else:
            declare()
            shards = key_shards(state, shards_of_new=context.partition_shards)
            run, made.knows_keys = RunStaged(plan.shelf, shards), shards is not None
            tasks: list[WriteTask | SliceTask] = [*plan.tasks, *(_hidden_scans(state, plan) if made.knows_keys else ())]
            results = plan.engine.map(tasks, run)
            made.files = tuple(file for result in results for file in result.files)
            made.keys = KeyFiles(plan.shelf, tuple(stored for result in results for stored in result.keys))
        if not isinstance(plan.engine, InProcess):  # Which runs no task twice.
            delete_strays(context, made.files)
        return made

    def _commit(
        self,
        attempt: Attempt,
        state: TableState,
        context: WriteContext,
        plan: WritePlan,
        made: _Made,
        phases: Phases,
    ) -> WriteResult:
        written = made.files
        schema = declared_schema(context.schema, context.config, meta_columns=False)
        metrics = {**phases.milliseconds, **probe_metrics(plan.counts)}
        metadata = CommitMetadata(
            write_stats=stats_by_partition(file.stat for file in written),
            replaced_file_ids=plan.replaced,
            operation=plan.operation.name,
            extra_metadata={"schema": schema, METRICS: json.dumps(metrics)},
        )
        seen = frozenset(instant.requested_at for instant in state.timeline.commits())
        prepared = PreparedCommit(
            attempt.instant,
            metadata,
            plan.write_set,
            seen,
            context.expected,
            written,
            replaced=plan.replaced_groups,
            hidden_keys=_replaced_keys(state, plan) if _has_key_index(state) else (),
            key_files=made.keys,
            knows_keys=made.knows_keys,
            # Late rows among updates are told by the index alone.
            keeps_current=plan.counts is not None or not plan.operation.finds_keys,
        )
        completed_at = commit(
            self._transactions,
            attempt,
            prepared,
            state,
            check=self._last_checks(state, plan),
            ahead=Ahead(made.prepared, made.tables),
            hidden_keys=lambda: _replaced_keys(state, plan),
        )
        if made.tables is not None:
            self._keep_tables(attempt, made.tables)
        phases.end("commit")
        return WriteResult(
            instant=attempt.instant,
            completed_at=completed_at,
            operation=plan.operation.name,
            inserted=sum(file.stat.num_inserts for file in written),
            updated=sum(file.stat.num_updates for file in written),
            deleted=sum(file.stat.num_deletes if file.deleted is None else file.deleted for file in written),
            files=tuple(file.stat.path for file in written),
            metrics=metrics | phases.milliseconds,
        )

    def _keep_tables(self, attempt: Attempt, tables: NewTables) -> None:
        assert attempt.look is not None, "it is there once the attempt has completed"
        completed_at = Timeline.of(attempt.look.metadata_instants).completion_of(attempt.instant)
        if completed_at is not None:
            tables.keep(self._handle.storage, completed_at)

    def _last_checks(self, state: TableState, plan: WritePlan) -> Callable[[Section], None]:
        def check(section: Section) -> None:
            check_schema(state, section)
            check_new_keys(state, plan, section, self._cache)

        return check


_Planner = Callable[[TableState, InstantTime], tuple[WriteContext, WritePlan]]


def _settled(columns: pa.Schema, complete: frozenset[str]) -> pa.Schema:
    """The columns of rows, of which those that are `complete` need not become nullable."""
    return pa.schema([field.with_nullable(False) if field.name in complete else field for field in columns])


def _ordering(state: TableState) -> EntryOrdering | None:
    """The ordering values that entries carry, and whether they are surely current."""
    ordering = find_ordering(state.definitions, state.config)
    if ordering is None or not isinstance(state.metadata, MetadataTable):
        return None
    return replace(ordering, is_current=are_current(state.metadata, ordering))


def _create_partitions(state: TableState, context: WriteContext, partitions: Iterable[str]) -> None:
    """Makes folders known as partitions before the first file lies in them."""
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


def _replaced_keys(state: TableState, plan: WritePlan) -> tuple[KeyChanges, ...]:
    """The keys that a write hides: those of the file groups that it replaces."""
    if plan.shelf is not None:
        return ()  # Tasks have read them.
    scans = _hidden_scans(state, plan)
    return tuple(map(hidden_keys, scans, plan.engine.map(scans, read_slice)))


def _hidden_scans(state: TableState, plan: WritePlan) -> Sequence[SliceTask]:
    """Scans of the keys that a write hides."""
    hidden = tuple(s for s in state.latest_slices if s.group in plan.replaced_groups)
    if not hidden:
        return ()
    return plan_slices(state, state.latest, hidden, columns=[RECORD_KEY], where=None, is_latest=True).tasks
