"""Index plans on the timeline: finished or taken back if their process died, and what a dead build left is cleared.

    plan, nobody at it          scheduled: writers keep the index up to date, anybody may run the plan
    in flight, heartbeat lives  its process builds the index
    in flight, heartbeat dead   the index is named as ready: the plan lacks only its end. Else it is taken back

Plans of other engines are left to these: they write no heartbeats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakebed.errors import InvalidInputError, LakebedError
from lakebed.format.timeline.metadata import encode_index_commit, encode_index_plan
from lakebed.index.obliged import find_groups, planned_shards
from lakebed.metadata.bootstrap import reserved_instant
from lakebed.metadata.table import ROOT
from lakebed.model.commit import IndexedPartition, IndexPlan
from lakebed.model.config import TAKEN_BACK
from lakebed.model.instant import Instant, InstantTime, is_reserved
from lakebed.model.words import Action, State
from lakebed.services.indexing.steps import (
    clear_partition,
    publish,
    set_building,
    store_definition,
    stored_definitions,
)
from lakebed.storage.confirm import delete_file
from lakebed.timeline.config import load_config
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.config import change_config
from lakebed.transaction.executions import running_elsewhere
from lakebed.transaction.heartbeats import heartbeat_path
from lakebed.transaction.index_plans import PendingPlan, plans_of
from lakebed.transaction.leases import delete_dead_leases
from lakebed.transaction.rollback import undo_metadata
from lakebed.transaction.section import Section, end_tickets, revoke_tickets
from lakebed.transaction.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of pending index plans: those taken back, and those that others are at."""

    aborted: tuple[PendingPlan, ...] = ()
    at_work: tuple[PendingPlan, ...] = ()


def settle(transactions: Transactions, section: Section, partition: str | None = None) -> frozenset[str]:
    """Clears away what dead processes left in the metadata table; the partitions whose plans were taken back.

    A plan for that `partition` that nobody runs is taken back, too. Raises while the index of the partition is being
    built elsewhere; without one, while any index is.
    """
    settled = _sweep(transactions, section, unused=() if partition is None else (partition,))
    for plan in settled.at_work:
        waiting = _unready(section, plan)
        if partition is None or not waiting or partition in waiting:
            raise _being_built(section, plan.instant.requested_at, ", ".join(sorted(waiting)) or "an index")
    return frozenset(name for plan in settled.aborted for name in plan.partitions)


def find_waiting(transactions: Transactions, section: Section, partition: str) -> PendingPlan:
    """The plan of lakebed for a partition that nobody runs; raises if there is none."""
    for plan in _sweep(transactions, section).at_work:
        if partition in _unready(section, plan):
            raise _being_built(section, plan.instant.requested_at, partition)
    for plan in plans_of(section):
        if plan.instant.state is State.REQUESTED and partition in _unready(section, plan):
            return plan
    raise InvalidInputError(
        f"no build of {partition} is planned", hint=f"build it: table.indexes.create({partition!r})"
    )


def _sweep(transactions: Transactions, section: Section, unused: Collection[str] = ()) -> Settled:
    section.check_no_restore()
    transactions.rollbacks.sweep(section)
    return settle_plans(section, unused=unused)


def _being_built(section: Section, instant: InstantTime, names: str) -> LakebedError:
    if section.heartbeats.get(instant, False):
        return running_elsewhere(section, instant, f"building {names} since {instant}")
    return InvalidInputError(
        f"{names} is being built since {instant}",
        hint="let the engine that began it finish or drop it, then run the call again",
    )


def settle_plans(section: Section, *, unused: Collection[str] | None = ()) -> Settled:
    """Finishes or takes back what dead processes left of pending plans, and `unused` plans of these partitions.

    With None, all plans that nobody runs are taken back.
    """
    _end_last_tickets(section)
    aborted, at_work = [], []
    for plan in [*plans_of(section)]:
        is_alive = section.heartbeats.get(plan.instant.requested_at, False)
        if not is_alive and not _unready(section, plan):
            complete_plan(section, plan)
        elif is_alive or not plan.is_own:
            at_work.append(plan)
        elif _is_dead(section, plan) or unused is None or not set(unused).isdisjoint(plan.partitions):
            abort(section, plan)
            aborted.append(plan)
    if aborted:
        delete_dead_leases(section)  # The builder had one on the rows that it read.
    return Settled(tuple(aborted), tuple(at_work))


def reclaim(transactions: Transactions) -> tuple[InstantTime, ...]:
    """Finishes or takes back index builds whose process died; those that were taken back."""
    storage = transactions.ports.storage
    instants = list_instants(storage, load_config(storage))
    if not any(i.action is Action.INDEXING and not i.is_completed for i in instants):
        return ()
    with transactions.section() as section:
        section.check_no_restore()
        return tuple(plan.instant.requested_at for plan in settle_plans(section).aborted)


def abort(section: Section, plan: PendingPlan) -> None:
    """Takes a build back: first nobody can publish it any more, then its files go, last of all the plan.

    Whoever finds half of this goes on with it: the plan is there as long as anything of the build is, and so is its
    heartbeat, dead.
    """
    instant = plan.instant.requested_at
    section.ports.at("index.abort")
    revoke_tickets(section.ports, instant)
    section.forget_timeline()
    section.forget_timeline(ROOT)
    if section.timeline.completion_of(instant) is not None:
        return
    if not _unready(section, plan):
        complete_plan(section, plan)
        return
    # Files of a build are told by its time: what a paused process deletes must not be of one that has the same time.
    change_config(section, {TAKEN_BACK: max(instant, section.config.last_taken_back or instant)})
    # From here on its process cannot complete it, even if it is alive and finds the lock free in the midst of this.
    section.check_lease()
    section.remove(Instant(instant, Action.INDEXING, State.INFLIGHT))
    defined = stored_definitions(section)
    for partition in sorted(_unready(section, plan)):
        set_building(section, partition, building=False)
        undo_metadata(section, plan.build_of(partition) or instant)
        clear_partition(section, partition)
        if partition in defined and defined[partition].is_unfinished:
            store_definition(section, partition, None)
    section.ports.at("index.abort")
    section.check_lease()
    section.remove_pending(instant, Action.INDEXING)
    delete_file(section.ports.storage, heartbeat_path(instant))


def complete_plan(section: Section, plan: PendingPlan) -> None:
    """Completes a plan whose indexes the table configuration names: only the end of the instant is missing."""
    instant = plan.instant.requested_at
    finish_instant(section, instant, plan.plan)
    delete_file(section.ports.storage, heartbeat_path(instant))


def finish_instant(section: Section, instant: InstantTime, plan: IndexPlan) -> None:
    """Completes an indexing instant of an index that is ready."""
    inflight = Instant(instant, Action.INDEXING, State.INFLIGHT)
    if inflight not in section.timeline.pending():
        section.add(inflight)
    ticket = section.open_ticket(instant)
    done = Instant(instant, Action.INDEXING, State.COMPLETED, section.next_time())
    publish(section, ticket, done, encode_index_commit(plan), "")


def note_indexing(section: Section, mdt_partition: str) -> None:
    """Tells the table's timeline of an index that is ready, as Apache Hudi's CREATE INDEX does: readers look again."""
    commits = section.timeline.commits()
    plan = IndexPlan((IndexedPartition(mdt_partition, commits[-1].requested_at if commits else ""),))
    instant = section.next_time()
    section.request(Instant(instant, Action.INDEXING, State.REQUESTED), encode_index_plan(plan))
    finish_instant(section, instant, plan)


def _unready(section: Section, plan: PendingPlan) -> frozenset[str]:
    return frozenset(plan.partitions) - set(section.config.metadata_partitions)


def _is_dead(section: Section, plan: PendingPlan) -> bool:
    """Whether a process died that built it or was about to, or that took it back.

    Whoever only plans a build takes the heartbeat of the plan away.
    """
    if plan.instant.state is State.INFLIGHT or plan.instant.requested_at in section.heartbeats:
        return True
    storage, planned = section.ports.storage, planned_shards(section.ports.storage, section.config, section.timeline)
    return any(find_groups(storage, name, (), planned.get(name)) is None for name in _unready(section, plan))


def _end_last_tickets(section: Section) -> None:
    """Ends tickets that a process left which died just after an instant had completed, or before it was requested."""
    noted = [i for i in section.timeline.completed() if i.action is Action.INDEXING]
    built = [i for i in section.metadata_timeline.completed() if is_reserved(i.requested_at)]
    for done in (*noted[-1:], *built[-1:]):
        end_tickets(section.ports, done.requested_at)
    if section.config.index_builds:
        end_tickets(section.ports, reserved_instant(section.config.index_builds - 1))
