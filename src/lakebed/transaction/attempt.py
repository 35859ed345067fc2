"""An attempt at an instant: the right to work on it and to complete it, held by one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace

from lakebed.errors import LakebedError, RolledBackError
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Ticket
from lakebed.transaction.heartbeats import Heartbeat, Timing
from lakebed.transaction.ports import Ports
from lakebed.transaction.section import Look, Section, end_tickets, open_section, revoke_tickets


@dataclass(slots=True)
class Attempt:
    """One process working on one instant. `ticket` is renewed if a takeover of the lock revoked it.

    `look` is the table as the last section of the attempt left it; None if others have changed it since.
    """

    instant: InstantTime
    action: Action
    heartbeat: Heartbeat
    ticket: Ticket
    look: Look | None = None
    is_publishing: bool = False
    """Whether a publish by the ticket may be in flight: it was interrupted, or its outcome is unknown."""

    def publish(self, section: Section, instant: Instant, data: bytes, root: str = "") -> Outcome:
        """Publishes a state of the instant by the ticket."""
        self.is_publishing = True
        outcome = section.complete(self.ticket, instant, data, root)
        self.is_publishing = outcome is Outcome.UNKNOWN
        return outcome

    def note_commit(self, completed_at: InstantTime, metadata: CommitMetadata) -> None:
        """Adds the completed instant to the look, so that nobody need read its metadata."""
        if self.look is not None:
            self.look = replace(self.look, commit=(self.completed(completed_at), metadata))

    @contextmanager
    def given_up_on_failure(self) -> Iterator[None]:
        """Lets the heartbeat expire if the body fails, so that others can take over the instant."""
        try:
            yield
        except BaseException:
            self.heartbeat.rest()
            raise

    def leave(self, ports: Ports) -> None:
        """Ends the tickets and the heartbeat once nothing of the attempt runs; what fails is left to expire."""
        self.heartbeat.rest()
        with suppress(LakebedError):
            end_tickets(ports, self.instant)
            self.heartbeat.stop()

    def in_state(self, state: State) -> Instant:
        """The instant in a state before its completion."""
        return Instant(self.instant, self.action, state)

    def completed(self, completed_at: InstantTime) -> Instant:
        """The completed instant."""
        return Instant(self.instant, self.action.when_completed, State.COMPLETED, completed_at)


def open_section_of(ports: Ports, timing: Timing, attempt: Attempt) -> AbstractContextManager[Section]:
    """A section in which the instant of an attempt is to be completed."""
    own = None if attempt.is_publishing else attempt.ticket
    return open_section(ports, timing, opens=attempt.instant, ticket=own)


def begin_attempt(section: Section, action: Action) -> Attempt:
    """Draws a time for a new instant, starts its heartbeat and opens its ticket."""
    ports = section.ports
    ports.at("begin.1")
    heartbeat = Heartbeat(ports, section.timing, section.next_time(), ports.tokens())
    while not heartbeat.claim():
        heartbeat = Heartbeat(ports, section.timing, section.next_time(), ports.tokens())
    # A holder that lost the lock before this claim may have claimed a time that another has used and is done with.
    section.check_lease()
    heartbeat.go_on()
    attempt = Attempt(heartbeat.instant, action, heartbeat, Ticket(heartbeat.instant, heartbeat.owner))
    with attempt.given_up_on_failure():
        attempt.ticket = section.open_ticket(attempt.instant)
    return attempt


def start_attempt(section: Section, instant: InstantTime, action: Action) -> Attempt:
    """Takes over an existing instant: starts its heartbeat, revokes earlier tickets and opens a new one."""
    ports = section.ports
    owner = ports.tokens()
    heartbeat = Heartbeat(ports, section.timing, instant, owner)
    heartbeat.start()
    attempt = Attempt(instant, action, heartbeat, Ticket(instant, owner))
    with attempt.given_up_on_failure():
        revoke_tickets(ports, instant)
        attempt.ticket = section.open_ticket(instant)
    return attempt


def put_in_flight(section: Section, attempt: Attempt) -> None:
    """Publishes the inflight file of the attempt, unless an earlier attempt did.

    It is published in the section, by the ticket: a paused process must not revive an instant that others removed.
    """
    inflight = attempt.in_state(State.INFLIGHT)
    if inflight not in section.timeline.pending():
        section.request(inflight, b"", attempt.ticket)
    else:
        section.check_lease()  # Whoever stood still since then may find it completed: nothing is begun any more.


def taken_over(instant: InstantTime) -> RolledBackError:
    """The error for the owner of an instant that another process has rolled back, or is about to."""
    return RolledBackError(
        f"another process presumed the write {instant} dead and rolled it back",
        hint="run it again; if its process was not paused, set a longer heartbeat interval",
    )
