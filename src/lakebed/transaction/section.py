"""The critical section: what one process sees and may do while it holds the table lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from lakebed.errors import LakebedError, LockUnavailableError, StorageUnavailableError, TableRestoredError
from lakebed.format.file_names import encode_instant_name
from lakebed.model.commit import CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage, Ticket
from lakebed.storage.confirm import create_file, delete_file
from lakebed.timeline import Archive, Timeline
from lakebed.timeline.config import load_config, rewrite_config
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.head import Head, close_head, load_head, swap_head
from lakebed.transaction.heartbeats import Timing, load_heartbeats
from lakebed.transaction.ports import Ports
from lakebed.transaction.times import following_time, format_time, highest_time, timeline_zone

METADATA = ".hoodie/metadata/"
"""The root of the metadata table, which has a timeline of its own under the same lock."""
_CLOSED = Head()
_TRIES = 5
_SECONDS_BETWEEN_TRIES = 0.5


@dataclass(frozen=True, slots=True)
class Look:
    """A table as a section left it: its configuration, and the instant files of both timelines.

    Nobody else completes anything during a section, so one listing shows a prefix of the commit order. `commit` is the
    write that the section completed, if any, with its commit metadata.
    """

    config: TableConfig
    instants: tuple[Instant, ...]
    metadata_instants: tuple[Instant, ...]
    commit: tuple[Instant, CommitMetadata] | None = None


class Section:
    """Configuration and timelines under the lock; nobody else completes anything meanwhile."""

    def __init__(self, ports: Ports, timing: Timing, head: Head = _CLOSED) -> None:
        self.ports = ports
        self.timing = timing
        self.config: TableConfig = load_config(ports.storage)
        self.files: Storage = ports.storage
        """The store for files of the instant that this section completes."""
        self._highest: InstantTime | None = None
        self._head = head
        self._is_publishing = False
        """Whether a publish may be in flight: it was interrupted, or its outcome is unknown."""
        self._files: dict[str, tuple[Instant, ...]] = {}
        self._timelines: dict[str, Timeline] = {}

    @property
    def timeline(self) -> Timeline:
        """The table's active timeline."""
        return self._timeline("")

    @property
    def metadata_timeline(self) -> Timeline:
        """The active timeline of the metadata table; empty if there is none. It has the layout of the table's own."""
        return self._timeline(METADATA)

    def look(self) -> Look:
        """The table as it is now, including the changes of this section."""
        return Look(self.config, self._listed(""), self._listed(METADATA))

    @cached_property
    def heartbeats(self) -> dict[str, bool]:
        """Whether each instant that has a heartbeat is alive."""
        return load_heartbeats(self.ports, self.timing)

    def next_time(self) -> InstantTime:
        """Draws a time greater than any on the table. The caller must put it on the timeline in this section."""
        listed = highest_time(self._listed("")), highest_time(self._listed(METADATA))
        seen = [*listed, self._highest, self.config.last_taken_back]
        highest = max((time for time in seen if time is not None), default=None)
        drawn = following_time(self._now(0), highest)
        if self.timing.skew_ms and drawn > self._now(self._longest_wait_ms):
            raise LockUnavailableError(
                f"{self.ports.storage.url}: this machine's clock is far behind the newest time on the table, {drawn}",
                hint="synchronize the clocks of all writers: each holds the lock until its clock passes its new time",
            )
        self._highest = drawn
        return drawn

    def leave(self) -> None:
        """Releases the lock, once a clock that is behind has passed the times drawn here."""
        try:
            self._close()
            if self.timing.skew_ms:
                self.outwait_skew()
        finally:
            self.ports.lock.release()

    def _close(self) -> None:
        """Closes the head record; if that fails, the next holder revokes our ticket as after a crash."""
        if not self._head.is_closed and not self._is_publishing:
            with suppress(LakebedError):
                close_head(self.ports.storage, self._head.epoch)

    def outwait_skew(self) -> None:
        """Returns once a clock that is behind by the skew has passed the times drawn here.

        It also returns after the longest wait: then this clock was set back, and the drawn times are already published.
        """
        pause_ms = self.timing.skew_ms / 4
        for _ in range(int((self._longest_wait_ms + self.timing.skew_ms) / pause_ms) + 1):
            if self._highest is None or self._now(-self.timing.skew_ms) > self._highest:
                return
            self.ports.clock.sleep(pause_ms / 1000)

    @property
    def _longest_wait_ms(self) -> int:
        """How far this clock may be behind the table, in ms: one section budget, as it catches up under the lock."""
        return int(self.timing.section_seconds * 1000)

    def _now(self, shift_ms: int) -> InstantTime:
        return format_time(self.ports.clock.now_ms() + shift_ms, timeline_zone(self.config))

    def has_lease(self) -> bool:
        """Whether the remaining lease covers the section budget and the clock skew."""
        return self.ports.lock.remaining() >= self.timing.section_seconds + self.timing.skew_ms / 1000

    def check_lease(self) -> None:
        """Raises LockUnavailableError unless the remaining lease covers the section budget and the clock skew."""
        if not self.has_lease():
            raise lost_lock(self.ports)

    def check_no_restore(self) -> None:
        """Raises TableRestoredError while a restore is pending: nothing else may complete."""
        if any(instant.action is Action.RESTORE for instant in self.timeline.pending()):
            raise TableRestoredError(
                f"{self.ports.storage.url}: a restore of the table is in progress",
                hint="run the call again when the restore has completed",
            )

    def path(self, instant: Instant, root: str = "") -> str:
        """The path of the timeline file of an instant in its state."""
        return instant_path(self.config, instant, root)

    def add(self, instant: Instant, data: bytes = b"", root: str = "") -> None:
        """Puts a requested or inflight instant on the timeline."""
        assert not instant.is_completed, instant
        if not create_file(self.files, self.path(instant, root), data):
            raise lost_lock(self.ports)
        self._note(root, (*self._listed(root), instant))

    def request(self, instant: Instant, data: bytes, ticket: Ticket | None = None, root: str = "") -> None:
        """Puts a new instant on the timeline, fenced by its ticket: it cannot appear once another process has the lock.

        The other process may draw the same time, or make decisions on a timeline without this instant.
        """
        if not self.ports.lock.can_be_lost:
            self.add(instant, data, root)
            return
        self._announce(instant.requested_at)
        if self.complete(ticket or self.open_ticket(instant.requested_at), instant, data, root) is not Outcome.DONE:
            raise lost_lock(self.ports)
        if ticket is None:
            end_tickets(self.ports, instant.requested_at)

    def complete(self, ticket: Ticket, instant: Instant, data: bytes, root: str = "") -> Outcome:
        """Publishes an instant; REFUSED if the ticket was revoked."""
        self.check_lease()
        was_publishing, self._is_publishing = self._is_publishing, True
        outcome = self.ports.storage.publish(ticket, self.path(instant, root), data)
        if outcome is not Outcome.DONE:
            outcome = self._settle(ticket, instant, data, root)
            if outcome is Outcome.DONE and not data and not self.has_lease():
                outcome = Outcome.REFUSED  # Another process may have drawn the same time, and its file is as empty.
        self._is_publishing = was_publishing or outcome is Outcome.UNKNOWN
        if outcome is Outcome.DONE:
            self._note(root, (*self._listed(root), instant))
        return outcome

    def take_on(self, instant: InstantTime, own: Ticket | None = None) -> Ticket:
        """Revokes all tickets of an instant but one's own, which is opened if there is none.

        The head record announces it, so that the next holder of the lock revokes it.
        """
        if self.ports.lock.can_be_lost:
            self._announce(instant)
        revoke_tickets(self.ports, instant, but=own)
        return own or self.open_ticket(instant)

    def open_ticket(self, instant: InstantTime) -> Ticket:
        """Opens a ticket of an instant. Not after the lock is lost, since nobody would revoke it.

        So a ticket that was opened while the lease expired is revoked here: the next holder has already looked.
        """
        storage = self.ports.storage
        for _ in range(3):
            self.check_lease()
            ticket = Ticket(instant, self.ports.tokens())
            if storage.open_ticket(ticket) is Outcome.DONE or ticket in storage.find_tickets(instant):
                if self.has_lease():
                    return ticket
                revoke_ticket(self.ports, ticket, in_use=False)
                raise lost_lock(self.ports)
        raise StorageUnavailableError(
            f"{storage.url}: could not open a ticket for {instant}", hint="run the write again"
        )

    def fence(self, ticket: Ticket) -> None:
        """From now on, files are created only through the ticket: for an instant that another process may also attempt.

        A file is visible if its instant is, even a late one of an attempt that had lost the lock. And a late file on
        the timeline would revive an instant that others have completed and archived.
        """
        self.files = self.fenced(ticket)

    def fenced(self, ticket: Ticket) -> Storage:
        """The store, which creates files only through the ticket if the lock can be lost."""
        return cast(Storage, Fenced(self.ports, ticket)) if self.ports.lock.can_be_lost else self.ports.storage

    def _settle(self, ticket: Ticket, instant: Instant, data: bytes, root: str) -> Outcome:
        """Finds out whether it was published. Once the ticket is revoked, a missing file can no longer appear.

        While the ticket is alive the file may still appear, with a completion time that others have passed by then. So
        the lock is not released before the store has been asked several times.
        """
        for _ in range(_TRIES):
            with suppress(StorageUnavailableError):
                revoke_tickets(self.ports, InstantTime(ticket.instant))
                is_there = self.ports.storage.find(self.path(instant, root)) == data
                return Outcome.DONE if is_there or self._is_archived(instant, root) else Outcome.REFUSED
            self.ports.clock.sleep(_SECONDS_BETWEEN_TRIES)
        return Outcome.UNKNOWN

    def _is_archived(self, instant: Instant, root: str) -> bool:
        """Whether the history has it: another process may have archived it, if we have lost the lock."""
        if not self.ports.lock.can_be_lost:
            return False
        archive = Archive(self.ports.storage, self.config, root)
        return archive.completions([instant.requested_at]).get(instant.requested_at, "") == instant.completed_at

    def _announce(self, instant: InstantTime) -> None:
        """Opens the head record: tells the next holder of the lock which instant's tickets to revoke."""
        if self._head.open != instant:
            self._open_head(instant, changes_config=self._head.changes_config)

    def announce_config(self) -> None:
        """Tells the next holder of the lock that this one may be paused right before it replaces the configuration."""
        self.check_lease()
        if self.ports.lock.can_be_lost and not self._head.changes_config:
            self._open_head(self._head.open, changes_config=True)

    def _open_head(self, instant: InstantTime | None, *, changes_config: bool) -> None:
        head, etag = load_head(self.ports.storage)
        opened = Head(head.epoch + 1, instant, changes_config)
        if not self.has_lease() or not swap_head(self.ports.storage, opened, etag):
            raise lost_lock(self.ports)
        self._head = opened
        self.check_lease()

    def remove(self, instant: Instant, root: str = "") -> None:
        """Deletes the file of one state from the timeline."""
        delete_file(self.ports.storage, self.path(instant, root))
        self._note(root, tuple(other for other in self._listed(root) if other != instant))

    def has_file(self, instant: Instant, root: str = "") -> bool:
        """Whether the timeline has the file of this very state."""
        return instant in self._listed(root)

    def completed_files(self, instant: Instant, root: str = "") -> tuple[Instant, ...]:
        """Every completed file of an instant: there are two if two engines executed one plan concurrently."""
        return tuple(
            other
            for other in self._listed(root)
            if other.is_completed and (other.requested_at, other.action) == (instant.requested_at, instant.action)
        )

    def remove_pending(self, requested_at: InstantTime, action: Action, root: str = "") -> None:
        """Deletes a pending instant from the timeline, its inflight file first."""
        for state in (State.INFLIGHT, State.REQUESTED):
            self.remove(Instant(requested_at, action, state), root)

    def forget_timeline(self, root: str = "") -> None:
        """Makes the next access list the timeline again: once tickets are revoked, no instant appears by them."""
        self._files.pop(root, None)
        self._timelines.pop(root, None)

    def _listed(self, root: str) -> tuple[Instant, ...]:
        """The instant files of a timeline: listed once, then updated with the changes of this section."""
        if root not in self._files:
            self._files[root] = list_instants(self.ports.storage, self.config, root)
        return self._files[root]

    def _note(self, root: str, instants: tuple[Instant, ...]) -> None:
        """Updates the listed timeline with a change of this section."""
        self._files[root] = instants
        self._timelines.pop(root, None)

    def _timeline(self, root: str) -> Timeline:
        if root not in self._timelines:
            self._timelines[root] = Timeline.of(self._listed(root))
        return self._timelines[root]


class Fenced:
    """A store that creates files only while a ticket is alive."""

    def __init__(self, ports: Ports, ticket: Ticket) -> None:
        self._ports = ports
        self._ticket = ticket

    def create(self, path: str, data: bytes) -> Outcome:
        """Creates a file by the ticket; LockUnavailableError if that is dead."""
        outcome = self._ports.storage.publish(self._ticket, path, data)
        if outcome is Outcome.REFUSED and self._ticket not in self._ports.storage.find_tickets(self._ticket.instant):
            raise lost_lock(self._ports)
        return outcome

    def create_all(self, files: Mapping[str, bytes]) -> Mapping[str, Outcome]:
        """Creates files, one after the other."""
        return {path: self.create(path, data) for path, data in files.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports.storage, name)


def instant_path(config: TableConfig, instant: Instant, root: str = "") -> str:
    """The path of the timeline file of an instant in its state."""
    name = encode_instant_name(instant, layout=config.timeline_layout)
    return f"{root}{config.timeline_path}/{name}"


@contextmanager
def open_section(
    ports: Ports, timing: Timing, opens: InstantTime | None = None, ticket: Ticket | None = None
) -> Iterator[Section]:
    """Holds the lock. `opens` names the instant that the section is to complete, so that the next holder can fence it.

    `ticket` is the caller's own, with no publish in flight. If clocks may differ, the lock is released in the
    background some time after the section; the next section of the same ports waits for the release.
    """
    ports.background.drain()
    ports.lock.acquire()
    try:
        section = _enter(ports, timing, opens, ticket)
        yield section
    except BaseException:
        ports.lock.release()  # The head record stays open: the next holder ends tickets that failed work left.
        raise
    if timing.skew_ms:
        ports.background.later(section.leave)
    else:
        section.leave()


def _enter(ports: Ports, timing: Timing, opens: InstantTime | None, ticket: Ticket | None) -> Section:
    head = _take_over(ports, opens, ticket) if ports.lock.can_be_lost else _CLOSED
    section = Section(ports, timing, head)
    section.check_lease()
    return section


def _take_over(ports: Ports, opens: InstantTime | None, ticket: Ticket | None) -> Head:
    """Fences the previous holder, which may be paused in the middle of completing an instant, and takes its place.

    The head record changes by compare-and-swap: a stale holder that wakes up here must not erase the entry of the
    current one. A section that ends normally closes the record, so that nobody waits for its ticket.
    """
    head, etag = load_head(ports.storage)
    if head.open is not None:
        revoke_tickets(ports, head.open, but=ticket)
    if head.changes_config:
        rewrite_config(ports.storage, ports.clock.now_ms())
    if opens is None:
        return _CLOSED
    opened = Head(head.epoch + 1, opens)
    if not swap_head(ports.storage, opened, etag):
        raise lost_lock(ports)
    return opened


def lost_lock(ports: Ports) -> LockUnavailableError:
    """The error for a process that has lost the lock."""
    return LockUnavailableError(
        f"{ports.storage.url}: the table lock was lost: its lease expired while it was held",
        hint="run the write again; use a longer lease if machines are paused or the store is slow",
    )


def revoke_tickets(ports: Ports, instant: InstantTime, but: Ticket | None = None) -> None:
    """Revokes every ticket of an instant `but` one's own: once this returns, nothing can be published with them."""
    for ticket in ports.storage.find_tickets(instant):
        if ticket != but:
            revoke_ticket(ports, ticket)


def end_tickets(ports: Ports, instant: InstantTime, outcome: Outcome = Outcome.DONE) -> None:
    """Revokes the tickets of an instant that its owner has finished; waits only if the `outcome` is unknown."""
    for ticket in ports.storage.find_tickets(instant):
        revoke_ticket(ports, ticket, in_use=outcome is not Outcome.DONE)


def revoke_ticket(ports: Ports, ticket: Ticket, *, in_use: bool = True) -> None:
    """Revokes a ticket; retries until the store confirms it."""
    while ports.storage.revoke(ticket, in_use=in_use) is not Outcome.DONE:
        ports.clock.sleep(0.1)
