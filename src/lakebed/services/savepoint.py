"""Savepoints: commits whose files no clean deletes until the savepoint is removed."""

from __future__ import annotations

from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.format.timeline.metadata import encode_savepoint
from lakebed.model.commit import SavepointMetadata
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.read.snapshot import check_retained
from lakebed.services.clean.run import pending_cleans, state_in
from lakebed.services.values import ServiceContext
from lakebed.storage import Outcome
from lakebed.table import TableState
from lakebed.transaction.rollback import targets_of_rollbacks
from lakebed.transaction.section import Section, end_tickets, revoke_tickets


def savepoint(
    context: ServiceContext, instant: InstantTime | None = None, *, saved_by: str = "", comments: str = ""
) -> InstantTime:
    """Keeps the table readable as of a completed write, by default the newest; returns that write."""
    commits = context.handle.state().timeline.commits()
    if instant is None and not commits:
        raise InvalidInputError("there is no completed write to put a savepoint on", hint="write to the table first")
    target = instant or commits[-1].requested_at
    with context.transactions.section(opens=target) as section:
        section.check_no_restore()
        if _find(section, target) is None:
            files = _files(section, state_in(context, section), target)
            _add(section, target, SavepointMetadata(files, saved_by, section.ports.clock.now_ms(), comments))
    return target


def delete_savepoint(context: ServiceContext, instant: InstantTime) -> None:
    """Removes a savepoint; the next clean may delete files that only it kept."""
    with context.transactions.section() as section:
        section.check_no_restore()
        found = _find(section, instant)
        # The inflight file goes first: left alone, it would look like a savepoint being created.
        inflight = Instant(instant, Action.SAVEPOINT, State.INFLIGHT)
        if found is None and inflight not in section.timeline.pending():
            raise InvalidInputError(f"{instant} has no savepoint", hint=_known(section))
        revoke_tickets(section.ports, instant)  # Its creator may have died before revoking them.
        section.remove(inflight)
        if found is not None:
            section.remove(found)


def _find(section: Section, instant: InstantTime) -> Instant | None:
    savepoints = (i for i in section.timeline.completed() if i.action is Action.SAVEPOINT)
    return next((i for i in savepoints if i.requested_at == instant), None)


def _known(section: Section) -> str:
    savepoints = [i.requested_at for i in section.timeline.completed() if i.action is Action.SAVEPOINT]
    return f"there are savepoints at {', '.join(savepoints)}" if savepoints else "the table has no savepoints"


def _files(section: Section, state: TableState, target: InstantTime) -> dict[str, tuple[str, ...]]:
    """Files that a reader as of the target needs, after checking that all exist and will stay."""
    completed_at = section.timeline.completion_of(target)
    if completed_at is None:
        raise _not_completed(section, state, target)
    undone = targets_of_rollbacks(section)
    for write in section.timeline.commits():
        if write.requested_at in undone and (write.completed_at or "") <= completed_at:
            raise WriteConflictError(
                f"{write.requested_at}, which a savepoint on {target} would keep, is about to be rolled back",
                hint="run the call again after the rollback",
            )
    snapshot = state.snapshot_at(completed_at)
    check_retained(state, snapshot)
    files: dict[str, tuple[str, ...]] = {}
    for file_slice in state.slices(snapshot):
        names = tuple(path.rpartition("/")[2] for path in file_slice.paths)
        files[file_slice.group.partition] = (*files.get(file_slice.group.partition, ()), *names)
    for clean, plan in pending_cleans(section):
        if any({*names} & {*files.get(partition, ())} for partition, names in plan.files.items()):
            raise InvalidInputError(
                f"the pending clean {clean} deletes files that {target} needs",
                hint="create the savepoint on a later write",
            )
    return files


def _not_completed(section: Section, state: TableState, target: InstantTime) -> InvalidInputError:
    if any(i.requested_at == target for i in section.timeline.pending()):
        return InvalidInputError(f"{target} has not completed", hint="create the savepoint on a completed write")
    if state.archive.completions([target]):
        return InvalidInputError(f"{target} is archived", hint="create the savepoint on a write of the active timeline")
    return InvalidInputError(
        f"there is no write {target}", hint="table.timeline.commits() lists the writes that can have a savepoint"
    )


def _add(section: Section, target: InstantTime, metadata: SavepointMetadata) -> None:
    section.request(Instant(target, Action.SAVEPOINT, State.INFLIGHT), b"")
    ticket = section.open_ticket(target)
    done = Instant(target, Action.SAVEPOINT, State.COMPLETED, section.next_time())
    outcome = section.complete(ticket, done, encode_savepoint(metadata))
    end_tickets(section.ports, target, outcome)
    if outcome is not Outcome.DONE:
        raise WriteConflictError(f"the savepoint on {target} could not be created", hint="run the call again")
