"""Findings about pending instants that nobody works on."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.model.instant import Instant
from lakebed.model.words import Action, State
from lakebed.services.clean.run import HOLDS_NOTHING
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.doctor.look import Examination, written_at
from lakebed.transaction.plans import SERVICES

_WRITES = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


def find_dead_instants(look: Examination) -> Iterator[Finding]:
    """Findings about pending instants whose process is gone, and unexecuted plans; not targets of rollbacks."""
    restores = [i for i in look.pending if i.action is Action.RESTORE]
    undone = set(look.plans.targets.values())
    for instant in restores or look.pending:
        if instant.requested_at not in undone and not look.is_alive(instant.requested_at) and _is_due(look, instant):
            yield _describe(look, instant)


def _is_due(look: Examination, instant: Instant) -> bool:
    """Whether it should be over by now.

    A write without a live heartbeat is dead: the heartbeat begins first and ends last. Other instants get time: a plan
    waits for its execution, some engines execute without a heartbeat, savepoints and indexes are made under the lock.
    """
    if instant.action in (*_WRITES, Action.ROLLBACK, Action.RESTORE):
        return True
    if instant.requested_at in look.leftovers.heartbeats or instant.requested_at in look.plans.unreadable:
        return True
    written = written_at(look.written, look.config, instant)
    return look.moment.is_dead(written) if instant.action is Action.SAVEPOINT else look.moment.is_overdue(written)


def _describe(look: Examination, instant: Instant) -> Finding:
    time, blocks = instant.requested_at, ", ".join(_blocked(look, instant))
    if time in look.plans.unreadable:
        problem = f"the plan of the {instant.action} cannot be read: {look.plans.unreadable[time]}"
        return Finding(
            FindingKind.PENDING, time, problem, blocks, Remedy.BY_HAND, "restore the file from a copy of the table"
        )
    problem, remedy, repair = _remedy(look, instant)
    return Finding(FindingKind.PENDING, time, problem, blocks, remedy, repair)


def _remedy(look: Examination, instant: Instant) -> tuple[str, Remedy, str]:
    time, action = instant.requested_at, instant.action
    target = look.plans.targets.get(time)
    if action is Action.ROLLBACK:
        return f"the rollback of {target} was not executed", Remedy.ROLL_BACK, f"execute it: {target} is removed"
    if action is Action.RESTORE:
        problem = f"the restore to {target} was interrupted"
        return problem, Remedy.FINISH_RESTORE, f"continue it until the table is restored to {target}"
    if action is Action.SAVEPOINT:
        return "the savepoint was not finished", Remedy.CLEAR, "remove it; the write that it protects stays"
    if action is Action.INDEXING:
        return _indexing(look, instant)
    if action in SERVICES:
        return _service(look, instant)
    staged = look.leftovers.staged_bytes.get(time)
    rows = f"; its staged rows take {staged:,} bytes" if staged else ""
    problem = f"the process of this {action} is gone{rows}"
    return problem, Remedy.ROLL_BACK, "roll it back: delete its files, then the instant"


def _indexing(look: Examination, instant: Instant) -> tuple[str, Remedy, str]:
    plan = look.plans.builds[instant.requested_at]
    building = ", ".join(name for name in plan.partitions if name not in look.config.metadata_partitions)
    if not building:
        return "its indexes are ready, but it has not completed", Remedy.FINISH_INDEXING, "complete it"
    if plan.is_own and instant.state is State.INFLIGHT:
        problem = f"the process that built {building} is gone"
        return problem, Remedy.ROLL_BACK, "take the build back: delete its files, then its plan"
    if plan.is_own:
        problem = f"{building} is planned, and nobody builds it"
        return problem, Remedy.BY_HAND, f"build it: table.indexes.run({building!r}), or drop it"
    problem = f"{building} is being built, but no process seems to work on it"
    return problem, Remedy.BY_HAND, "let the engine that began it finish the index, or drop it there"


def _service(look: Examination, instant: Instant) -> tuple[str, Remedy, str]:
    begun = instant.state is State.INFLIGHT
    problem = f"the process that executed this {instant.action} is gone" if begun else "nobody executes this plan"
    if instant.requested_at in look.plans.removable:
        return problem, Remedy.ROLL_BACK, f"roll back the plan of the {instant.action}: it is removable"
    return problem, Remedy.EXECUTE, f"execute the {instant.action}"


def _blocked(look: Examination, instant: Instant) -> Iterator[str]:
    """What the pending instant blocks."""
    if instant.action is Action.RESTORE:
        yield "every write and every table service"
        return
    if instant.action is Action.SAVEPOINT:
        return
    if instant.requested_at in look.plans.groups:
        groups = look.plans.groups[instant.requested_at]
        yield f"rewriting {groups} file group{'s' if groups != 1 else ''}"
    yield f"archiving of instants completed since {instant.requested_at}"
    if instant.action not in HOLDS_NOTHING or instant.action is Action.ROLLBACK:
        yield "cleaning of files that existed then"
    twins = {i.requested_at for i in look.metadata_timeline}
    if {instant.requested_at, look.plans.targets.get(instant.requested_at)} & twins:
        yield "compaction of the metadata table beyond it"
