"""Restore: the table as it stood when an earlier write had completed, and everything after it undone.

While a restore is on the timeline nobody else completes anything. Each instant is unpublished before any of its files
goes, so that a new reader sees it whole or not at all. Whoever comes after a crash goes on from there.

The metadata table is carried along: what an undone write added to it goes with the write. Where that is no longer to be
told apart, because it was compacted or an index was built since, the table does without, from before the first write
is unpublished. In the same step the configuration notes which indexes are lost. They are built anew in the end, when
the restore has completed and others may write again; after a crash, by the next restore or repair.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.engine.engines import Engine
from lakebed.errors import InvalidInputError, TableRestoredError, WriteConflictError
from lakebed.format.timeline.plans import decode_restore_plan, encode_restore_plan
from lakebed.model.commit import InstantRef, RestoreMetadata, RestorePlan, RollbackMetadata, RolledBackPartition
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.options import IndexOptions
from lakebed.read.snapshot import check_retained
from lakebed.services.clean.run import delete_files, state_in
from lakebed.services.indexing.plans import settle_plans
from lakebed.services.indexing.steps import set_ready
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.table import TableState
from lakebed.transaction.archive import finish_archiving
from lakebed.transaction.attempt import Attempt, begin_attempt, start_attempt, taken_over
from lakebed.transaction.markers import drop_markers
from lakebed.transaction.rollback import files_of, undo_metadata
from lakebed.transaction.section import METADATA, Section, revoke_tickets

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


def restore(
    context: ServiceContext,
    instant: InstantTime,
    *,
    needs_savepoint: bool = True,
    indexes: IndexOptions | None = None,
) -> ServiceResult:
    """Sets the table back to what it was when a write had completed; goes on with such a restore that was interrupted.

    The write must have a savepoint, which has kept its files from being cleaned, unless that is not asked for. Indexes
    that the table had before it has again afterwards; the result names those that could not be built anew.
    """
    if not any(i.action is Action.RESTORE for i in context.handle.state().timeline.pending()):
        context.transactions.rollbacks.run()
    attempt, plan = _begin(context, instant, needs_savepoint=needs_savepoint)
    try:
        _prepare_metadata(context, attempt, plan)
        _unpublish(context, plan)
        undone = {ref.requested_at: _undo(context, attempt, ref) for ref in plan.instants}
    except BaseException:
        attempt.heartbeat.stop()  # Whatever went wrong, no task runs any more: the next process may go on at once.
        raise
    metadata = RestoreMetadata(attempt.instant, plan.instants, undone)
    with attempt.given_up_on_failure():
        prepared = PreparedCommit(attempt.instant, Action.RESTORE, metadata)
        completed_at = commit(context.transactions, attempt, prepared)
    context.handle.forget()
    missing = context.plane.rebuild_lost(context.transactions, context.handle, indexes or IndexOptions())
    counts = {"instants": len(plan.instants), "files": sum(each.total_files_deleted for each in undone.values())}
    return ServiceResult(attempt.instant, completed_at, str(Action.RESTORE), counts, missing)


def _begin(context: ServiceContext, target: InstantTime, *, needs_savepoint: bool) -> tuple[Attempt, RestorePlan]:
    """The barrier: from here on every other section refuses."""
    with context.transactions.section() as section:
        pending = [i for i in section.timeline.pending() if i.action is Action.RESTORE]
        if pending:
            return _take_up(section, pending[0].requested_at, target)
        finish_archiving(section)
        settle_plans(section, unused=None)  # What is being built, of what is there now, may be of no use in a moment.
        state = state_in(context, section)
        plan = _plan(section, state, target, needs_savepoint=needs_savepoint)
        attempt = begin_attempt(section, Action.RESTORE)
        with attempt.given_up_on_failure():
            section.request(attempt.in_state(State.REQUESTED), encode_restore_plan(plan), attempt.ticket)
        return attempt, plan


def _take_up(section: Section, instant: InstantTime, target: InstantTime) -> tuple[Attempt, RestorePlan]:
    path = section.path(Instant(instant, Action.RESTORE, State.REQUESTED))
    plan = decode_restore_plan(section.ports.storage.get(path), path=path)
    if plan.target != target:
        raise TableRestoredError(
            f"a restore to {plan.target} has not completed", hint=f"finish it first: restore to {plan.target}"
        )
    if section.heartbeats.get(instant, False):
        raise TableRestoredError(f"another process is restoring the table to {target}", hint="leave it to that process")
    return start_attempt(section, instant, Action.RESTORE), plan


def _plan(section: Section, state: TableState, target: InstantTime, *, needs_savepoint: bool) -> RestorePlan:
    completed_at = section.timeline.completion_of(target)
    if completed_at is None:
        raise _not_completed(section, target)
    _check_savepoints(section, target, completed_at, needed=needs_savepoint)
    _check_idle(section)
    check_retained(state, state.snapshot_at(completed_at))
    later = [i for i in section.timeline.commits() if (i.completed_at or "") > completed_at]
    plans = [i for i in section.timeline.pending() if i.action in _PLANS and i.requested_at > completed_at]
    undone = (*reversed(plans), *reversed(later))
    return RestorePlan(target, tuple(InstantRef(i.requested_at, str(i.action)) for i in undone))


def _not_completed(section: Section, target: InstantTime) -> InvalidInputError:
    if any(i.requested_at == target for i in section.timeline.pending()):
        return InvalidInputError(f"{target} has not completed", hint="restore to a completed write")
    return InvalidInputError(
        f"there is no write {target} on the active timeline", hint="table.timeline.commits() lists the writes"
    )


def _check_savepoints(section: Section, target: InstantTime, completed_at: InstantTime, *, needed: bool) -> None:
    saved = {i.requested_at for i in section.timeline.completed() if i.action is Action.SAVEPOINT}
    if needed and target not in saved:
        raise InvalidInputError(f"{target} has no savepoint", hint=f"create one first: table.savepoint({target!r})")
    later = [time for time in sorted(saved) if (section.timeline.completion_of(time) or "") > completed_at]
    if later:
        raise InvalidInputError(
            f"{later[0]}, which would be undone, has a savepoint", hint="delete the savepoint, or restore to it"
        )


def _check_idle(section: Section) -> None:
    """Nothing is at work on the table, and nothing waits that would take away what the restore brings back."""
    alive = sorted(instant for instant, is_alive in section.heartbeats.items() if is_alive)
    if alive:
        raise WriteConflictError(
            f"{alive[0]} is in flight", hint="stop all writers and services of the table, then restore it"
        )
    for instant in section.timeline.pending():
        if instant.action in (*_WRITES, Action.ROLLBACK, Action.CLEAN, Action.INDEXING):
            raise WriteConflictError(
                f"the {instant.action} {instant.requested_at} is still pending",
                hint="complete it or roll it back, then restore the table",
            )


def _prepare_metadata(context: ServiceContext, attempt: Attempt, plan: RestorePlan) -> None:
    """Decides, once, what becomes of the metadata table: the restore is in flight when that is settled."""
    with context.transactions.section() as section:
        if attempt.in_state(State.INFLIGHT) not in section.timeline.pending():
            if section.config.metadata_partitions and not _can_be_carried_along(section, plan):
                section.ports.at("restore.metadata")
                # Readers list folders from now on, whatever becomes of the metadata table.
                set_ready(section, (), dropped=section.config.metadata_partitions_inflight)
            section.add(attempt.in_state(State.INFLIGHT))
        if not section.config.metadata_partitions:
            _delete_metadata(section, context.plane.deletes)


def _can_be_carried_along(section: Section, plan: RestorePlan) -> bool:
    """Whether what undone writes added to the metadata table is still by itself there."""
    undone = {ref.requested_at for ref in plan.instants}
    completed = {i.requested_at for i in section.timeline.commits() if i.requested_at in undone}
    twins = {i.requested_at: i.completed_at or "" for i in section.metadata_timeline.commits()}
    if not completed <= twins.keys():
        return False
    first = min((twins[time] for time in completed), default="9" * 17)
    since = section.timeline.completion_of(InstantTime(plan.target)) or ""
    known = {i.requested_at for i in section.timeline if i.action is not Action.INDEXING}
    planned = (i for i in section.metadata_timeline.pending() if i.action in _PLANS)
    others = (i for i in (*section.metadata_timeline.commits(), *planned) if i.requested_at not in known)
    merged = section.metadata_timeline.log_compactions
    return all(_is_of_before(i, first, since, is_merge=i.requested_at in merged) for i in others)


def _is_of_before(instant: Instant, first: str, since: str, *, is_merge: bool) -> bool:
    """Whether an instant of the metadata table's own is of what was there before the first of the undone writes.

    A compaction, of logs or not, that is only planned counts: without the files that it is to take in it could never be
    executed.
    """
    is_compaction = is_merge or instant.action in (Action.COMMIT, *_PLANS)
    return (is_compaction and instant.requested_at < first) or (instant.completed_at or "9") <= since


def _delete_metadata(section: Section, engine: Engine) -> None:
    own = (Action.COMMIT, Action.CLEAN)  # Of the metadata table's maintenance, which may have died just after them.
    merged = section.metadata_timeline.log_compactions
    for instant in section.metadata_timeline:
        if not instant.is_completed or instant.action in own or instant.requested_at in merged:
            revoke_tickets(section.ports, instant.requested_at)  # What is deleted must not come back.
    paths = [listed.path for listed in section.ports.storage.list(METADATA.rstrip("/"), recursive=True)]
    for start in range(0, len(paths), 1000):
        section.check_lease()
        delete_files(section.ports.storage, paths[start : start + 1000], engine)


def _unpublish(context: ServiceContext, plan: RestorePlan) -> None:
    """Completed writes become pending again, the newest first."""
    with context.transactions.section() as section:
        completed = {instant.requested_at: instant for instant in section.timeline.commits()}
        for ref in plan.instants:
            instant = completed.get(InstantTime(ref.requested_at))
            if instant is not None:
                section.check_lease()
                section.ports.at("restore.unpublish")
                section.remove(instant)


def _undo(context: ServiceContext, attempt: Attempt, ref: InstantRef) -> RollbackMetadata:
    """Files of an unpublished instant go, then what the metadata table has of it, then the instant."""
    time = InstantTime(ref.requested_at)
    with context.transactions.section() as section:
        revoke_tickets(section.ports, time)
        files = {}
        for instant in _pending(section, time):
            files.update(files_of(section, instant))
    storage = context.handle.storage
    paths = ["/".join(filter(None, (name, file))) for name, of in files.items() for file in of]
    delete_files(storage, paths, context.plane.deletes)
    drop_markers(storage, time)
    with context.transactions.section() as section:
        section.check_lease()
        if not attempt.heartbeat.is_certain():
            raise taken_over(attempt.instant)
        section.ports.at("restore.undo")
        undo_metadata(section, time)
        for instant in _pending(section, time):
            section.remove_pending(time, instant.action)
    partitions = {
        name: RolledBackPartition(name, tuple("/".join(filter(None, (storage.url, name, file))) for file in of))
        for name, of in files.items()
    }
    return RollbackMetadata(
        attempt.instant, (time,), (ref,), partitions, total_files_deleted=sum(map(len, files.values()))
    )


def _pending(section: Section, time: InstantTime) -> Iterator[Instant]:
    return (i for i in section.timeline.pending() if i.requested_at == time and i.action is not Action.SAVEPOINT)
