"""Plans of table services: scheduled by one process, executed by any, but only by one at a time.

An immutable plan stays until it is executed; the files of a dead attempt are rolled back before the next one. A
removable plan is marked so in its extra metadata: once begun it completes or is rolled back together with the plan, and
until it completes it can be cancelled. A clean is executed again as it is: deleting a file twice does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

from lakebed.errors import (
    CommitUnknownError,
    InvalidInputError,
    RolledBackError,
    ServiceCancelledError,
    ServiceRunningError,
    WriteConflictError,
)
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome
from lakebed.timeline import Timeline
from lakebed.transaction.attempt import Attempt, put_in_flight, start_attempt, taken_over
from lakebed.transaction.heartbeats import FOLDER as HEARTBEATS
from lakebed.transaction.heartbeats import Timing, load_ages, spell_wait
from lakebed.transaction.markers import open_markers
from lakebed.transaction.plans import SERVICES, cancel_marker, is_begun_elsewhere, is_cancelled, is_removable, time_left
from lakebed.transaction.ports import Ports
from lakebed.transaction.rollback import Rollbacks, rollbacks_by_target, targets_of_rollbacks
from lakebed.transaction.section import Section, lost_lock, open_section, revoke_ticket, revoke_tickets

Planner = Callable[[Section, InstantTime], "bytes | None"]
"""Makes the content of a plan with that time, from the table as it is under the lock; None if nothing is to be done."""


class Executions:
    """Table services of one process on one table, as far as the timeline sees them."""

    def __init__(self, ports: Ports, timing: Timing, rollbacks: Rollbacks) -> None:
        self._ports = ports
        self._timing = timing
        self._rollbacks = rollbacks

    def schedule(self, action: Action, make_plan: Planner) -> InstantTime | None:
        """Puts a plan on the timeline; its instant, or None if there is nothing to do."""
        with open_section(self._ports, self._timing) as section:
            section.check_no_restore()
            instant = section.next_time()
            plan = make_plan(section, instant)
            if plan is None:
                return None
            self._ports.at("service.X0")
            section.request(Instant(instant, action, State.REQUESTED), plan)
        return instant

    def begin(self, instant: InstantTime) -> Attempt:
        """X1 to X7: claims a plan, rolls back what an earlier attempt left, and puts the plan in flight."""
        with open_section(self._ports, self._timing) as section:
            section.check_no_restore()
            plan = find_plan(section.timeline, instant)
            _check_free(section, plan)
            section.check_lease()
            self._ports.at("service.X5")
            attempt = start_attempt(section, instant, plan.action)
            with attempt.given_up_on_failure():
                left = self._undo_attempt(section, plan)
                if left is None:
                    self._put_in_flight(section, attempt)
        with attempt.given_up_on_failure():
            if left is not None:
                self._undo_and_go_on(attempt, left)
            open_markers(self._ports.storage, instant)
        return attempt

    def _undo_and_go_on(self, attempt: Attempt, left: InstantTime) -> None:
        """X6 and X7: executes the rollback of an earlier attempt, then puts the plan in flight if it is still there."""
        if self._rollbacks.execute(left) is None:
            attempt.heartbeat.stop()
            raise _running(attempt.instant)
        with open_section(self._ports, self._timing) as section:
            section.check_no_restore()
            is_there = attempt.in_state(State.REQUESTED) in section.timeline.pending()
            if not is_there or not attempt.heartbeat.is_certain():
                raise taken_over(attempt.instant)
            self._put_in_flight(section, attempt)

    def _put_in_flight(self, section: Section, attempt: Attempt) -> None:
        self._ports.at("service.X7")
        put_in_flight(section, attempt)

    @contextmanager
    def ended_on_failure(self, attempt: Attempt, *, is_idle: bool) -> Iterator[None]:
        """Gives an attempt up if what follows fails; see `give_up`."""
        try:
            yield
        except (CommitUnknownError, RolledBackError):
            # It may have taken place, or another process is at it: nothing may be undone, and by the heartbeat, once
            # that is old, others find what is left.
            attempt.heartbeat.rest()
            raise
        except BaseException:
            self.give_up(attempt, is_idle=is_idle)
            raise

    def give_up(self, attempt: Attempt, *, is_idle: bool) -> None:
        """Ends a failed attempt. Unless it `is_idle`, a task may still write: then its heartbeat is left to expire."""
        attempt.heartbeat.rest()
        if is_idle:
            attempt.heartbeat.stop()

    def cancel(self, instant: InstantTime) -> None:
        """Cancels a removable plan, so that it never completes; a plan that no longer exists counts as cancelled."""
        with open_section(self._ports, self._timing) as section:
            section.check_no_restore()  # What it has made pending again is for it to undo.
            plan = next((i for i in section.timeline.pending() if i.requested_at == instant), None)
            if plan is None and section.timeline.completion_of(instant) is None:
                return
            if plan is None or not is_removable(section, plan):
                raise InvalidInputError(
                    f"{instant} cannot be cancelled",
                    hint="only pending plans that were scheduled as removable can be cancelled",
                )
            cancel_plan(section, plan)

    def check_not_cancelled(self, instant: InstantTime) -> None:
        """Raises ServiceCancelledError if somebody has cancelled the plan; asked between units of work."""
        if is_cancelled(self._ports.storage, instant):
            raise _cancelled(instant)

    def _undo_attempt(self, section: Section, plan: Instant) -> InstantTime | None:
        """X6: the rollback that undoes what an earlier attempt at an immutable plan left; None if there was none."""
        if plan.action is Action.CLEAN:
            return None
        known = rollbacks_by_target(section).get(plan.requested_at)
        if known is None and plan.state is State.INFLIGHT:
            known = self._rollbacks.schedule_attempt(section, plan)
        return known


def find_plan(timeline: Timeline, instant: InstantTime) -> Instant:
    """X1: the pending plan of that time."""
    for pending in timeline.pending():
        if pending.requested_at == instant and pending.action in SERVICES:
            return pending
    if any(i.requested_at == instant for i in timeline.completed()):
        raise InvalidInputError(f"{instant} has already been executed", hint="schedule a new plan")
    raise InvalidInputError(
        f"there is no plan {instant} to execute", hint="table.timeline.pending() lists the pending plans"
    )


def cancel_plan(section: Section, plan: Instant) -> None:
    """Cancels a plan. Once its tickets are revoked it can no longer complete; if it completed before, it stays.

    The cancel marker is published by a ticket of the plan, opened before the others are revoked. An executor revokes
    that ticket before it looks for the marker, so a process that has lost the lock cannot publish the marker late.
    """
    ports, instant = section.ports, plan.requested_at
    ports.at("service.cancel")
    ticket, is_done = section.open_ticket(instant), False
    try:
        revoke_tickets(ports, instant, but=ticket)
        section.forget_timeline()
        if all(other.requested_at != instant for other in section.timeline.pending()):
            raise WriteConflictError(
                f"{plan.action} {instant} completed first, or was removed", hint="run the call again"
            )
        is_done = ports.storage.publish(ticket, cancel_marker(instant), b"") is Outcome.DONE
    finally:
        revoke_ticket(ports, ticket, in_use=not is_done)
    if not is_cancelled(ports.storage, instant):
        raise lost_lock(ports)


def _check_free(section: Section, plan: Instant) -> None:
    """X2 to X4: raises unless the plan is not being executed and may still be."""
    instant = plan.requested_at
    if section.heartbeats.get(instant, False):
        raise running_elsewhere(section, instant, f"executing {instant}")
    if is_begun_elsewhere(section, plan):
        raise _begun_elsewhere(section, plan)
    if is_cancelled(section.ports.storage, instant):
        raise _cancelled(instant)
    begun = plan.state is State.INFLIGHT or instant in targets_of_rollbacks(section)
    if begun and is_removable(section, plan):
        wait = spell_wait(time_left(section, replace(plan, state=State.REQUESTED)))
        raise ServiceCancelledError(
            f"{plan.action} {instant} was begun by a process that died, and its plan is removable",
            hint=f"table.services.rollback_failed_writes() removes it in {wait}; then schedule a new one",
        )


def running_elsewhere(section: Section, instant: InstantTime, work: str) -> ServiceRunningError:
    """The error for whoever wants to do what another live process is at."""
    age = load_ages(section.ports, HEARTBEATS).get(instant, timedelta(0))
    wait = spell_wait(section.timing.dead_after - age)
    return ServiceRunningError(
        f"another process is {work}; its last heartbeat was {max(0, int(age.total_seconds()))} s ago",
        hint=f"leave it to that process; without another heartbeat it is considered dead in {wait}",
    )


def _begun_elsewhere(section: Section, plan: Instant) -> ServiceRunningError:
    return ServiceRunningError(
        f"another engine began {plan.action} {plan.requested_at} and may still be executing it: it has no heartbeat",
        hint=f"leave it to that engine; it is considered dead in {spell_wait(time_left(section, plan))} (option "
        "table_service_rollback_delay)",
    )


def _running(instant: InstantTime) -> ServiceRunningError:
    return ServiceRunningError(
        f"another process is executing {instant}, or rolling back an earlier attempt", hint="leave it to that process"
    )


def _cancelled(instant: InstantTime) -> ServiceCancelledError:
    return ServiceCancelledError(f"the plan {instant} was cancelled", hint="schedule a new one")
