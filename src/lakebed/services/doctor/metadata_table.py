"""Findings about the metadata table itself: is it readable, is it maintained, and what blocks its maintenance."""

from __future__ import annotations

from collections.abc import Iterator

from lakebed.metadata.upkeep.compaction import DELTA_COMMITS
from lakebed.metadata.upkeep.maintenance import TAKEN_UP
from lakebed.model.words import Action
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.doctor.look import Examination, written_at
from lakebed.timeline import Timeline
from lakebed.transaction.section import METADATA

_OVERDUE = 2 * DELTA_COMMITS
"""Number of uncompacted delta commits to report: twice the regular number, as a compaction may be partial."""


def find_metadata_problems(look: Examination) -> Iterator[Finding]:
    """Findings about the metadata table, without its entries."""
    if look.metadata_problem is not None:
        yield Finding(
            FindingKind.METADATA,
            METADATA.rstrip("/"),
            look.metadata_problem,
            "reads through the metadata table, and every write",
            Remedy.BY_HAND,
            "restore its hoodie.properties from a copy, or read with hoodie.metadata.enable=false",
        )
    elif look.metadata is not None:
        yield from _unfinished(look)
        yield from _not_compacted(look)


def _unfinished(look: Examination) -> Iterator[Finding]:
    """Findings about old pending instants of nobody: those of no write and of no index build."""
    known = {i.requested_at for i in look.state.timeline}
    for instant in look.metadata_timeline.pending():
        time = instant.requested_at
        is_owned = time in known or any(plan.owns(time) for plan in look.plans.builds.values())
        if is_owned or not look.moment.is_dead(written_at(look.metadata_written, look.config, instant)):
            continue
        blocks = "compaction of the metadata table, which grows with every write"
        if instant.action in TAKEN_UP:
            problem, remedy = f"the {instant.action} of the metadata table was not executed", Remedy.MAINTAIN
            yield Finding(FindingKind.METADATA, time, problem, blocks, remedy, "execute it")
        elif instant.action is Action.DELTA_COMMIT:
            problem = "no instant of the table has the time of this delta commit of the metadata table"
            yield Finding(FindingKind.METADATA, time, problem, blocks, Remedy.ROLL_BACK, "roll it back, with its files")
        else:
            problem = f"the {instant.action} of the metadata table was not executed"
            yield Finding(
                FindingKind.METADATA, time, problem, blocks, Remedy.BY_HAND, "let the engine that began it finish"
            )


def _not_compacted(look: Examination) -> Iterator[Finding]:
    count = _uncompacted(look.metadata_timeline)
    if count < _OVERDUE or any(i.action in TAKEN_UP for i in look.metadata_timeline.pending()):
        return
    blocker = _blocker(look)
    problem = f"the metadata table has {count} delta commits that are not compacted"
    blocks = "archiving of the table; reads and writes get slower"
    if blocker is None:
        yield Finding(FindingKind.METADATA, METADATA.rstrip("/"), problem, blocks, Remedy.MAINTAIN, "compact it")
    elif look.is_alive(blocker):
        problem = f"{problem}: it cannot be compacted beyond {blocker}, which is in flight"
        yield Finding(
            FindingKind.METADATA, blocker, problem, blocks, Remedy.BY_HAND, "wait for that write, or end its process"
        )


def _uncompacted(timeline: Timeline) -> int:
    """Delta commits that the last compaction left out; it may have been blocked from all but the oldest."""
    last = max((i.requested_at for i in timeline.commits() if i.action is Action.COMMIT), default="")
    return sum(i.action is Action.DELTA_COMMIT and (i.completed_at or "") > last for i in timeline.commits())


def _blocker(look: Examination) -> str | None:
    """The oldest instant with entries in the metadata table that is pending or about to be rolled back."""
    pending = {i.requested_at for i in look.state.timeline.pending() if i.action is not Action.SAVEPOINT}
    held = {*pending, *look.plans.targets.values()}
    return min((i.requested_at for i in look.metadata_timeline if i.requested_at in held), default=None)
