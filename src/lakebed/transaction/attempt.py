"""An attempt at an instant: the right to work on it and to complete it, held by one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakebed.errors import RolledBackError, StorageUnavailableError
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Ticket
from lakebed.transaction.heartbeats import Heartbeat
from lakebed.transaction.section import Section, revoke_tickets


@dataclass(slots=True)
class Attempt:
    """One process at work on one instant. `ticket` is renewed when a takeover of the lock ended it."""

    instant: InstantTime
    action: Action
    heartbeat: Heartbeat
    ticket: Ticket

    @contextmanager
    def given_up_on_failure(self) -> Iterator[None]:
        """Lets the heartbeat grow old if what follows fails: then others may take the instant for dead."""
        try:
            yield
        except BaseException:
            self.heartbeat.rest()
            raise

    def in_state(self, state: State) -> Instant:
        """The instant in a state before its completion."""
        return Instant(self.instant, self.action, state)

    def completed(self, completed_at: InstantTime) -> Instant:
        """The instant once it has taken place."""
        return Instant(self.instant, self.action.when_completed, State.COMPLETED, completed_at)


def start_attempt(section: Section, instant: InstantTime, action: Action) -> Attempt:
    """Takes an instant on: its heartbeat beats, earlier tickets are dead, a new one is alive."""
    ports = section.ports
    owner = ports.tokens()
    heartbeat = Heartbeat(ports, section.timing, instant, owner)
    ports.at("begin.1")
    heartbeat.start()
    attempt = Attempt(instant, action, heartbeat, Ticket(instant, owner))
    with attempt.given_up_on_failure():
        revoke_tickets(ports, instant)
        attempt.ticket = open_ticket(section, instant)
    return attempt


def open_ticket(section: Section, instant: InstantTime) -> Ticket:
    """A new, live ticket of an instant."""
    for _ in range(3):
        ticket = Ticket(instant, section.ports.tokens())
        outcome = section.ports.storage.open_ticket(ticket)
        if outcome is Outcome.DONE or ticket in section.ports.storage.find_tickets(instant):
            return ticket
    raise StorageUnavailableError(
        f"{section.ports.storage.url}: no ticket could be had for {instant}", hint="run the write again"
    )


def taken_over(instant: InstantTime) -> RolledBackError:
    """What the owner of an instant is told when another process undid it, or is about to."""
    return RolledBackError(
        f"the write {instant} was taken for dead and rolled back by another process",
        hint="run it again; if its process was not paused, ask for a longer heartbeat interval",
    )
