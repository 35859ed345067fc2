"""The life of an instant: requested, in flight, completed. Every step says what the next process does after a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from lakebed.errors import (
    CommitUnknownError,
    InvalidInputError,
    StorageUnavailableError,
    TableRestoredError,
    WriteConflictError,
)
from lakebed.format.timeline.metadata import encode_commit
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome
from lakebed.storage.confirm import create_file
from lakebed.timeline import Archive, Documents
from lakebed.timeline.config import load_config
from lakebed.transaction.attempt import Attempt, begin_attempt, open_section_of, start_attempt, taken_over
from lakebed.transaction.conflicts import Rival, WriteSet, find_conflict, overlapping, write_set_of
from lakebed.transaction.executions import Executions, cancel_plan
from lakebed.transaction.heartbeats import Timing, spell_wait
from lakebed.transaction.markers import drop_markers, open_markers
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.plans import SERVICES, is_removable
from lakebed.transaction.ports import Ports
from lakebed.transaction.rollback import Rollbacks, targets_of_rollbacks, undo_metadata
from lakebed.transaction.section import (
    METADATA,
    Section,
    end_tickets,
    instant_path,
    open_section,
    revoke_ticket,
    revoke_tickets,
)

_TRIES = 3


class MetadataWriter(Protocol):
    """Writes what a commit adds to the metadata table; called in the commit section, with the final table config."""

    def is_ready(self, section: Section) -> bool:
        """Whether it has all that it must write. If not, the section is left and entered again after `get_ready`."""
        ...

    def get_ready(self) -> None:
        """Gets what was missing, without the lock."""
        ...

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata | None:
        """Writes files into the metadata table; the metadata of its delta commit, or None without such a table."""
        ...


class Transactions:
    """The operations of one process on the timeline of one table."""

    def __init__(self, ports: Ports, timing: Timing) -> None:
        self.ports = self._ports = ports
        self.timing = self._timing = timing
        self.rollbacks = Rollbacks(ports, timing)
        self.executions = Executions(ports, timing, self.rollbacks)

    def section(self, opens: Attempt | InstantTime | None = None) -> AbstractContextManager[Section]:
        """A critical section; `opens` is the attempt, or the instant, that is completed in it."""
        if isinstance(opens, Attempt):
            return open_section_of(self._ports, self._timing, opens)
        return open_section(self._ports, self._timing, opens=opens)

    def begin(self, action: Action, plan: bytes = b"") -> Attempt:
        """Requests a new instant. Rolls back dead writers that it finds."""
        with self.section() as section:
            section.check_no_restore()
            pending = self.rollbacks.schedule(section)
            self.rollbacks.sweep(section)
            attempt = begin_attempt(section, action)
            with attempt.given_up_on_failure():
                self._ports.at("begin.1")
                section.request(attempt.in_state(State.REQUESTED), plan, attempt.ticket)
                attempt.look = None if pending else section.look()
        self.rollbacks.execute_all(pending)
        return attempt

    def take_over(self, instant: InstantTime, action: Action) -> Attempt:
        """Continues a write whose process died after it had prepared its commit."""
        with self.section() as section:
            section.check_no_restore()
            self._check_orphaned(section, Instant(instant, action, State.INFLIGHT))
            section.check_lease()
            self._ports.at("stream.S6")
            attempt = start_attempt(section, instant, action)
            with attempt.given_up_on_failure():
                attempt.look = section.look()
        return attempt

    def _check_orphaned(self, section: Section, inflight: Instant) -> None:
        """Raises unless the write is in flight, its process is dead, and no rollback is planned."""
        instant = inflight.requested_at
        if section.timeline.completion_of(instant) is not None or self._is_archived(section, instant):
            raise InvalidInputError(
                f"the write {instant} is already committed", hint="there is nothing left to do: its rows are visible"
            )
        # A paused process may put a write in flight that was rolled back: then it is not requested any more.
        is_requested = section.has_file(Instant(instant, inflight.action, State.REQUESTED))
        is_pending = is_requested and inflight in section.timeline.pending()
        if not is_pending or instant in targets_of_rollbacks(section):
            raise taken_over(instant)
        if section.heartbeats.get(instant, False):
            wait = spell_wait(section.timing.dead_after)
            raise WriteConflictError(
                f"the process that prepared the write {instant} is still alive",
                hint=f"leave the commit to it; without another heartbeat it is considered dead within {wait}",
            )

    def _is_archived(self, section: Section, instant: InstantTime) -> bool:
        return bool(Archive(self._ports.storage, section.config).completions({instant}))

    def declare(self, attempt: Attempt, metadata: CommitMetadata) -> None:
        """Puts the instant in flight and declares its write set."""
        self._ports.at("begin.3")
        if not attempt.heartbeat.is_certain():
            raise taken_over(attempt.instant)
        data = encode_commit(metadata, replace=attempt.action is Action.REPLACE_COMMIT)
        config = attempt.look.config if attempt.look is not None else load_config(self._ports.storage)
        path = instant_path(config, attempt.in_state(State.INFLIGHT))
        if not create_file(self._ports.storage, path, data):
            raise taken_over(attempt.instant)
        open_markers(self._ports.storage, attempt.instant)

    def complete(
        self,
        attempt: Attempt,
        data: bytes,
        metadata_table: MetadataWriter | None,
        check: Callable[[Section], None],
    ) -> InstantTime:
        """Completes an instant of any kind with its metadata, unless `check` raises; returns the completion time.

        Without a `metadata_table` writer the instant adds nothing to the metadata table. If another process has taken a
        write over and completed it, that is as good.
        """
        losses = 0
        while losses < _TRIES:
            with self.section(opens=attempt) as section:
                elsewhere = self._find_completion(section, attempt)
                if elsewhere is not None:
                    return elsewhere
                self.check_alive(section, attempt)
                check(section)
                writer = metadata_table if _has_metadata(section) else None
                is_ready = writer is None or writer.is_ready(section)
                if is_ready and not self._commit_metadata(section, attempt, writer):
                    losses += 1
                    continue
                if is_ready:
                    self._ports.at("commit.P7")
                    completed_at = section.next_time()
                    outcome = attempt.publish(section, attempt.completed(completed_at), data)
                    attempt.look = section.look()
            if writer is not None and not is_ready:
                writer.get_ready()  # Not for ever: each turn makes it ready for one more index that others created.
                continue
            if outcome is Outcome.DONE:
                # The write has taken place, whatever becomes of what is left to clear away.
                with suppress(StorageUnavailableError):
                    self.close(attempt)
                return completed_at
            if outcome is Outcome.UNKNOWN:
                raise _unknown(attempt.instant)
            losses += 1
        raise taken_over(attempt.instant)

    def close(self, attempt: Attempt) -> None:
        """Removes what a completed instant no longer needs; the next process removes whatever is left.

        The heartbeat is removed last: the next process finds the rest by it.
        """
        self._ports.at("commit.P8")
        attempt.heartbeat.rest()
        drop_markers(self._ports.storage, attempt.instant)
        end_tickets(self._ports, attempt.instant)
        attempt.heartbeat.stop()

    def abandon(self, attempt: Attempt) -> None:
        """Rolls back a write of this process that did not complete."""
        with attempt.given_up_on_failure():
            if attempt.heartbeat.is_taken_over():
                raise _continued_elsewhere(attempt.instant)
            if not attempt.is_publishing:
                end_tickets(self._ports, attempt.instant)
            with self.section() as section:
                if attempt.heartbeat.is_taken_over():
                    raise _continued_elsewhere(attempt.instant)
                pending = self.rollbacks.schedule(section, own=attempt.instant)
                # Asked after that: until its tickets are revoked, a process that took the write over may complete it.
                if self._find_completion(section, attempt) is not None:
                    raise CommitUnknownError(
                        f"this process gave the write {attempt.instant} up, but another had committed it",
                        hint=f"its rows are visible: table.timeline.completed() has {attempt.instant}",
                    )
            attempt.heartbeat.rest()
            revoke_tickets(self._ports, attempt.instant)
            self.rollbacks.execute_all(pending)
            self.rollbacks.delete_late_files(attempt.instant)
        attempt.heartbeat.stop()

    def _find_completion(self, section: Section, attempt: Attempt) -> InstantTime | None:
        """When another process completed the write from its prepared value; None if none has.

        A service that another process has executed is another attempt, with files of its own.
        """
        if attempt.action in SERVICES or attempt.in_state(State.INFLIGHT) in section.timeline.pending():
            return None
        completed_at = section.timeline.completion_of(attempt.instant)
        if completed_at is None:
            archive = Archive(self._ports.storage, section.config)
            completed_at = archive.completions({attempt.instant}).get(attempt.instant)
        if completed_at is not None:
            attempt.heartbeat.rest()  # It is the other process's, which stops it.
            attempt.look = section.look()
        return completed_at

    def check_alive(self, section: Section, attempt: Attempt) -> None:
        """P3: raises unless the heartbeat is ours and no rollback is planned; renews a ticket revoked by a takeover."""
        self._ports.at("commit.P3")
        if attempt.action is not Action.RESTORE:
            section.check_no_restore()
        is_inflight = attempt.in_state(State.INFLIGHT) in section.timeline.pending()
        if not is_inflight or not attempt.heartbeat.is_certain() or attempt.instant in targets_of_rollbacks(section):
            raise taken_over(attempt.instant)
        tickets = self._ports.storage.find_tickets(attempt.instant)
        if tickets != (attempt.ticket,):
            for other in tickets:  # Of a process that was about to cancel this one, and lost the lock.
                revoke_ticket(self._ports, other)
            attempt.ticket = section.open_ticket(attempt.instant)

    def check_conflicts(
        self, section: Section, attempt: Attempt, writes: WriteSet, seen: frozenset[InstantTime]
    ) -> None:
        """P4: raises if another write conflicts; cancels removable plans in the way. `seen` is the planned snapshot."""
        self._ports.at("commit.P4")
        self._check_snapshot(section, seen)
        conflict = find_conflict(writes, self._completed_rivals(section, attempt, seen))
        if conflict is not None:
            raise _conflict(*conflict)
        pending = pending_rivals(self._ports.storage, section.config, section.timeline, attempt.instant)
        contested = [rival for rival in pending if find_conflict(writes, [rival])]
        yielding = [] if writes.kind.is_service else [r for r in contested if is_removable(section, r.instant)]
        conflict = find_conflict(writes, [rival for rival in contested if rival not in yielding])
        if conflict is not None:
            raise _conflict(*conflict)
        for rival in yielding:
            cancel_plan(section, rival.instant)

    def _check_snapshot(self, section: Section, seen: frozenset[InstantTime]) -> None:
        """Raises if a write in the snapshot was rolled back since, or is about to be."""
        missing = seen - {instant.requested_at for instant in section.timeline.commits()}
        archived = Archive(self._ports.storage, section.config).completions(missing) if missing else {}
        gone = (missing - archived.keys()) | (seen & targets_of_rollbacks(section))
        if gone:
            raise TableRestoredError(
                f"{min(gone)}, which this write was planned on, was rolled back or is about to be",
                hint="run the write again: it will use the current state of the table",
            )

    def _completed_rivals(self, section: Section, attempt: Attempt, seen: frozenset[InstantTime]) -> Iterable[Rival]:
        documents = Documents(self._ports.storage, section.config)
        for instant in overlapping(section.timeline, attempt.instant, seen):
            yield Rival(instant, write_set_of(instant, documents.commit(instant)))

    def _commit_metadata(self, section: Section, attempt: Attempt, writer: MetadataWriter | None) -> bool:
        """P5 and P6: the metadata table first, so that a committed file is never missing from its listing."""
        self._ports.at("commit.P6")
        undo_metadata(section, attempt.instant, may_have_strays=writer is not None and attempt.action in SERVICES)
        delta = Attempt(attempt.instant, Action.DELTA_COMMIT, attempt.heartbeat, attempt.ticket)
        if writer is None:
            return True
        section.check_lease()
        if attempt.action in SERVICES:
            section.fence(attempt.ticket)
        section.add(delta.in_state(State.REQUESTED), root=METADATA)
        section.add(delta.in_state(State.INFLIGHT), root=METADATA)
        written = writer.write(section, attempt.instant)
        assert written is not None, "the table's config names a metadata table"
        self._ports.at("commit.P6")
        done = delta.completed(section.next_time())
        outcome = attempt.publish(section, done, encode_commit(written, replace=False), METADATA)
        if outcome is Outcome.UNKNOWN:
            raise _unknown(attempt.instant)
        return outcome is Outcome.DONE


def _has_metadata(section: Section) -> bool:
    return bool(section.config.metadata_partitions or section.config.metadata_partitions_inflight)


def _conflict(other: Instant, shared: tuple[str, ...]) -> WriteConflictError:
    places = ", ".join(shared[:3]) + (f" and {len(shared) - 3} more" if len(shared) > 3 else "")
    if other.is_completed:
        return WriteConflictError(
            f"{other.action} {other.requested_at} changed the same data as this write: {places}",
            hint="run the write again: it will use the current state of the table",
        )
    return WriteConflictError(
        f"a {other.action} is planned at {other.requested_at} for what this write changes: {places}",
        hint=f"let that {other.action} run, then run the write again",
    )


def _continued_elsewhere(instant: InstantTime) -> CommitUnknownError:
    return CommitUnknownError(
        f"this process gave the write {instant} up, but another has taken it over and may commit it",
        hint=f"check table.timeline.completed() for {instant} before you run the write again",
    )


def _unknown(instant: InstantTime) -> CommitUnknownError:
    return CommitUnknownError(
        f"the store did not confirm whether the write {instant} completed",
        hint=f"check table.timeline.completed() for {instant} before you run the write again",
    )
