"""Cleaning: old file slices, replaced file groups and empty partitions go, once nobody needs them any more.

A plan is made under the table's lock from the metadata table's list of files, without listing a folder. Any process
executes it, as often as it takes: a file that is gone is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import Engine
from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.format.timeline.metadata import decode_compaction_plan, decode_savepoint
from lakebed.format.timeline.plans import decode_clean_plan, decode_clustering_plan, encode_clean_plan
from lakebed.metadata import MetadataTable
from lakebed.model.commit import CleanedPartition, CleanMetadata, CleanPlan, InstantRef
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.clean.plan import (
    NEVER,
    CleanPolicy,
    CleanScope,
    Retention,
    earliest_to_retain,
    removable_files,
)
from lakebed.services.plane import DELETES
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.storage import Storage
from lakebed.storage.confirm import delete_file
from lakebed.table import TableState
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.leases import leased_points
from lakebed.transaction.plans import is_begun_elsewhere
from lakebed.transaction.rollback import targets_of_rollbacks
from lakebed.transaction.section import Section
from lakebed.transaction.times import format_time, timeline_zone

SAVEPOINTS = "savepointed_timestamps"
"""In the extra metadata of a clean, as Apache Hudi spells it: the savepoints that kept files from it."""
LEASES = "lakebed.leased"
"""There, too: the completion times at which readers stood that kept files from it."""
_WRITTEN_VERSION = 9
HOLDS_NOTHING = (Action.CLEAN, Action.INDEXING, Action.SAVEPOINT, Action.ROLLBACK)
"""Pending instants that read no old slice: an index that is being built makes do with a newer one."""


def schedule_clean(context: ServiceContext, retention: Retention | None = None) -> InstantTime | None:
    """Plans a clean; its instant, or None if nothing can go, or another process is at a clean.

    A plan that waits for execution since its process died is the one to execute.
    """
    waiting: list[InstantTime] = []

    def make_plan(section: Section, instant: InstantTime) -> bytes | None:
        del instant
        pending = [i for i in section.timeline.pending() if i.action is Action.CLEAN]
        if pending:
            idle = (i for i in pending if not section.heartbeats.get(i.requested_at, False))
            waiting.extend(i.requested_at for i in idle if not is_begun_elsewhere(section, i))
            return None
        plan = plan_clean(section, state_in(context, section), retention or Retention())
        return None if plan is None else encode_clean_plan(plan, table_url=section.ports.storage.url)

    made = context.transactions.executions.schedule(Action.CLEAN, make_plan)
    return made or next(iter(waiting), None)


def execute_clean(context: ServiceContext, instant: InstantTime) -> ServiceResult:
    """Deletes what a plan names and completes it. What savepoints and readers with a lease need by now is left out."""
    _check_is_clean(context, instant)
    attempt = context.transactions.executions.begin(instant)
    with context.transactions.executions.ended_on_failure(attempt, is_idle=True):
        with context.transactions.section() as section:
            plan = _still_valid(section, state_in(context, section), _load_plan(section, instant))
        paths = [_path(partition, name) for partition, names in plan.files.items() for name in names]
        delete_files(context.handle.storage, paths, context.plane.deletes)
        completed_at, plan = _complete(context, attempt, plan)
    if plan.partitions:
        _remove_metafiles(context, plan.partitions)
    counts = {"files": len(paths), "partitions": len(plan.partitions)}
    return ServiceResult(instant, completed_at, str(Action.CLEAN), counts)


def state_in(context: ServiceContext, section: Section) -> TableState:
    """The table as it is under the lock."""
    state = context.handle.state().at(section.config, section.timeline, section.metadata_timeline)
    if state.config.version != _WRITTEN_VERSION:
        raise UnsupportedTableError(
            f"table {state.config.name} has version {state.config.version}; lakebed runs table services on version 9",
            hint="upgrade it with Apache Hudi 1.2: call upgrade_table(table => 't', to_version => 'NINE')",
        )
    if state.config.metadata_partitions and not isinstance(state.metadata, MetadataTable):
        raise UnsupportedTableError(
            f"table {state.config.name} has a metadata table that cannot be used: {state.metadata.reason}",
            hint="open the table with its metadata table",
        )
    return state


def plan_clean(section: Section, state: TableState, retention: Retention) -> CleanPlan | None:
    """What can go now; None if there is nothing."""
    commits = state.timeline.commits()
    held = min(held_since(section), default=NEVER)
    by_versions = retention.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    now = format_time(section.ports.clock.now_ms(), timeline_zone(state.config))
    earliest = None if by_versions else earliest_to_retain(retention, commits, now=now, before=InstantTime(held))
    if not commits or (earliest is None and not by_versions):
        return None
    before = InstantTime(held) if earliest is None else (earliest.completed_at or NEVER)
    savepoints, leases = _savepoints(section), leased_points(section)
    holders = {*savepoints, *leases}
    partitions = _touched(state, earliest, holders) if retention.incremental and earliest else state.files.keys()
    state.latest.prefetch(file.instant for name in partitions for file in state.files.get(name, ()))
    scope = CleanScope(
        before,
        state.latest.completion_of,
        _replaced(state),
        needed_names(section, savepoints) | leased_names(state, leases),
        retention.versions if by_versions else 1,
    )
    files = {name: removable_files(name, state.files.get(name, ()), scope) for name in sorted(partitions)}
    gone = () if held != NEVER else tuple(name for name in files if name and len(files[name]) == len(state.files[name]))
    files = {name: names for name, names in files.items() if names}
    if not files and not gone:
        return None
    ref = None if earliest is None else InstantRef(earliest.requested_at, str(earliest.action))
    extra = _holders({}, savepoints, leases)
    return CleanPlan(ref, commits[-1].requested_at, str(retention.policy), files, gone, extra)


def held_since(section: Section) -> Iterator[InstantTime]:
    """Times from which on nothing may be taken away: a write that is under way saw what had completed before it."""
    yield from (i.requested_at for i in section.timeline.pending() if i.action not in HOLDS_NOTHING)
    yield from (InstantTime(target) for target in targets_of_rollbacks(section))


def needed_names(section: Section, savepoints: Collection[InstantTime]) -> frozenset[str]:
    """Names of files that savepoints protect, and those that plans are about to read."""
    names = {name for savepoint in savepoints for name in savepoint_names(section, savepoint)}
    for instant in section.timeline.pending():
        if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING):
            names.update(_planned_names(section, instant))
    return frozenset(names)


def leased_names(state: TableState, points: Collection[InstantTime]) -> frozenset[str]:
    """Names of the files that readers at these completion times read."""
    slices = (file_slice for point in points for file_slice in state.slices(state.snapshot_at(point)))
    return frozenset(path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths)


def savepoint_names(section: Section, savepoint: InstantTime) -> Iterator[str]:
    """Names of the files that a savepoint protects."""
    for instant in section.timeline.completed():
        if instant.action is Action.SAVEPOINT and instant.requested_at == savepoint:
            path = section.path(instant)
            for names in decode_savepoint(section.ports.storage.get(path), path=path).files.values():
                yield from names


def pending_cleans(section: Section) -> Iterator[tuple[InstantTime, CleanPlan]]:
    """Cleans that are planned or under way."""
    for instant in section.timeline.pending():
        if instant.action is Action.CLEAN:
            yield instant.requested_at, _load_plan(section, instant.requested_at)


def delete_files(storage: Storage, paths: Sequence[str], engine: Engine = DELETES) -> None:
    """Makes sure that none of the files is there."""
    engine.map(paths, partial(delete_file, storage))


def _savepoints(section: Section) -> tuple[InstantTime, ...]:
    return tuple(sorted(i.requested_at for i in section.timeline.completed() if i.action is Action.SAVEPOINT))


def _holders(extra: Mapping[str, str], savepoints: Collection[str], leases: Collection[str]) -> dict[str, str]:
    """Extra metadata that say what has kept files from a clean: once that is gone they are looked for everywhere."""
    found = {SAVEPOINTS: ",".join(savepoints), LEASES: ",".join(leases)}
    return {**extra, **{key: text for key, text in found.items() if text}}


def _planned_names(section: Section, instant: Instant) -> Iterator[str]:
    path = section.path(replace(instant, state=State.REQUESTED))
    data = section.ports.storage.get(path)
    if instant.action is not Action.CLUSTERING:
        for operation in decode_compaction_plan(data, path=path).operations:
            yield from (name for name in (operation.base_file, *operation.log_files) if name)
        return
    for group in decode_clustering_plan(data, path=path).groups:
        for piece in group.slices:
            yield from (name for name in (piece.base_file, *piece.log_files) if name)


def _replaced(state: TableState) -> dict[FileGroupId, InstantTime]:
    """When file groups were replaced."""
    return {
        FileGroupId(partition, file_id): instant.completed_at or NEVER
        for instant in state.timeline.commits()
        if instant.action is Action.REPLACE_COMMIT
        for partition, file_ids in state.documents.commit(instant).replaced_file_ids.items()
        for file_id in file_ids
    }


def _touched(state: TableState, earliest: Instant, holders: Collection[InstantTime]) -> Collection[str]:
    """The partitions in which something may have become old since the last clean; all, if that does not tell.

    A savepoint or a lease that is gone may have kept files anywhere.
    """
    cleans = [i for i in state.timeline.completed() if i.action is Action.CLEAN]
    last = state.documents.clean(cleans[-1]) if cleans else None
    since = state.timeline.completion_of(InstantTime(last.earliest_to_retain)) if last else None
    noted = [last.extra_metadata.get(key, "") for key in (SAVEPOINTS, LEASES)] if last else []
    held = {time for times in noted for time in times.split(",") if time}
    if since is None or held - {*holders}:
        return state.files.keys()
    window = [i for i in state.timeline.commits() if since <= (i.completed_at or "") < (earliest.completed_at or "")]
    return {name for i in window for name in _partitions_of(state, i)} & state.files.keys()


def _partitions_of(state: TableState, commit: Instant) -> set[str]:
    found = state.documents.commit(commit)
    return {*found.write_stats, *found.replaced_file_ids}


def _check_is_clean(context: ServiceContext, instant: InstantTime) -> None:
    for known in context.handle.state().timeline.pending():
        if known.requested_at == instant and known.action is not Action.CLEAN:
            raise InvalidInputError(
                f"{instant} is the plan of a {known.action}, not of a clean",
                hint="table.services.execute(instant) executes every kind of plan",
            )


def _load_plan(section: Section, instant: InstantTime) -> CleanPlan:
    path = section.path(Instant(instant, Action.CLEAN, State.REQUESTED))
    return decode_clean_plan(section.ports.storage.get(path), path=path)


def _still_valid(section: Section, state: TableState, plan: CleanPlan) -> CleanPlan:
    """A plan without the files that came to be needed since it was made, unless they are gone already.

    Our savepoints are refused while a plan covers their files; those of other engines are not. Leases come and go.
    """
    savepoints, leases = _savepoints(section), leased_points(section)
    needed = needed_names(section, savepoints) | leased_names(state, leases)

    def stays(partition: str, name: str) -> bool:
        # An attempt before this one may have deleted it: then the metadata table must be told.
        return name in needed and section.ports.storage.size(_path(partition, name)) is not None

    files = {name: tuple(file for file in names if not stays(name, file)) for name, names in plan.files.items()}
    held = {name for name in plan.files if len(files[name]) < len(plan.files[name])}
    partitions = tuple(name for name in plan.partitions if name not in held)
    extra = _holders(plan.extra_metadata, savepoints, leases)
    return replace(plan, files=files, partitions=partitions, extra_metadata=extra)


class _PartitionInUseError(Exception):
    """A partition that was to go is written to again."""


def _complete(context: ServiceContext, attempt: Attempt, plan: CleanPlan) -> tuple[InstantTime, CleanPlan]:
    def check(section: Section) -> None:
        _check_unused(section, state_in(context, section), attempt.instant, plan.partitions)

    prepared = PreparedCommit(attempt.instant, Action.CLEAN, _metadata_of(attempt.instant, plan))
    entries = context.plane.entries(context.handle.state(), prepared)
    try:
        return commit(context.transactions, attempt, prepared, entries, check=check), plan
    except _PartitionInUseError:
        return _complete(context, attempt, replace(plan, partitions=()))


def _check_unused(section: Section, state: TableState, clean: InstantTime, partitions: Collection[str]) -> None:
    """The entry of a partition that goes would take with it what was written there since."""
    if not partitions:
        return
    writes = [i for i in section.timeline.pending() if i.action not in HOLDS_NOTHING and i.requested_at < clean]
    since = (i for i in state.timeline.commits() if (i.completed_at or "") > clean)
    if writes or any(_partitions_of(state, i) & {*partitions} for i in since):
        raise _PartitionInUseError


def _metadata_of(instant: InstantTime, plan: CleanPlan) -> CleanMetadata:
    partitions = {
        name: CleanedPartition(
            name,
            plan.policy,
            planned=plan.files.get(name, ()),
            deleted=plan.files.get(name, ()),
            is_partition_deleted=name in plan.partitions,
        )
        for name in (*plan.files, *(name for name in plan.partitions if name not in plan.files))
    }
    return CleanMetadata(
        started_at=instant,
        earliest_to_retain=plan.earliest_to_retain.requested_at if plan.earliest_to_retain else "",
        last_completed=plan.last_completed,
        partitions=partitions,
        total_files_deleted=sum(map(len, plan.files.values())),
        extra_metadata=plan.extra_metadata,
    )


def _remove_metafiles(context: ServiceContext, partitions: Collection[str]) -> None:
    """Partitions that are gone lose the file that makes them one, unless a write may be about to use them again."""
    with context.transactions.section() as section:
        state = state_in(context, section)
        if any(i.action not in HOLDS_NOTHING for i in section.timeline.pending()):
            return
        for partition in partitions:
            if not state.files.get(partition):
                delete_file(section.ports.storage, f"{partition}/.{PARTITION_METAFILE}.crc")
                delete_file(section.ports.storage, f"{partition}/{PARTITION_METAFILE}")


def _path(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name
