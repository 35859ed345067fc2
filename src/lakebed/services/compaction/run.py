"""Scheduling a compaction, and executing its plan or that of a log compaction: one task per slice, then one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.errors import CorruptTableError, InvalidInputError, WriteConflictError
from lakebed.format.timeline.metadata import decode_compaction_plan, encode_compaction_plan
from lakebed.index.facts import FileFacts
from lakebed.metadata.upkeep.compaction import slice_of
from lakebed.model.commit import CommitMetadata, CompactionPlan, stats_by_partition
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.compaction.plan import (
    CompactionOptions,
    choose_operations,
    is_due,
    plan_slices,
    slices_to_compact,
)
from lakebed.services.compaction.tasks import CompactionTask
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import WriteKind, WriteSet
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.plans import REMOVABLE
from lakebed.transaction.section import Section, instant_path
from lakebed.write.checks import check_writable
from lakebed.write.execute import deleted_if_refused, find_rival_files
from lakebed.write.rows.schema import declared_schema
from lakebed.write.values import WriteContext, make_context

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Compaction:
    """A kind of compaction: what its tasks do, and what its commit is called.

    `compacts`: its files take the place of file slices, rather than being part of them.
    """

    action: Action
    operation: str
    run: Callable[[CompactionTask], tuple[FileFacts, ...]]
    compacts: bool


@dataclass(frozen=True, slots=True)
class _Work:
    """What an attempt is to do: the slices of its plan that are still there to be compacted.

    `partitions` are those that the plan is about: earlier attempts may have left files there.
    """

    kind: Compaction
    attempt: Attempt
    state: TableState
    context: WriteContext
    slices: tuple[FileSlice, ...]
    partitions: frozenset[str]
    skipped: int
    is_removable: bool

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset(each.group for each in self.slices)


class _SchemaChangedError(WriteConflictError):
    """The table's columns changed between our look at them and the commit section."""


def execute_plan(context: ServiceContext, instant: InstantTime, kind: Compaction) -> ServiceResult:
    """Executes a pending plan; what fails leaves the plan to the next attempt and nothing that readers see."""
    state = context.handle.state()
    check_writable(state)
    _check_action(state, instant, kind)
    attempt = context.transactions.executions.begin(instant)
    with context.transactions.executions.ended_on_failure(attempt, is_idle=context.is_idle_after_failure):
        work = _plan_work(context, attempt, kind)
        written = _run(context, work)
        with deleted_if_refused(work.context, written):
            completed_at = _commit(context, work, written)
    return ServiceResult(instant, completed_at, str(kind.action), _counts(work, written))


def _check_action(state: TableState, instant: InstantTime, kind: Compaction) -> None:
    for pending in state.timeline.pending():
        if pending.requested_at == instant and pending.action is not kind.action:
            raise InvalidInputError(
                f"{instant} is a {pending.action}, not a {kind.action}",
                hint="table.services.execute(instant) executes every kind of plan",
            )


def _plan_work(context: ServiceContext, attempt: Attempt, kind: Compaction) -> _Work:
    state = context.handle.state()
    check_writable(state)
    plan = _load_plan(state, attempt.instant, kind.action)
    slices = tuple(_present_slices(state, plan, attempt.instant))
    schema = state.data_schema(state.latest)
    return _Work(
        kind=kind,
        attempt=attempt,
        state=state,
        context=make_context(state, attempt.instant, schema, context.options),
        slices=slices,
        partitions=frozenset(operation.partition for operation in plan.operations),
        skipped=len(plan.operations) - len(slices),
        is_removable=plan.extra_metadata.get(REMOVABLE) == "true",
    )


def _load_plan(state: TableState, instant: InstantTime, action: Action) -> CompactionPlan:
    path = instant_path(state.config, Instant(instant, action, State.REQUESTED))
    return decode_compaction_plan(state.storage.get(path), path=path)


def _present_slices(state: TableState, plan: CompactionPlan, instant: InstantTime) -> Iterator[FileSlice]:
    """The slices that the plan names, with the sizes that the table knows of their files.

    A plan stays until it is executed, so it must be possible to do that whatever became of its slices. Left out are
    those that another engine rewrote or replaced, for a new file would bring back what was there before, and logs of
    writes that were rolled back since.
    """
    known = {partition: {file.name: file for file in files} for partition, files in state.files.items()}
    latest = {each.group: each for each in state.latest_slices}
    taken = state.replaced(state.latest) | _compacted_by_others(state, instant)
    for operation in plan.operations:
        planned = slice_of(operation)
        now = latest.get(planned.group)
        if planned.group in taken or (now is not None and _base_name(now) != _base_name(planned)):
            continue
        logs = tuple(log for log in planned.logs if state.latest.completion_of(log.instant) is not None)
        if logs:
            yield _with_sizes(replace(planned, logs=logs), known.get(operation.partition, {}))


def _compacted_by_others(state: TableState, instant: InstantTime) -> frozenset[FileGroupId]:
    """File groups of a log compaction that are planned to be compacted, too: other engines do plan that."""
    rivals = list(pending_rivals(state.storage, state.config, state.timeline))
    if not any(r.instant.requested_at == instant and r.instant.action is Action.LOG_COMPACTION for r in rivals):
        return frozenset()
    return frozenset[FileGroupId]().union(
        *(rival.writes.rewritten for rival in rivals if rival.instant.action is Action.COMPACTION)
    )


def _base_name(file_slice: FileSlice) -> str | None:
    return file_slice.base.name if file_slice.base else None


def _with_sizes(planned: FileSlice, known: dict[str, BaseFile | LogFile]) -> FileSlice:
    for file in (*((planned.base,) if planned.base else ()), *planned.logs):
        if file.name not in known:
            raise CorruptTableError(
                "a compaction plan names the file, but it does not exist",
                path=planned.path(file.name),
                hint="put the file back, or restore the table to an instant before it was lost",
            )
    base = planned.base and replace(planned.base, size=known[planned.base.name].size)
    logs = tuple(replace(log, size=known[log.name].size) for log in planned.logs)
    return replace(planned, base=base, logs=logs)


def _run(context: ServiceContext, work: _Work) -> tuple[FileFacts, ...]:
    tasks = [
        CompactionTask(work.context, number, file_slice, work.is_removable)
        for number, file_slice in enumerate(work.slices)
    ]
    return tuple(file for files in context.engine.map(tasks, work.kind.run) for file in files)


def _commit(context: ServiceContext, work: _Work, written: Sequence[FileFacts]) -> InstantTime:
    """Commits the files. If columns were added meanwhile the commit says so: the files lack them, as older ones do."""
    strays = find_rival_files(work.context, written, work.partitions)
    for _ in range(_TRIES - 1):
        with suppress(_SchemaChangedError):
            return _try_commit(context, work, written, strays)
    return _try_commit(context, work, written, strays)


def _try_commit(
    context: ServiceContext, work: _Work, written: Sequence[FileFacts], strays: Collection[str]
) -> InstantTime:
    instant, state, current = work.attempt.instant, work.state, context.handle.state()
    schema = current.data_schema(current.latest)

    def check(section: Section) -> None:
        context.transactions.executions.check_not_cancelled(instant)
        now = current.at(section.config, section.timeline, section.metadata_timeline)
        if now.data_schema(now.latest) != schema:
            raise _SchemaChangedError(
                "the table schema changed during each commit attempt", hint="run the compaction again"
            )
        for path in strays:
            delete_file(section.ports.storage, path)

    prepared = PreparedCommit(
        instant,
        work.attempt.action,
        _metadata(work, written, schema),
        WriteSet(WriteKind.COMPACTION, rewritten=work.groups),
        frozenset(i.requested_at for i in state.timeline.commits() if (i.completed_at or "") < instant),
        work.context.expected,
        tuple(written),
        compacts=work.kind.compacts,
    )
    entries = context.plane.entries(state, prepared)
    return commit(context.transactions, work.attempt, prepared, entries, check=check)


def _metadata(work: _Work, written: Collection[FileFacts], schema: pa.Schema) -> CommitMetadata:
    return CommitMetadata(
        write_stats=stats_by_partition(file.stat for file in written),
        operation=work.kind.operation,
        compacted=True,
        extra_metadata={"schema": declared_schema(schema, work.context.config, meta_columns=False)},
    )


def _counts(work: _Work, written: Collection[FileFacts]) -> dict[str, int]:
    return {
        "file_groups": len(written),
        "skipped": work.skipped,
        "log_files": sum(len(each.logs) for each in work.slices),
        "rows": sum(file.stat.num_writes for file in written),
        "bytes": sum(file.stat.file_size for file in written),
    }


def schedule_compaction(
    context: ServiceContext, options: CompactionOptions | None = None, *, only_if_due: bool = False
) -> InstantTime | None:
    """Plans the compaction of all slices with logs that the strategy takes; its instant, or None if there are none.

    With `only_if_due` the trigger is asked first.
    """
    given = options or CompactionOptions()
    before = context.handle.state()
    check_writable(before)

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        if only_if_due and not is_due(section.timeline, instant, given):
            return None
        state = before.at(section.config, section.timeline, section.metadata_timeline)
        plan = plan_slices(state, slices_to_compact(state, section), instant)
        operations = choose_operations(plan.operations, given)
        return encode_compaction_plan(replace(plan, operations=operations)) if operations else None

    return context.transactions.executions.schedule(Action.COMPACTION, make_plan)


def execute_compaction(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Executes a compaction that anybody scheduled."""
    kind = Compaction(Action.COMPACTION, "COMPACT", context.plane.compact, compacts=True)
    return execute_plan(context, instant, kind)
