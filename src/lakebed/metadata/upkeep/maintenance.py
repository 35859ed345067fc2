"""Keeping the metadata table small and fast: its compaction, log compaction, cleaning and archiving, without the user.

Each runs under the table's lock in a section of its own, never between the two commits of a write. Other engines look
after the metadata table under the same lock, so nothing of it is ever at work outside. What a crash leaves pending,
the next section takes up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from lakebed.engine.engines import Engine
from lakebed.engine.randomness import new_write_token
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.metadata.datum import committed_schema
from lakebed.format.timeline.metadata import (
    decode_compaction_plan,
    encode_clean,
    encode_commit,
    encode_compaction_plan,
)
from lakebed.format.timeline.plans import decode_clean_plan, encode_clean_plan
from lakebed.metadata.merging import MergeRule
from lakebed.metadata.table import ROOT
from lakebed.metadata.upkeep.clean import COMMITS_RETAINED, plan_clean
from lakebed.metadata.upkeep.compaction import (
    DELTA_COMMITS,
    Compacted,
    compact_shard,
    plan_compaction,
    slice_of,
)
from lakebed.metadata.upkeep.log_compaction import Horizon, compact_shard_logs, plan_log_compaction, slices_to_merge
from lakebed.model.commit import (
    CleanedPartition,
    CleanMetadata,
    CleanPlan,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    InstantRef,
    WriteStat,
    stats_by_partition,
)
from lakebed.model.files import BaseFile, FileSlice, LogFile
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage, Ticket
from lakebed.storage.confirm import delete_file
from lakebed.timeline import Archive, Snapshot, Timeline
from lakebed.transaction.archive import MERGED_FILES, archive
from lakebed.transaction.rollback import targets_of_rollbacks, undone_times
from lakebed.transaction.section import Section, end_tickets
from lakebed.transaction.times import shift_time
from lakebed.transaction.transactions import Transactions
from lakebed.view import latest_slices

_KEPT_INSTANTS = 30
"""The active timeline is cut back to so many instants once it has half as many more."""


def is_due(timeline: Timeline, log_blocks: int | None = None, delta_commits: int = DELTA_COMMITS) -> bool:
    """Whether the metadata table's timeline asks for maintenance.

    It is compacted after so many `delta_commits`. With `log_blocks`, log files of a shard are merged once a reader has
    to read so many; None: they are left.
    """
    if _delta_commits(timeline) >= delta_commits or any(i.action in TAKEN_UP for i in timeline.pending()):
        return True
    return log_blocks is not None and _delta_commits(timeline, timeline.log_compactions) >= log_blocks


@dataclass(frozen=True, slots=True)
class ShardWork:
    """What maintenance does with the files of a shard."""

    compact: Callable[..., WriteStat] = compact_shard
    compact_logs: Callable[..., WriteStat | None] = compact_shard_logs
    new_token: Callable[[int], str] = new_write_token


@dataclass(frozen=True, slots=True)
class UpkeepLimits:
    """Delta commits until a compaction, commits that stay readable, and files of the history that become one."""

    delta_commits: int = DELTA_COMMITS
    commits_retained: int = COMMITS_RETAINED
    merged_files: int = MERGED_FILES


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How maintenance does its work: where tasks run, how partitions are merged, and who is told of compactions."""

    engine: Engine
    rules: Callable[[str], MergeRule]
    observer: Compacted | None = None
    work: ShardWork = field(default_factory=ShardWork)
    limits: UpkeepLimits = field(default_factory=UpkeepLimits)


def maintain_metadata(transactions: Transactions, upkeep: Upkeep, log_blocks: int | None = None) -> None:
    """Compacts, cleans and archives the metadata table as far as that is due; for `log_blocks` see `is_due`.

    What is pending is carried out whatever is asked for. With an observer, tasks run in this process.
    """
    merge_logs = () if log_blocks is None else (partial(_compact_logs, log_blocks=log_blocks),)
    for step in (_compact, *merge_logs, _clean, _archive):
        with transactions.section() as section:
            section.check_no_restore()
            completed_at = step(section, upkeep) if section.config.metadata_partitions else None
        if upkeep.observer is not None and completed_at is not None:
            upkeep.observer.keep(section.ports.storage, completed_at)


TAKEN_UP = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN)
"""What maintenance carries out if it finds it pending."""


def _delta_commits(timeline: Timeline, since: Collection[InstantTime] = ()) -> int:
    """Delta commits since the last compaction, or the last of `since`. As for Apache Hudi, log compactions are some."""
    count = 0
    for instant in reversed(timeline.commits()):
        if instant.action is not Action.DELTA_COMMIT or instant.requested_at in since:
            break
        count += 1
    return count


def _compact(section: Section, upkeep: Upkeep) -> InstantTime | None:
    """When it completed, if there was one."""
    _end_last(section, Action.COMMIT)
    pending = [i for i in section.metadata_timeline.pending() if i.action is Action.COMPACTION]
    if pending:
        plan = _load_plan(section, pending[0])
        plan = replace(plan, operations=_still_there(section, plan))
        return _execute_compaction(section, upkeep, pending[0], plan)
    _take_up_log_compaction(section, upkeep)
    if _delta_commits(section.metadata_timeline) >= upkeep.limits.delta_commits:
        instant = _compaction_time(section)
        plan = plan_compaction(_slices(section), instant, _snapshot(section).completion_of)
        if plan.operations:
            requested = Instant(instant, Action.COMPACTION, State.REQUESTED)
            section.ports.at("maintain.M1")
            section.request(requested, encode_compaction_plan(plan), root=ROOT)
            return _execute_compaction(section, upkeep, requested, plan)
    return None


def _load_plan(section: Section, pending: Instant) -> CompactionPlan:
    path = section.path(replace(pending, state=State.REQUESTED), ROOT)
    return decode_compaction_plan(section.ports.storage.get(path), path=path)


_WITHOUT_ENTRIES = (Action.SAVEPOINT, Action.INDEXING)
"""Actions whose pending instants have nothing in partitions that are ready: an index that is built is not."""


def _compaction_time(section: Section) -> InstantTime:
    """Just before the oldest instant whose twin on the data table may be undone: what it wrote must stay removable."""
    pending = {i.requested_at for i in section.timeline.pending() if i.action not in _WITHOUT_ENTRIES}
    undone = pending | targets_of_rollbacks(section)
    twins = [i.requested_at for i in section.metadata_timeline if i.requested_at in undone]
    return _free_time_before(section, min(twins)) if twins else section.next_time()


def _free_time_before(section: Section, instant: InstantTime) -> InstantTime:
    """The time before may be taken: writers that begin together get times that follow each other.

    So is that of a write that was undone: a rollback that is not through would undo this, too, and files that the write
    left in the metadata table would count.
    """
    instants = (*section.timeline, *section.metadata_timeline)
    taken = {time for i in instants for time in (i.requested_at, i.completed_at)} | undone_times(section)
    time = shift_time(instant, -1)
    while time in taken:
        time = shift_time(time, -1)
    return time


@dataclass(frozen=True, slots=True)
class _ShardTask:
    storage: Storage
    file_slice: FileSlice
    instant: InstantTime
    number: int
    created_ms: int
    rule: MergeRule
    work: ShardWork


def _run_shard(task: _ShardTask, observer: Compacted | None) -> WriteStat:
    return task.work.compact(
        task.storage,
        task.file_slice,
        task.rule,
        instant=task.instant,
        token=task.work.new_token(task.number),
        created_ms=task.created_ms,
        observer=observer,
    )


def _run_logs(task: _ShardTask) -> WriteStat | None:
    token = task.work.new_token(task.number)
    return task.work.compact_logs(
        task.storage, task.file_slice, task.rule, instant=task.instant, token=token, created_ms=task.created_ms
    )


def _begin_attempt(section: Section, pending: Instant, plan: CompactionPlan) -> Ticket:
    """Makes room for the files of a plan, and says that it is being executed."""
    ports, instant = section.ports, pending.requested_at
    ticket = section.take_on(instant)
    files = _files(ports.storage, sorted({operation.partition for operation in plan.operations}))
    left = [path for path, file in files if file.instant == instant]
    # What attempts before this one left; with the lock held until now, none of it is of an attempt after it.
    section.check_lease()
    for path in left:
        delete_file(ports.storage, path)
    _put_in_flight(section, pending, ticket)
    return ticket


def _execute_compaction(section: Section, upkeep: Upkeep, pending: Instant, plan: CompactionPlan) -> InstantTime | None:
    ports, instant = section.ports, pending.requested_at
    ticket = _begin_attempt(section, pending, plan)
    created_ms = ports.clock.now_ms()
    # A late file would count in an index that was built again since: the attempt after this one leaves that out.
    files = section.fenced(ticket)
    tasks = [
        _ShardTask(
            files,
            slice_of(operation),
            instant,
            number,
            created_ms,
            upkeep.rules(operation.partition),
            upkeep.work,
        )
        for number, operation in enumerate(plan.operations)
    ]
    stats = stats_by_partition(upkeep.engine.map(tasks, partial(_run_shard, observer=upkeep.observer)))
    metadata = CommitMetadata(stats, operation="COMPACT", compacted=True, extra_metadata={"schema": committed_schema()})
    ports.at("maintain.M3")
    done = Instant(instant, Action.COMMIT, State.COMPLETED, section.next_time())
    outcome = section.complete(ticket, done, encode_commit(metadata, replace=False), ROOT)
    end_tickets(ports, instant, outcome)
    return done.completed_at if outcome is Outcome.DONE else None


def _still_there(section: Section, plan: CompactionPlan) -> tuple[CompactionOperation, ...]:
    """The operations of a plan that was made some time ago, without those of indexes that are gone or built anew since.

    Of such an index no file of the plan is left. If only some are missing, the shard is broken, and reading it says so.
    """
    ready = set(section.config.metadata_partitions)
    partitions = sorted({each.partition for each in plan.operations} & ready)
    present = {file.name for _, file in _files(section.ports.storage, partitions)}
    return tuple(
        each
        for each in plan.operations
        if each.partition in ready and not present.isdisjoint({each.base_file, *each.log_files})
    )


def _compact_logs(section: Section, upkeep: Upkeep, *, log_blocks: int) -> None:
    """Merges the log files of shards that have many; not while a compaction is to take them all."""
    timeline, merged = section.metadata_timeline, section.metadata_timeline.log_compactions
    waits = any(i.action in (Action.COMPACTION, Action.LOG_COMPACTION) for i in timeline.pending())
    if (
        waits
        or _delta_commits(timeline) >= upkeep.limits.delta_commits
        or _delta_commits(timeline, merged) < log_blocks
    ):
        return
    unsettled = _unsettled(section)
    instant = _free_time_before(section, InstantTime(min(unsettled))) if unsettled else section.next_time()
    horizon = Horizon(instant, unsettled, _snapshot(section).completion_of)
    plan = plan_log_compaction(_slices(section), horizon, blocks_min=log_blocks, merged=merged)
    if plan.operations:
        requested = Instant(instant, Action.LOG_COMPACTION, State.REQUESTED)
        section.ports.at("maintain.M1")
        section.request(requested, encode_compaction_plan(plan), root=ROOT)
        _execute_log_compaction(section, upkeep, requested, plan)


def _unsettled(section: Section) -> frozenset[str]:
    """The instants that may be undone, or whose entries are still to come: nothing older is to come to lie on these."""
    pending = (i.requested_at for i in section.timeline.pending() if i.action not in _WITHOUT_ENTRIES)
    return frozenset(pending) | targets_of_rollbacks(section)


def _take_up_log_compaction(section: Section, upkeep: Upkeep) -> None:
    """Carries out one that is pending, before a compaction that would take its log files may be planned."""
    timeline = section.metadata_timeline
    for done in [i for i in timeline.commits() if i.requested_at in timeline.log_compactions][-1:]:
        end_tickets(section.ports, done.requested_at)  # It may be left, as in `_end_last`.
    for pending in [i for i in timeline.pending() if i.action is Action.LOG_COMPACTION]:
        _execute_log_compaction(section, upkeep, pending, _load_plan(section, pending))


def _execute_log_compaction(section: Section, upkeep: Upkeep, pending: Instant, plan: CompactionPlan) -> None:
    ports, instant = section.ports, pending.requested_at
    ticket = _begin_attempt(section, pending, plan)
    horizon = Horizon(instant, _unsettled(section), _snapshot(section).completion_of)
    slices = slices_to_merge(plan.operations, _slices(section), horizon)
    # What is merged is decided by what there is now, so an attempt that lost the lock must not add files to this one.
    section.fence(ticket)
    created_ms = ports.clock.now_ms()
    tasks = [
        _ShardTask(section.files, each, instant, number, created_ms, upkeep.rules(each.group.partition), upkeep.work)
        for number, each in enumerate(slices)
    ]
    stats = stats_by_partition(stat for stat in upkeep.engine.map(tasks, _run_logs) if stat is not None)
    extra = {"schema": committed_schema()}
    metadata = CommitMetadata(stats, operation="LOG_COMPACT", compacted=True, extra_metadata=extra)
    ports.at("maintain.M3")
    done = Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, section.next_time())
    end_tickets(ports, instant, section.complete(ticket, done, encode_commit(metadata, replace=False), ROOT))


def _clean(section: Section, upkeep: Upkeep) -> None:
    timeline = section.metadata_timeline
    _end_last(section, Action.CLEAN)
    pending = [i for i in timeline.pending() if i.action is Action.CLEAN]
    if pending:
        path = section.path(replace(pending[0], state=State.REQUESTED), ROOT)
        _execute_clean(section, pending[0], decode_clean_plan(section.ports.storage.get(path), path=path))
        return
    plan = _plan_clean(section, upkeep.limits.commits_retained)
    if plan is not None:
        requested = Instant(section.next_time(), Action.CLEAN, State.REQUESTED)
        url = f"{section.ports.storage.url}/{ROOT.rstrip('/')}"
        section.ports.at("maintain.M1")
        section.request(requested, encode_clean_plan(plan, table_url=url), root=ROOT)
        _execute_clean(section, requested, plan)


def _end_last(section: Section, action: Action) -> None:
    """Ends the ticket of the last one, which a process left that died just after it had completed it."""
    for instant in [i for i in section.metadata_timeline.completed() if i.action is action][-1:]:
        end_tickets(section.ports, instant.requested_at)


def _put_in_flight(section: Section, pending: Instant, ticket: Ticket) -> None:
    """By the ticket, as all that a holder of the lock puts on the timeline: it may have lost it by now."""
    section.ports.at("maintain.M2")
    if pending.state is State.REQUESTED:
        section.request(replace(pending, state=State.INFLIGHT), b"", ticket, ROOT)


def _plan_clean(section: Section, retained: int) -> CleanPlan | None:
    commits = [i.requested_at for i in section.metadata_timeline.commits()]
    files: dict[str, list[BaseFile | LogFile]] = {}
    for path, file in _files(section.ports.storage, section.config.metadata_partitions):
        files.setdefault(path.removeprefix(ROOT).rpartition("/")[0], []).append(file)
    found = plan_clean(files, commits, _snapshot(section).completion_of, retained=retained)
    if found is None:
        return None
    earliest = InstantRef(found.earliest_to_retain, str(Action.DELTA_COMMIT))
    return CleanPlan(earliest, commits[-1], "KEEP_LATEST_COMMITS", found.files)


def _execute_clean(section: Section, pending: Instant, plan: CleanPlan) -> None:
    ports, instant = section.ports, pending.requested_at
    ticket = section.take_on(instant)
    _put_in_flight(section, pending, ticket)
    for partition, names in plan.files.items():
        for name in names:
            delete_file(ports.storage, f"{ROOT}{partition}/{name}")
    metadata = CleanMetadata(
        started_at=instant,
        earliest_to_retain=plan.earliest_to_retain.requested_at if plan.earliest_to_retain else "",
        last_completed=plan.last_completed,
        partitions=_cleaned(plan),
        total_files_deleted=sum(map(len, plan.files.values())),
    )
    ports.at("maintain.M3")
    done = Instant(instant, Action.CLEAN, State.COMPLETED, section.next_time())
    end_tickets(ports, instant, section.complete(ticket, done, encode_clean(metadata), ROOT))


def _cleaned(plan: CleanPlan) -> Mapping[str, CleanedPartition]:
    return {
        partition: CleanedPartition(partition, plan.policy, planned=names, deleted=names)
        for partition, names in plan.files.items()
    }


def _archive(section: Section, upkeep: Upkeep) -> None:
    """Archives what completed before the last compaction: no pending write is among it.

    Logs of a large shard may be older: that their instants completed is then asked of the history.
    """
    timeline = section.metadata_timeline
    compactions = [i.requested_at for i in timeline.commits() if i.action is Action.COMMIT]
    pending = [i.requested_at for i in (*timeline.pending(), *section.timeline.pending())]
    limit = min([*compactions[-1:], *pending], default=None)
    if limit is not None and compactions:
        old = archivable(timeline.completed(), limit)
        archive(section, old, ROOT, merged_files=upkeep.limits.merged_files)


def archivable(completed: Sequence[Instant], limit: InstantTime) -> list[Instant]:
    """What may go of instants in completion order: old ones that completed before the `limit`, if there are enough.

    Whoever meets the file of an instant that was requested after one on the active timeline looks for it there alone.
    So none goes that was requested after one that stays.
    """
    if len(completed) < _KEPT_INSTANTS * 3 // 2:
        return []
    old = [i for i in completed[: len(completed) - _KEPT_INSTANTS] if (i.completed_at or "") < limit]
    first = min(i.requested_at for i in completed if i not in old)
    return [i for i in old if i.requested_at < first]


def _slices(section: Section) -> tuple[FileSlice, ...]:
    """The newest slices of the partitions that are ready: one that is being built is not to be compacted."""
    files: dict[str, list[BaseFile | LogFile]] = {}
    for path, file in _files(section.ports.storage, section.config.metadata_partitions):
        files.setdefault(path.removeprefix(ROOT).rpartition("/")[0], []).append(file)
    return latest_slices(files, _snapshot(section).completion_of, layout=section.config.timeline_layout)


def _snapshot(section: Section) -> Snapshot:
    return Snapshot(section.metadata_timeline, Archive(section.ports.storage, section.config, ROOT))


def _files(storage: Storage, partitions: tuple[str, ...] | list[str]) -> Iterator[tuple[str, BaseFile | LogFile]]:
    for partition in partitions:
        for listed in storage.list(f"{ROOT}{partition}"):
            folder, _, name = listed.path.rpartition("/")
            file = decode_data_file_name(name, size=listed.size, folder=folder)
            if file is not None:
                yield listed.path, file
