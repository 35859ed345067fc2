"""Writes to one table: begin, plan, write, commit. What fails leaves nothing behind that readers see."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from lakebed.engine.engines import Engine, InProcess
from lakebed.engine.randomness import new_file_id
from lakebed.engine.threads import map_tasks
from lakebed.errors import CommitUnknownError, LakebedError, WriteConflictError
from lakebed.format.partition_metafile import PARTITION_METAFILE, PartitionMetafile, encode_partition_metafile
from lakebed.index.record_index import KeyChanges
from lakebed.metadata import MetadataTable
from lakebed.metadata.maintenance import is_due, maintain
from lakebed.metadata.record_index import RECORD_INDEX
from lakebed.metadata.shard_cache import ShardCache, default_cache
from lakebed.model.commit import CommitMetadata, stats_by_partition
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, State
from lakebed.options import WriteOptions
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import plan_slices
from lakebed.storage import Requests
from lakebed.table import TableHandle, TableState
from lakebed.timeline import Timeline
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.section import Section
from lakebed.transaction.settle import create_file
from lakebed.transaction.transactions import Transactions
from lakebed.write.checks import check_schema, check_writable
from lakebed.write.context import write_context
from lakebed.write.execute import delete_strays, run_write_task
from lakebed.write.index_tag import KeyIndex, find_taken, tag_by_index
from lakebed.write.metadata import CommitChanges
from lakebed.write.metrics import METRICS, Phases, probe_metrics
from lakebed.write.operations import DELETE_PARTITION, Operation
from lakebed.write.plan import Finder, TagRule, WritePlan, find_in_files, key_scans, plan_rows, replaced_groups
from lakebed.write.schema import declared_schema
from lakebed.write.staging import RowSource, stage_table
from lakebed.write.values import WriteContext, WriteTask, WrittenFile

_LOG = logging.getLogger(__name__)
_TYPICAL_FILE_BYTES = 1 << 20
"""Base files below this size are mostly footer and say nothing about the size of a row."""
_ENCODED_SHARE = 0.4
"""What is left of Arrow's bytes in a base file, where no earlier file tells."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did: its instant, how many rows, the files that it made, and what it cost.

    `jobs` are Spark jobs; `requests` those of this process to the store, up to the commit. `metrics` has milliseconds
    by phase and, if keys were found through the record index, how many were asked for, were found, and what that took.
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


class Writer:
    """Writes of one process to one table."""

    def __init__(self, handle: TableHandle, transactions: Transactions, options: WriteOptions) -> None:
        self._handle = handle
        self._transactions = transactions
        self._options = options
        self._cache = default_cache()

    def write_rows(self, source: RowSource, columns: pa.Schema, operation: Operation, rule: TagRule) -> WriteResult:
        """Writes prepared rows whose data columns are `columns`."""

        def plan(state: TableState, context: WriteContext) -> WritePlan:
            prepared = source(context.instant)
            scans = plan_slices(state, state.latest, state.latest_slices, columns=None, where=None, is_latest=True)
            return plan_rows(
                prepared.rows,
                operation,
                context,
                tuple(scan.file_slice for scan in scans.tasks),
                prepared.engine,
                self._finder(state, scans.tasks, prepared.engine, rule),
                row_bytes=_row_bytes(state, prepared.rows),
                busy=_busy_groups(state),
                new_file_id=new_file_id,
            )

        return self._run(operation, columns, plan)

    def delete_partitions(self, partitions: Iterable[str]) -> WriteResult:
        """Hides every file group of partitions, given as their paths."""
        wanted = set(partitions)

        def plan(state: TableState, context: WriteContext) -> WritePlan:
            del context
            return WritePlan(DELETE_PARTITION, (), replaced_groups(state.latest_slices, wanted), InProcess())

        return self._run(DELETE_PARTITION, pa.schema([]), plan)

    def _finder(self, state: TableState, scans: Sequence[SliceTask], engine: Engine, rule: TagRule) -> Finder:
        if not rule.by_index:
            return partial(find_in_files, scans=key_scans(scans), engine=engine, rule=rule)
        if not isinstance(state.metadata, MetadataTable) or not state.metadata.has(RECORD_INDEX):
            raise WriteConflictError("the record index was dropped while the write began", hint="run the write again")
        index = KeyIndex(state.metadata, state.config, scans, engine, self._cache, rule.moves)
        return partial(tag_by_index, index=index, everywhere=rule.everywhere)

    def _run(self, operation: Operation, columns: pa.Schema, make_plan: _Planner) -> WriteResult:
        before = self._handle.storage.counts.snapshot()
        check_writable(self._handle.last_look)
        attempt = self._transactions.begin(operation.action(self._handle.config))
        try:
            phases = Phases()
            state = self._state_of(attempt)
            context = write_context(state, attempt.instant, self._options, columns)
            plan = make_plan(state, context)
            phases.end("plan")
            self._transactions.declare(attempt, plan.declaration)
            written = self._execute(state, context, plan)
            phases.end("write")
            result = self._commit(attempt, state, context, plan, written, phases)
            result = replace(result, requests=self._handle.storage.counts.snapshot() - before)
        except CommitUnknownError:
            attempt.heartbeat.rest()  # It may have taken place: nothing may be deleted. If not, others find it dead.
            raise
        except BaseException:
            self._transactions.abandon(attempt)
            raise
        self._maintain(attempt)
        return result

    def _state_of(self, attempt: Attempt) -> TableState:
        """The table as the attempt has seen it last; under the lock, so it need not be looked at again."""
        if attempt.look is None:
            return self._handle.state()
        return self._handle.state_at(attempt.look, attempt.in_state(State.REQUESTED))

    def _maintain(self, attempt: Attempt) -> None:
        """Looks after the metadata table. The write has taken place: what goes wrong here is the next one's to do."""
        look = attempt.look
        assert look is not None, "it is there once the attempt has completed"
        is_maintained = bool(look.config.metadata_partitions) and is_due(Timeline.of(look.metadata_instants))
        self._handle.state_at(look, is_maintained=is_maintained)
        if not is_maintained:
            return
        try:
            maintain(self._transactions, InProcess())
        except LakebedError as error:
            _LOG.warning("the metadata table was not maintained: %s", error)

    def _execute(self, state: TableState, context: WriteContext, plan: WritePlan) -> tuple[WrittenFile, ...]:
        _create_partitions(state, context, {task.group.partition for task in plan.tasks})
        results = plan.engine.map(_sent_tasks(plan), run_write_task)
        written = tuple(file for files in results for file in files)
        if not isinstance(plan.engine, InProcess):  # Which runs no task twice.
            delete_strays(context, written)
        return written

    def _commit(
        self,
        attempt: Attempt,
        state: TableState,
        context: WriteContext,
        plan: WritePlan,
        written: Sequence[WrittenFile],
        phases: Phases,
    ) -> WriteResult:
        schema = declared_schema(context.schema, context.config, meta_columns=False)
        metrics = {**phases.milliseconds, **probe_metrics(plan.counts)}
        metadata = CommitMetadata(
            write_stats=stats_by_partition(file.stat for file in written),
            replaced_file_ids=plan.replaced,
            operation=plan.operation.name,
            extra_metadata={"schema": schema, METRICS: json.dumps(metrics)},
        )
        seen = frozenset(instant.requested_at for instant in state.timeline.commits())
        changes = CommitChanges(state, context, written, plan.replaced_groups, _replaced_keys(state, plan))
        completed_at = self._transactions.commit(
            attempt, plan.write_set, seen, metadata, changes, also=self._last_checks(state, plan)
        )
        phases.end("commit")
        return WriteResult(
            instant=attempt.instant,
            completed_at=completed_at,
            operation=plan.operation.name,
            inserted=sum(file.stat.num_inserts for file in written),
            updated=sum(file.stat.num_updates for file in written),
            deleted=sum(file.stat.num_deletes for file in written),
            files=tuple(file.stat.path for file in written),
            metrics=metrics | phases.milliseconds,
        )

    def _last_checks(self, state: TableState, plan: WritePlan) -> Callable[[Section], None]:
        def check(section: Section) -> None:
            check_schema(state, section)
            _check_new_keys(state, plan.new_keys, section, self._cache)

        return check


_Planner = Callable[[TableState, WriteContext], WritePlan]


def _sent_tasks(plan: WritePlan) -> Sequence[WriteTask]:
    """The tasks of a plan. Those for other processes have their rows in files: all of them are sent to each worker."""
    if isinstance(plan.engine, InProcess):
        return plan.tasks
    return list(map_tasks(plan.tasks, _with_staged_rows))


def _with_staged_rows(task: WriteTask) -> WriteTask:
    return replace(task, rows=stage_table(task.context.storage, task.context.instant, task.rows.read()))


def _create_partitions(state: TableState, context: WriteContext, partitions: Iterable[str]) -> None:
    """Makes folders known as partitions before the first file lies in them."""
    for partition in sorted(partitions):
        if not state.files.get(partition):
            depth = len(partition.split("/")) if partition else 0
            metafile = PartitionMetafile(context.instant, depth)
            path = "/".join(filter(None, (partition, PARTITION_METAFILE)))
            create_file(context.storage, path, encode_partition_metafile(metafile, date=context.instant))


def _busy_groups(state: TableState) -> frozenset[FileGroupId]:
    """File groups that a compaction or clustering is planned for."""
    rivals = pending_rivals(state.storage, state.config, state.timeline)
    return frozenset(group for rival in rivals for group in rival.writes.rewritten)


def _row_bytes(state: TableState, rows: pa.Table) -> float:
    """What a row needs on disk: as in the newest commit with a file that is large enough to tell."""
    for instant in reversed(state.timeline.commits()):
        stats = [
            stat
            for stat in state.documents.commit(instant).stats
            if stat.file_size >= _TYPICAL_FILE_BYTES and stat.num_writes and stat.path.endswith(".parquet")
        ]
        if stats:
            return sum(stat.file_size for stat in stats) / sum(stat.num_writes for stat in stats)
    return max(rows.nbytes * _ENCODED_SHARE / max(rows.num_rows, 1), 1.0)


def _replaced_keys(state: TableState, plan: WritePlan) -> tuple[KeyChanges, ...]:
    """The keys that a write hides, for a record index: those of the file groups that it replaces."""
    hidden = [s for s in state.latest_slices if s.group in plan.replaced_groups]
    if not hidden or "record_index" not in state.config.metadata_partitions:
        return ()
    scans = plan_slices(state, state.latest, tuple(hidden), columns=[RECORD_KEY], where=None, is_latest=True)
    keys = plan.engine.map(scans.tasks, read_slice)
    return tuple(
        KeyChanges(scan.file_slice.group.partition, scan.file_slice.group.file_id, deleted=table[RECORD_KEY])
        for scan, table in zip(scans.tasks, keys, strict=True)
    )


def _check_new_keys(state: TableState, new_keys: pa.Table | None, section: Section, cache: ShardCache) -> None:
    """Refuses to commit when another write inserted a key that is new to ours too: the table would have it twice."""
    current = state.at(section.config, section.timeline)
    if new_keys is None or current is state or not isinstance(current.metadata, MetadataTable):
        return
    if not current.metadata.has("record_index"):  # It was dropped meanwhile, and with it the promise of unique keys.
        return
    keys, paths = (new_keys[name].unify_dictionaries().combine_chunks() for name in (RECORD_KEY, PARTITION_PATH))
    taken = find_taken(keys, paths, current.metadata, cache)
    if len(taken):
        raise WriteConflictError(
            f"another write inserted {len(taken)} of the same keys meanwhile, {taken[0].as_py()!r} among them",
            hint="run the write again: it then updates them",
        )
