"""Naive versions of the protocol, one per hazard: the simulation must tell each of them from the real one.

A mutant swaps functions of the protocol layer for what one would write at first. Where a second line of defence hides a
mistake, the mutant takes that line away too. `tweak` makes schedules in which the hazard has a chance to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import lakebed.index.obliged as obliged
import lakebed.metadata.table as metadata_table
import lakebed.metadata.upkeep.maintenance as maintenance
import lakebed.services.archive as archive
import lakebed.services.clean.run as clean
import lakebed.services.clustering.run as clustering
import lakebed.services.compaction.plan as compaction_plan
import lakebed.services.indexing.catch_up as catch_up
import lakebed.services.indexing.drop as drop
import lakebed.services.indexing.plans as index_plans
import lakebed.services.indexing.schedule as schedule
import lakebed.services.indexing.steps as steps
import lakebed.services.restore as restore
import lakebed.services.savepoint as savepoint
import lakebed.table.handle as handle
import lakebed.table.state as state_module
import lakebed.timeline.config as config_module
import lakebed.timeline.timeline as active
import lakebed.transaction.archive as archiving
import lakebed.transaction.attempt as attempt_module
import lakebed.transaction.conflicts as conflicts
import lakebed.transaction.executions as executions
import lakebed.transaction.head as head_module
import lakebed.transaction.heartbeats as heartbeats
import lakebed.transaction.plans as plans
import lakebed.transaction.rollback as rollback
import lakebed.transaction.section as section_module
import lakebed.transaction.times as times
import lakebed.transaction.transactions as transactions
import lakebed.view.slices as slices
import lakebed.write.writer as writer
from lakebed.commit.commit import commit
from lakebed.errors import CorruptTableError, InvalidInputError, WriteConflictError
from lakebed.metadata.upkeep.log_compaction import Horizon
from lakebed.model.words import Action, State
from lakebed.storage import Outcome
from lakebed.storage.confirm import delete_file, replace_file
from lakebed.timeline import Timeline
from lakebed.transaction.heartbeats import Heartbeat, heartbeat_path
from lakebed.transaction.plans import SERVICES, is_removable
from lakebed.transaction.rollback import Rollbacks
from lakebed.transaction.section import Section, open_section
from lakebed.transaction.transactions import Transactions

from . import client, plane, table, writes
from .actors import indexers, keepers, maintainers, rivals, services
from .faults import Fault
from .scheduler import Style
from .setup import Setup, Tweak, same
from .world import LockKind, SimLock, SimStorage

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: what is swapped, and in which schedules it should show."""

    name: str
    about: str
    patches: Callable[[], tuple[Patch, ...]]
    tweak: Tweak = same

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The protocol layer with the mistake in it."""
        with ExitStack() as stack:
            for owner, name, value in self.patches():
                stack.enter_context(mock.patch.object(owner, name, value))
            yield


MUTANTS: list[Mutant] = []


def mutant(name: str, about: str, tweak: Tweak = same) -> Callable[[Callable[[], tuple[Patch, ...]]], None]:
    """Registers the patches of a mutant."""

    def register(patches: Callable[[], tuple[Patch, ...]]) -> None:
        MUTANTS.append(Mutant(name, about, patches, tweak))

    return register


def with_leases(setup: Setup) -> Setup:
    """A lock that can be lost, and pauses that lose it."""
    rates = {**setup.rates, Fault.PAUSE: 0.03}
    return replace(setup, lock=LockKind(can_be_lost=True), rates=rates, cleaners=2)


def with_lost_leases(setup: Setup) -> Setup:
    """Five writers who lose the lock again and again, and nothing else that goes wrong."""
    shape = replace(setup.shape, has_metadata=False)
    writers = (("insert", "insert"),) * 5
    lock = LockKind(can_be_lost=True, lease_ms=2_000)
    rates = {Fault.PAUSE: 0.12}
    return replace(setup, services=(), shape=shape, lock=lock, writers=writers, rates=rates, cleaners=0, readers=0)


def with_pauses(setup: Setup) -> Setup:
    """Processes that stand still, and two cleaners that notice."""
    return replace(setup, rates={**setup.rates, Fault.PAUSE: 0.03}, cleaners=2)


def with_silence(setup: Setup) -> Setup:
    """A store that carries requests out late, or cannot be reached, and locks that are lost meanwhile."""
    rates = {**setup.rates, Fault.LATE: 0.03, Fault.UNAVAILABLE: 0.05, Fault.LOST_BEFORE: 0.0, Fault.LOST_AFTER: 0.0}
    return replace(setup, rates=rates, lock=replace(setup.lock, can_be_lost=True))


def with_lost_replies(setup: Setup) -> Setup:
    """A store that often does not say what became of a write."""
    return replace(setup, services=(), rates={**setup.rates, Fault.LOST_BEFORE: 0.02, Fault.LOST_AFTER: 0.04})


def with_crashes(setup: Setup) -> Setup:
    """Processes that die."""
    rates = {**setup.rates, Fault.CRASH_BEFORE: 0.006, Fault.CRASH_AFTER: 0.006}
    return replace(setup, rates=rates, cleaners=1, restarts=1)


def with_wild_clocks(setup: Setup) -> Setup:
    """Clocks that are wrong by minutes and jump back by an hour."""
    return replace(setup, skew_ms=0, wild_ms=600_000, rates={**setup.rates, Fault.CLOCK_BACK: 0.01}, cleaners=2)


def with_pages(setup: Setup) -> Setup:
    """Listings in small pages, and readers who list."""
    lock = LockKind(can_be_lost=False)
    writers = (("insert", "insert"),) * 3
    return replace(
        setup, services=(), lock=lock, page_size=2, readers=3, writers=writers, cleaners=0, rates={Fault.PAUSE: 0.04}
    )


def with_many_writers(setup: Setup) -> Setup:
    """Four writers on few file groups."""
    shape = replace(setup.shape, groups=1, partitions=("p0",))
    return replace(setup, services=(), shape=shape, writers=(("upsert", "upsert"),) * 4, rates={})


def with_inserts(setup: Setup) -> Setup:
    """Writers that add the same keys."""
    return replace(setup, services=(), writers=(("insert", "upsert"),) * 4, rates={})


def with_late_snapshots(setup: Setup) -> Setup:
    """Inserts that complete while others have begun and not yet looked."""
    shape = replace(setup.shape, groups=1, partitions=("p0",), is_cow=True)
    writers = (("insert", "insert"), ("insert",), ("upsert",), ("upsert",))
    return replace(
        setup, services=(), shape=shape, writers=writers, rates={Fault.PAUSE: 0.05}, lock=LockKind(can_be_lost=False)
    )


def with_metadata(setup: Setup) -> Setup:
    """A table with a metadata table."""
    return replace(setup, shape=replace(setup.shape, has_metadata=True))


def with_operator(setup: Setup) -> Setup:
    """Somebody who takes writes back while others write."""
    return replace(setup, services=(), has_operator=True, writers=(("upsert", "upsert", "upsert"),) * 3, rates={})


def with_services(setup: Setup) -> Setup:
    """A metadata table that is compacted all the time, by two who never wait for each other, and writers who die."""
    shape = replace(setup.shape, has_metadata=True)
    writers = (("upsert", "overwrite"), ("upsert", "insert"), ("overwrite",))
    return with_crashes(replace(setup, shape=shape, writers=writers, maintainers=2, readers=2))


def with_lost_services(setup: Setup) -> Setup:
    """The same, with a lock that is lost while they compact."""
    lock = LockKind(can_be_lost=True, lease_ms=2_000)
    rates = {Fault.PAUSE: 0.08, Fault.CRASH_BEFORE: 0.004}
    writers = (("upsert", "upsert"), ("insert",))
    setup = replace(with_services(setup), services=(), lock=lock, rates=rates)
    return replace(setup, writers=writers, cleaners=0, maintainers=5, indexers=0)


def with_undone_compactions(setup: Setup) -> Setup:
    """Somebody who takes writes back while the metadata table is compacted, and compactors who die."""
    return replace(with_services(setup), has_operator=True, maintainers=3)


def with_merged_logs(setup: Setup) -> Setup:
    """A metadata table whose log files are merged all the time, writers who die and, now and then, services."""
    writers = (("upsert", "overwrite", "upsert"), ("upsert", "insert", "upsert"), ("overwrite", "upsert"))
    setup = with_crashes(with_metadata(setup)) if setup.seed % 3 else with_metadata(setup)
    return replace(setup, writers=writers, maintainers=4, readers=2, merges_logs=True)


def with_undone_merges(setup: Setup) -> Setup:
    """The same, with somebody who takes writes back."""
    return replace(with_merged_logs(setup), has_operator=True, services=())


def with_configurator(setup: Setup) -> Setup:
    """Another engine that changes the table's config, and dies doing so."""
    setup = with_crashes(with_metadata(setup))
    lock = LockKind(can_be_lost=False)
    writers = (("upsert", "insert"), ("upsert", "upsert"))
    return replace(setup, services=(), lock=lock, has_configurator=True, writers=writers, readers=2)


def with_clusterer(setup: Setup) -> Setup:
    """A clustering among upserts."""
    shape = replace(setup.shape, partitions=("p0",), groups=2)
    services = ("clusterer", "clusterer")
    return replace(setup, shape=shape, services=services, writers=(("upsert", "upsert"),) * 3, rates={})


def with_executors(setup: Setup) -> Setup:
    """Plans of services that several want to execute, and who die doing so."""
    shape = replace(setup.shape, is_cow=False, has_metadata=True)
    services = ("compactor", "clusterer", "executor", "executor")
    setup = with_crashes(replace(setup, shape=shape, services=services))
    return replace(setup, writers=(("upsert", "upsert"),) * 2, maintainers=0, restarts=2)


def with_plans(setup: Setup) -> Setup:
    """Clusterings that wait to be executed, cleaners who look at them, and processes that die."""
    shape = replace(setup.shape, has_metadata=False)
    services = ("clusterer", "clusterer", "executor", "executor", "canceller")
    return with_crashes(replace(setup, shape=shape, services=services, cleaners=2, wild_ms=0, skew_ms=0, restarts=2))


def with_savepoints(setup: Setup) -> Setup:
    """Savepoints and cleans, and writes that make old slices."""
    shape = replace(setup.shape, is_cow=True)
    services = ("keeper", "keeper", "file cleaner", "file cleaner", "executor")
    return replace(setup, shape=shape, services=services, writers=(("upsert",) * 3,) * 2)


def with_restores(setup: Setup) -> Setup:
    """Tables that are set back while others would write."""
    writers = (("upsert", "upsert"), ("insert", "upsert"))
    return replace(setup, services=("keeper", "keeper"), writers=writers, readers=2, cleaners=1)


def with_compacted_restores(setup: Setup) -> Setup:
    """Tables that are set back, with a metadata table that is compacted all the time."""
    return replace(with_restores(with_metadata(setup)), maintainers=3)


def with_archivers(setup: Setup) -> Setup:
    """Timelines that are cut back all the time."""
    services = ("archiver", "archiver", "file cleaner", "archiver")
    writers = (("overwrite", "upsert", "upsert"), ("upsert", "overwrite"))
    return replace(with_crashes(setup), services=services, writers=writers, readers=2, maintainers=2)


def with_undone_clusterings(setup: Setup) -> Setup:
    """Somebody who takes writes back while clusterings are planned."""
    services = ("clusterer", "clusterer")
    return replace(setup, has_operator=True, services=services, writers=(("upsert", "upsert"),) * 2)


def with_log_compactions(setup: Setup) -> Setup:
    """Log files that are merged while others are written."""
    shape = replace(setup.shape, is_cow=False, groups=1, partitions=("p0",))
    services = ("log compactor",) * 3
    return replace(setup, shape=shape, services=services, writers=(("upsert",) * 3,) * 3)


def _never_cancelled() -> tuple[Patch, ...]:
    return (
        (executions, "is_cancelled", lambda storage, instant: False),
        (executions, "revoke_tickets", lambda ports, instant, but=None: None),
        (clustering, "_check_no_writer", lambda section, writes: None),
    )


def _deleted_before_unpublished() -> tuple[Patch, ...]:
    unpublish = restore._unpublish

    def delete_and_unpublish(context: Any, plan: Any) -> None:
        with context.transactions.section() as section:
            undone = {ref.requested_at for ref in plan.instants}
            files = [rollback.files_of(section, i) for i in section.timeline.commits() if i.requested_at in undone]
        for folder, names in [pair for found in files for pair in found.items()]:
            for name in names:
                delete_file(context.handle.storage, f"{folder}/{name}")
        unpublish(context, plan)

    return ((restore, "_unpublish", delete_and_unpublish),)


def _removed_first() -> tuple[Patch, ...]:
    add_file, remove = archiving._add_file, archiving._remove

    def remove_then_add(section: Section, file: Any, data: bytes, root: str, merged: Any = ()) -> None:
        for instant in section.timeline.completed() if file.level == 0 and not root else ():
            if file.min <= instant.requested_at <= file.max and instant.action.changes_data:
                remove(section, instant, root)
        add_file(section, file, data, root, merged)

    return ((archiving, "_add_file", remove_then_add),)


def _no_second_look() -> tuple[Patch, ...]:
    def load_config(storage: Any) -> Any:
        for path in (config_module.PROPERTIES, config_module.BACKUP):
            data = storage.find(path)
            if data is not None:
                return config_module.decode_config(data, path)
        raise CorruptTableError("there is no config", path=config_module.PROPERTIES)

    ours = (client, metadata_table, indexers, keepers, maintainers, rivals, services)
    return tuple((m, "load_config", load_config) for m in (section_module, transactions, handle, *ours))


def _check_only_completed(section: Section, target: str) -> Any:
    newest = section.timeline.commits()[-1]
    done = section.metadata_timeline.completion_of(target) or ""
    compactions = [i for i in section.metadata_timeline.commits() if str(i.action) == "commit"]
    if newest.requested_at != target or any(i.requested_at > done for i in compactions):
        raise InvalidInputError("not this one", hint="simulated")
    return newest


def _drawn_early() -> tuple[Patch, ...]:
    acquire = SimLock.acquire

    def acquire_later(self: SimLock) -> None:
        self.drawn_ms = self._world.now_ms + self._process.skew_ms
        acquire(self)

    def next_time(self: Section) -> str:
        zone = times.timeline_zone(self.config)
        drawn = times.format_time(self.ports.lock.drawn_ms, zone)  # type: ignore[attr-defined]
        self._highest = times.following_time(drawn, self._highest)
        return self._highest

    return (SimLock, "acquire", acquire_later), (Section, "next_time", next_time)


mutant("H1", "times are drawn before the lock is held", with_many_writers)(_drawn_early)
mutant("H2", "times come from the clock alone", with_wild_clocks)(
    lambda: ((section_module, "following_time", lambda now, highest: now),)
)


def _stale_cleaner() -> tuple[Patch, ...]:
    schedule = Rollbacks.schedule

    def run(self: Rollbacks) -> tuple[str, ...]:
        config = section_module.load_config(self._ports.storage)
        stale = active.list_instants(self._ports.storage, config)
        with open_section(self._ports, self._timing) as section:
            section._files[""] = stale
            pending = schedule(section=section, self=self)
        return tuple(target for target in map(self.execute, pending) if target is not None)

    def plan(self: Rollbacks, section: Section, instant: Any) -> None:
        self._plan_files(section, instant)

    return (Rollbacks, "run", run), (Rollbacks, "_plan", plan)


mutant("H3", "a cleaner decides by a listing from before the lock", with_pauses)(_stale_cleaner)


def _late_first_beat() -> tuple[Patch, ...]:
    def go_on(self: Heartbeat) -> None:
        def beat() -> bool:
            replace_file(self._ports.storage, heartbeat_path(self.instant), self._content())
            return True

        self._stop = self._ports.background.every(1.0, beat)

    return (Heartbeat, "claim", lambda self: True), (Heartbeat, "go_on", go_on)


mutant("H4", "an instant is requested before its first beat")(_late_first_beat)


def _no_tickets() -> tuple[Patch, ...]:
    def publish(self: SimStorage, ticket: Any, final: str, data: bytes) -> Outcome:
        return self._write("publish", final, lambda: self._put_new(final, data, published=True))

    return ((SimStorage, "publish", publish),)


mutant("H5", "nothing but the lease fences a late commit", with_leases)(_no_tickets)
mutant("H6", "a rollback is run while another process runs it", lambda setup: with_crashes(replace(setup, cleaners=3)))(
    lambda: ((rollback, "_waits", lambda section, instant: rollback._is_pending(section, instant)),)
)


def _single_listing() -> tuple[Patch, ...]:
    def load_timeline(storage: Any, config: Any, root: str = "", first: Any = None) -> Timeline:
        del first
        return Timeline.of(active.list_instants(storage, config, root))

    return ((handle, "load_timeline", load_timeline),)


mutant("H7", "a reader lists once", with_pages)(_single_listing)


def _fresh_completion_time() -> tuple[Patch, ...]:
    def complete(self: Section, ticket: Any, instant: Any, data: bytes, root: str = "") -> Outcome:
        outcome = self.ports.storage.publish(ticket, self.path(instant, root), data)
        if outcome is Outcome.UNKNOWN:
            instant = replace(instant, completed_at=self.next_time())
            outcome = self.ports.storage.publish(ticket, self.path(instant, root), data)
        self.forget_timeline(root)
        return outcome

    return ((Section, "complete", complete),)


mutant("H9", "a lost reply is answered by a completed file with a new time", with_lost_replies)(_fresh_completion_time)


def _local_clock() -> tuple[Patch, ...]:
    from datetime import datetime, timezone

    def storage_time(ports: Any) -> datetime:
        return datetime.fromtimestamp(ports.clock.now_ms() / 1000, timezone.utc)

    return ((heartbeats, "storage_time", storage_time),)


mutant("H10", "heartbeats are judged by the local clock", with_wild_clocks)(_local_clock)


def _metadata_last() -> tuple[Patch, ...]:
    commit_metadata = Transactions._commit_metadata
    complete = Section.complete

    def later(self: Transactions, section: Section, attempt: Any, writer: Any) -> bool:
        section.after = lambda: commit_metadata(self, section, attempt, writer)  # type: ignore[attr-defined]
        return True

    def complete_then(self: Section, ticket: Any, instant: Any, data: bytes, root: str = "") -> Outcome:
        outcome = complete(self, ticket, instant, data, root)
        if "after" in self.__dict__ and not root:
            self.__dict__.pop("after")()
        return outcome

    return (Transactions, "_commit_metadata", later), (Section, "complete", complete_then)


mutant("H11", "the metadata table is written after the commit", with_metadata)(_metadata_last)


def _early_check() -> tuple[Patch, ...]:
    check = Transactions.check_conflicts

    def commit_after_check(transactions: Transactions, attempt: Any, prepared: Any, *rest: Any, **named: Any) -> str:
        with transactions.section() as section:
            check(transactions, section, attempt, prepared.writes, prepared.seen)
        return commit(transactions, attempt, prepared, *rest, **named)

    return (
        (writer, "commit", commit_after_check),
        (Transactions, "check_conflicts", lambda self, section, attempt, writes, seen: None),
    )


mutant("H12", "conflicts are looked for before the lock is held", with_many_writers)(_early_check)


def _refusal_is_final() -> tuple[Patch, ...]:
    def complete(self: Section, ticket: Any, instant: Any, data: bytes, root: str = "") -> Outcome:
        outcome = self.ports.storage.publish(ticket, self.path(instant, root), data)
        self.forget_timeline(root)
        if outcome is not Outcome.DONE and not root:
            raise WriteConflictError("lost the race", hint="simulated")
        return outcome

    def abandon(self: Transactions, attempt: Any) -> None:
        attempt.heartbeat.stop()
        for path in actors_files(self, attempt):
            delete_file(self._ports.storage, path)

    def actors_files(self: Transactions, attempt: Any) -> list[str]:
        from lakebed.transaction.markers import load_markers

        return sorted(load_markers(self._ports.storage, attempt.instant))

    return (Section, "complete", complete), (Transactions, "abandon", abandon)


mutant("H13", "a refusal is taken for a lost race, and files are deleted", with_lost_replies)(_refusal_is_final)
mutant("H19", "only writes that the snapshot did not see are rivals", with_many_writers)(
    lambda: (
        (
            transactions,
            "overlapping",
            lambda timeline, requested_at, seen: [i for i in timeline.commits() if i.requested_at not in seen],
        ),
    )
)
mutant("H20", "only writes requested after the newest one seen are rivals", with_many_writers)(
    lambda: (
        (
            transactions,
            "overlapping",
            lambda timeline, requested_at, seen: [i for i in timeline.commits() if i.requested_at > max(seen)],
        ),
    )
)
mutant("H21", "keys that two writes add are not compared", with_inserts)(
    lambda: ((writes, "check_keys", lambda section, prepared: None),)
)
mutant("conflict rules off", "the first to complete does not win", with_many_writers)(
    lambda: ((transactions, "find_conflict", lambda mine, rivals: None),)
)


def _planned_without_lock() -> tuple[Patch, ...]:
    def plan(self: Rollbacks, section: Section, instant: Any) -> None:
        self._ports.lock.release()
        self._plan_files(section, instant)
        self._ports.lock.acquire()

    return ((Rollbacks, "_plan", plan),)


mutant("H41", "a rollback is planned without the lock, and no ticket is revoked", with_pauses)(_planned_without_lock)


def _undone_in_wrong_order() -> tuple[Patch, ...]:
    undo = rollback.undo_metadata

    def only_for_commits(section: Section, target: str, rollback: Any = None, **_: Any) -> None:
        if rollback is None:
            undo(section, target)

    return ((rollback, "undo_metadata", only_for_commits),)


mutant("I37", "a rollback forgets the metadata table", lambda setup: with_crashes(with_metadata(setup)))(
    _undone_in_wrong_order
)
mutant("no markers", "files are written without a marker", with_crashes)(
    lambda: ((writes, "write_markers", lambda storage, instant, paths, token: None),)
)
mutant("no revoke", "whoever takes over does not revoke", with_leases)(
    lambda: tuple(
        (module, "revoke_tickets", lambda ports, instant, but=None: None)
        for module in (section_module, rollback, transactions, attempt_module)
    )
)


def _no_check_alive() -> tuple[Patch, ...]:
    def check_alive(self: Transactions, section: Section, attempt: Any) -> None:
        del section
        if attempt.ticket not in self._ports.storage.find_tickets(attempt.instant):
            attempt.ticket = type(attempt.ticket)(attempt.instant, self._ports.tokens())
            self._ports.storage.open_ticket(attempt.ticket)

    return ((Transactions, "check_alive", check_alive),)


mutant("no P3", "a commit does not look whether it is being rolled back", with_pauses)(_no_check_alive)


def _released_early() -> tuple[Patch, ...]:
    complete = Section.complete

    def complete_unlocked(self: Section, ticket: Any, instant: Any, data: bytes, root: str = "") -> Outcome:
        self.ports.lock.release()
        try:
            return complete(self, ticket, instant, data, root)
        finally:
            self.ports.lock.acquire()

    return ((Section, "complete", complete_unlocked),)


mutant("released early", "the lock is given up before the instant is published", with_many_writers)(_released_early)


def _files_deleted_first() -> tuple[Patch, ...]:
    def unpublish_last(section: Section, plan: Any) -> None:
        """The completed file stays until the end."""

    finish = Rollbacks._finish

    def finish_then(self: Rollbacks, attempt: Any, plan: Any) -> None:
        with open_section(self._ports, self._timing) as section:
            for instant in section.timeline.commits():
                if instant.requested_at == plan.target.requested_at:
                    section.remove(instant)
        finish(self, attempt, plan)

    return (rollback, "_unpublish", unpublish_last), (Rollbacks, "_finish", finish_then)


mutant("H52", "files of a completed write are deleted while it is published", with_operator)(_files_deleted_first)
mutant("no sweep", "what dead processes leave behind stays", with_crashes)(
    lambda: ((Rollbacks, "sweep", lambda self, section: None),)
)


def _heartbeat_stops_early() -> tuple[Patch, ...]:
    declare = Transactions.declare

    def declare_quietly(self: Transactions, attempt: Any, metadata: Any) -> None:
        declare(self, attempt, metadata)
        attempt.heartbeat.stop()
        attempt.heartbeat.is_certain = lambda: True

    return ((Transactions, "declare", declare_quietly),)


mutant("I5", "a heartbeat ends before its instant is decided")(_heartbeat_stops_early)


def _pending_removed_first() -> tuple[Patch, ...]:
    undo = rollback.undo_metadata

    def pending_first(section: Section, target: str, rollback: Any = None, **_: Any) -> None:
        if rollback is not None:
            for instant in section.timeline.pending():
                if instant.requested_at == target:
                    section.remove_pending(target, instant.action)
        undo(section, target, rollback)

    return ((rollback, "undo_metadata", pending_first),)


mutant(
    "I37 order",
    "a rollback removes the instant before the metadata table forgets it",
    lambda setup: with_crashes(with_metadata(replace(setup, readers=2))),
)(_pending_removed_first)


def _head_written() -> tuple[Patch, ...]:
    def write_head(storage: Any, head: Any, etag: str | None) -> bool:
        del etag
        current = storage.find_with_etag(head_module._PATH)
        return swap_head(storage, head, current[1] if current else None)

    swap_head = head_module.swap_head
    return ((section_module, "swap_head", write_head),)


mutant("head erased", "the head record is written over, whoever wrote it", with_lost_leases)(_head_written)
mutant("plan not fenced", "a plan appears after its section lost the lock", with_leases)(
    lambda: ((Section, "request", lambda self, instant, data, ticket=None, root="": self.add(instant, data, root)),)
)


def _metadata_plan_not_fenced() -> tuple[Patch, ...]:
    request = Section.request

    def request_or_add(self: Section, instant: Any, data: bytes, ticket: Any = None, root: str = "") -> None:
        self.add(instant, data, root) if root else request(self, instant, data, ticket)

    return (
        (Section, "request", request_or_add),
        (Section, "take_on", lambda self, instant, own=None: own or self.open_ticket(instant)),
    )


mutant("service not fenced", "a compaction of the metadata table goes on after its lock was lost", with_lost_services)(
    _metadata_plan_not_fenced
)


def _leftovers_deleted_at_once() -> tuple[Patch, ...]:
    def execute(section: Section, upkeep: Any, pending: Any, plan: Any) -> Any:
        for path, file in maintenance._files(section.ports.storage, [table.FILES]):
            if file.instant == pending.requested_at:
                delete_file(section.ports.storage, path)
        return original(section, upkeep, pending, plan)

    original = maintenance._execute_compaction
    return ((maintenance, "_execute_compaction", execute),)


mutant("leftovers of others", "a compaction deletes what it finds though it lost the lock", with_lost_services)(
    _leftovers_deleted_at_once
)
mutant("H8", "a log file lies on the base file that was there when it was requested", with_services)(
    lambda: (
        (
            slices,
            "_logs_by_completion",
            lambda logs, base, completion_of: [
                log for log in logs if completion_of(log.instant) and (base is None or log.instant >= base.instant)
            ],
        ),
    )
)
mutant("H14", "a compaction of the metadata table takes in what a dead writer left", with_services)(
    lambda: ((maintenance, "_compaction_time", lambda section: section.next_time()),)
)


mutant(
    "time taken",
    "a compaction takes the time just before a pending write, though another write has it",
    lambda setup: replace(with_services(with_wild_clocks(setup)), skew_ms=0, writers=(("upsert",), ("insert",)) * 2),
)(lambda: ((maintenance, "_free_time_before", lambda section, instant: times.shift_time(instant, -1)),))


mutant("merge pending", "a log compaction of the metadata table takes in what may still be undone", with_merged_logs)(
    lambda: ((maintenance, "_unsettled", lambda section: frozenset()),)
)


def _only_twins_are_unsettled() -> tuple[Patch, ...]:
    def unsettled(section: Section) -> frozenset[str]:
        return original(section) & {i.requested_at for i in section.metadata_timeline}

    original = maintenance._unsettled
    return ((maintenance, "_unsettled", unsettled),)


mutant("merge late", "a log compaction takes a time after a write that has no entries yet", with_merged_logs)(
    _only_twins_are_unsettled
)
mutant(
    "merge below",
    "a log compaction leaves log files out that a compaction may take without it",
    lambda setup: replace(with_merged_logs(setup), indexers=0),
)(lambda: ((Horizon, "_stays_on_top", lambda self, log: True),))


def _merges_are_writes() -> tuple[Patch, ...]:
    def completions(storage: Any, config: Any, data_timeline: Timeline, timeline: Timeline, known: Any) -> Any:
        return original(storage, config, data_timeline, replace(timeline, log_compactions=frozenset()), known)

    original = metadata_table.metadata_completions
    return ((metadata_table, "metadata_completions", completions),)


mutant("merge ahead", "a reader takes a log compaction that took in what it does not see", with_merged_logs)(
    _merges_are_writes
)


def _undone_though_merged() -> tuple[Patch, ...]:
    def check(section: Section, target: Any) -> Any:
        timeline = section.metadata_timeline
        merged = {i.requested_at for i in timeline if i.action is Action.LOG_COMPACTION} | timeline.log_compactions
        others = Timeline(tuple(i for i in timeline if i.requested_at not in merged))
        with mock.patch.object(Section, "metadata_timeline", others):
            return original(section, target)

    original = rollback._check_can_undo
    return ((rollback, "_check_can_undo", check),)


mutant("undo merged", "a write is taken back that a log compaction has taken in", with_undone_merges)(
    _undone_though_merged
)


def _any_metadata_counts() -> tuple[Patch, ...]:
    def completions(storage: Any, config: Any, data_timeline: Timeline, timeline: Timeline, known: Any) -> Any:
        pending = {instant.requested_at for instant in data_timeline.pending()}
        return lambda time: None if time in pending else known(time)

    return ((metadata_table, "metadata_completions", completions),)


mutant("H15", "a reader takes the metadata table as it is now, whatever its snapshot", with_services)(
    _any_metadata_counts
)


def _config_read_once() -> tuple[Patch, ...]:
    def load_once(storage: Any) -> Any:
        if "config" not in storage.__dict__:
            storage.config = load_config(storage)
        return storage.config

    load_config = section_module.load_config
    return ((section_module, "load_config", load_once),)


mutant("H16", "a commit goes by the table's config as it was at the start", with_configurator)(_config_read_once)


def _no_backup() -> tuple[Patch, ...]:
    return ((config_module, "BACKUP", config_module.PROPERTIES),)


mutant("C7", "a config that is being replaced is not looked for in its backup", with_configurator)(_no_backup)
mutant(
    "C7 race",
    "a config that is neither here nor there is not looked for again",
    lambda setup: with_configurator(replace(setup, rates={}, style=Style.UNIFORM, readers=3)),
)(_no_second_look)


def _clustering_ignored() -> tuple[Patch, ...]:
    def none(mine: Any, other: Any) -> frozenset[str]:
        return frozenset()

    kind = conflicts.WriteKind.CLUSTERING
    rules = {pair: none if kind in pair else rule for pair, rule in conflicts.RULES.items()}
    return ((conflicts, "RULES", rules),)


mutant("H22", "a clustering completes though its input has changed", with_clusterer)(_clustering_ignored)
mutant("H39", "a plan is executed while another process is at it", with_executors)(
    lambda: ((executions, "_check_free", lambda section, plan: None),)
)
mutant("H40", "a removable plan is taken away as soon as a cleaner sees it", with_plans)(
    lambda: (
        (Rollbacks, "_is_overdue", lambda self, section, plan: plan.action in SERVICES and is_removable(section, plan)),
    )
)
mutant("H42", "an executor that failed says that nobody is at its plan, though a task still writes", with_plans)(
    lambda: (
        (plane.Context, "is_idle_after_failure", True),
        (state_module, "_is_named", lambda named, partition, file: True),
    )
)
mutant("H43", "a rollback that is done is run again, whatever became of its target since", with_executors)(
    lambda: ((rollback, "_waits", lambda section, rollback: True),)
)
mutant("plan begun twice", "a removable plan that was begun is executed again", with_plans)(
    lambda: (
        (executions, "is_removable", lambda section, plan: False),
        (Rollbacks, "_finish", _finish_without_tickets),
    )
)
mutant("cancelled", "a plan completes though somebody cancelled it", with_plans)(_never_cancelled)
mutant("H51", "a clean goes by its plan, whatever savepoints were made since", with_savepoints)(
    lambda: (
        (savepoint, "pending_cleans", lambda section: ()),
        (clean, "_still_valid", lambda section, state, plan: plan),
    )
)
mutant("savepoint ignored", "a clean is planned without a look at savepoints", with_savepoints)(
    lambda: ((clean, "_savepoints", lambda section: ()),)
)
mutant("writer ignored", "a clean takes what a write that is under way has seen", with_savepoints)(
    lambda: ((clean, "held_since", lambda section: iter(())),)
)
mutant("H52 restore", "a restore deletes files of writes that are still published", with_restores)(
    _deleted_before_unpublished
)
mutant("H53", "a write goes on over a restore", with_restores)(
    lambda: (
        (restore, "_check_idle", lambda section: None),
        (Transactions, "_check_snapshot", lambda self, section, seen: None),
    )
)
mutant(
    "H54",
    "a restore leaves what undone writes told the metadata table",
    lambda setup: with_restores(with_metadata(setup)),
)(lambda: ((restore, "undo_metadata", lambda section, time: None),))
mutant(
    "metadata kept", "a restore keeps a metadata table into which undone writes are compacted", with_compacted_restores
)(lambda: ((restore, "_can_be_carried_along", lambda section, plan: True),))
mutant("no barrier", "others go on while a table is set back", with_restores)(
    lambda: ((Section, "check_no_restore", lambda self: None),)
)
mutant("archived early", "instants leave the timeline though cleaning and pending instants need them", with_archivers)(
    lambda: ((archive, "_rule", lambda section, state, retention: lambda instant: True),)
)
mutant("removed first", "instants leave the timeline before the history has them", with_archivers)(_removed_first)
mutant("undo clustered", "a write is taken back that a clustering waits for", with_undone_clusterings)(
    lambda: ((rollback, "_check_not_planned", lambda section, commit: None),)
)
mutant(
    "appended between", "a log compaction takes file groups that a writer is about to append to", with_log_compactions
)(lambda: ((compaction_plan, "_declared_groups", lambda section: frozenset()),))
mutant("undo compacted", "a write is taken back that a planned compaction has taken in", with_undone_compactions)(
    lambda: ((rollback, "_check_can_undo", _check_only_completed),)
)
mutant("compact undone", "a compaction takes in a write that is about to be taken back", with_undone_compactions)(
    lambda: ((maintenance, "targets_of_rollbacks", lambda section: frozenset()),)
)


def _heartbeat_outlives_rollback() -> tuple[Patch, ...]:
    def keep_heartbeats(storage: Any, path: str) -> None:
        if not path.startswith(".hoodie/.heartbeat/"):
            delete_file(storage, path)

    return ((rollback, "delete_file", keep_heartbeats), (Rollbacks, "sweep", lambda self, section: None))


mutant("heartbeat kept", "a rollback leaves the heartbeat of its target", with_crashes)(_heartbeat_outlives_rollback)
mutant("no rest", "whoever gives up leaves its heartbeat running", with_leases)(
    lambda: ((attempt_module.Attempt, "given_up_on_failure", lambda self: nullcontext()),)
)
mutant("stale snapshot", "a write goes on though what it read was taken back", with_operator)(
    lambda: ((Transactions, "_check_snapshot", lambda self, section, seen: None),)
)
mutant("new groups", "a file group that a rival added is nobody's", with_late_snapshots)(
    lambda: ((conflicts, "RULES", _rules_without_added_groups()),)
)


def _rules_without_added_groups() -> dict[Any, Any]:
    def same_group(mine: Any, other: Any) -> Any:
        return mine.changed & other.changed

    naive = {conflicts._same_group: same_group}
    return {pair: naive.get(rule, rule) for pair, rule in conflicts.RULES.items()}


mutant("ticket kept", "a rollback leaves the ticket of a process that was about to execute its target", with_executors)(
    lambda: ((Rollbacks, "_finish", _finish_without_tickets),)
)
mutant("asked once", "the lock is given back while a completed file may still appear", with_silence)(
    lambda: ((section_module, "_TRIES", 1),)
)
_FINISH = Rollbacks._finish


def _finish_without_tickets(self: Rollbacks, attempt: Any, plan: Any) -> None:
    revoke = rollback.revoke_tickets

    def revoke_own(ports: Any, instant: Any) -> None:
        if instant == attempt.instant:
            revoke(ports, instant)

    with mock.patch.object(rollback, "revoke_tickets", revoke_own):
        _FINISH(self, attempt, plan)


def with_builder(setup: Setup) -> Setup:
    """Another engine that builds an index while writers begin."""
    services = tuple(name for name in setup.services if name != "keeper")
    shape = replace(setup.shape, has_metadata=True)
    writers = (("upsert", "upsert"),) * 3
    return replace(setup, has_builder=True, shape=shape, services=services, writers=writers, rates={})


def with_rival(setup: Setup) -> Setup:
    """Another engine that takes compactions up after they have waited for long, and executors of ours."""
    shape = replace(setup.shape, is_cow=False)
    return replace(setup, has_rival=True, shape=shape, services=(), rates={}, writers=(("upsert",) * 2,) * 2)


mutant("I19", "writers sweep what another engine builds", with_builder)(
    lambda: ((rollback, "plans_of", lambda section: iter(())),)
)
mutant("I18", "entries are hashed over the shards that are listed", with_builder)(
    lambda: (
        (
            obliged,
            "find_groups",
            lambda storage, partition, begun, planned=None: obliged.list_groups(storage, [partition])[partition],
        ),
    )
)
mutant("I19 age", "whether another engine is at a plan is judged by when it was requested", with_rival)(
    lambda: ((plans, "time_left", _left_since_request(plans.time_left)),)
)


def _left_since_request(time_left: Any) -> Any:
    return lambda section, plan: time_left(section, replace(plan, state=State.REQUESTED))


def with_committers(setup: Setup) -> Setup:
    """Writers who stand still after they have prepared a commit, and others who commit it."""
    return with_pauses(replace(setup, services=(), committers=3, has_operator=False))


def with_indexers(setup: Setup) -> Setup:
    """Those who create and drop an index, by a lock that is lost now and then, and writers."""
    services = tuple(name for name in setup.services if name != "keeper")
    shape = replace(setup.shape, has_metadata=True)
    return with_leases(replace(setup, shape=shape, services=services, indexers=3, writers=(("upsert", "insert"),) * 3))


def with_standing_indexers(setup: Setup) -> Setup:
    """Those who create and drop an index, and stand still for so long that others take their work back."""
    lock, rates = LockKind(can_be_lost=True, lease_ms=2_000), {Fault.PAUSE: 0.08}
    setup = replace(with_indexers(setup), services=(), maintainers=0, lock=lock, rates=rates, cleaners=0)
    return replace(setup, indexers=4, writers=(("insert",),), has_foreign=False, has_operator=False)


def with_maintained_indexes(setup: Setup) -> Setup:
    """The same, with a metadata table that is compacted all the time."""
    return replace(with_standing_indexers(setup), indexers=2, maintainers=3, writers=(("upsert", "insert"),) * 2)


def _upkeep_of_what_is_built() -> tuple[Patch, ...]:
    original = maintenance._slices

    def slices_of_all(section: Section) -> Any:
        config = section.config
        names = ",".join((*config.metadata_partitions, *config.metadata_partitions_inflight))
        properties = {**config.properties, "hoodie.table.metadata.partitions": names}
        section.config = replace(config, properties=properties)
        try:
            return original(section)
        finally:
            section.config = config

    return (
        (maintenance, "_slices", slices_of_all),
        (maintenance, "_still_there", lambda section, plan: plan.operations),
    )


def _checks_only_writes(check_alive: Any) -> Any:
    def check(self: Transactions, section: Section, attempt: Any) -> None:
        if attempt.action is not Action.INDEXING:
            check_alive(self, section, attempt)
        elif attempt.ticket not in self._ports.storage.find_tickets(attempt.instant):
            attempt.ticket = section.open_ticket(attempt.instant)

    return check


def _keeps_indexing(remove: Any) -> Any:
    """Only the end of a build that is taken back removes it from the timeline."""

    def remove_others(self: Section, instant: Any, root: str = "") -> None:
        if instant.action is Action.INDEXING and instant.state is State.INFLIGHT:
            path = self.path(replace(instant, state=State.REQUESTED))
            if self.ports.storage.find(path) is not None and not root:
                self.removals = getattr(self, "removals", 0) + 1
                if self.removals % 2:
                    return
        remove(self, instant, root)

    return remove_others


def _without_fences(execute: Any) -> Any:
    def execute_unfenced(section: Section, *rest: Any) -> Any:
        section.fenced = lambda ticket: section.ports.storage  # type: ignore[method-assign]
        return execute(section, *rest)

    return execute_unfenced


mutant("config not fenced", "the config names an index though its builder lost the lock", with_standing_indexers)(
    lambda: (
        (Section, "announce_config", lambda self: None),
        (steps, "change_config", _without_lease(steps.change_config)),
    )
)
mutant("index swept", "files of an index go though whoever drops it lost the lock", with_indexers)(
    lambda: tuple((module, "clear_partition", _without_lease(module.clear_partition)) for module in (schedule, drop))
)


def _without_lease(step: Any) -> Any:
    """A step of index work that is taken whether the lock is still held or not."""

    def step_anyway(section: Section, *rest: Any, **named: Any) -> None:
        with mock.patch.object(Section, "check_lease", return_value=None):
            step(section, *rest, **named)

    return step_anyway


def with_engines(setup: Setup) -> Setup:
    """Those who create and drop an index among writers of ours and of another engine, which knows the config only."""
    services = tuple(name for name in setup.services if name != "keeper")
    shape = replace(setup.shape, has_metadata=True)
    writers = (("upsert", "insert"), ("insert", "upsert"))
    lock, rates = LockKind(can_be_lost=False), {Fault.PAUSE: 0.03}
    return replace(
        setup, shape=shape, services=services, indexers=2, writers=writers, lock=lock, rates=rates, has_foreign=True
    )


def with_dying_indexers(setup: Setup) -> Setup:
    """Those who create and drop an index, and die or stand still doing so, and writers."""
    setup = with_indexers(setup)
    return replace(setup, rates={**setup.rates, Fault.CRASH_BEFORE: 0.006, Fault.CRASH_AFTER: 0.006}, restarts=2)


mutant("H24", "a write has entries for the indexes that were there when it began", with_engines)(
    lambda: ((writes, "CommitEntries", writes.ConfigEntries),)
)
mutant("H25", "a delta commit is taken as proof that it has entries for the index", with_engines)(
    lambda: ((catch_up, "covers", lambda delta, partition: True),)
)
mutant("H29", "a write in flight since before the index was planned is not waited for", with_engines)(
    lambda: ((catch_up.CatchUp, "_find_unsettled", lambda self, section: iter(())),)
)
mutant("H31", "a compaction of the metadata table takes in an index that is being built", with_maintained_indexes)(
    _upkeep_of_what_is_built
)
mutant("H34", "a build is taken back though the config names the index", with_dying_indexers)(
    lambda: ((index_plans, "_unready", lambda section, plan: frozenset(plan.partitions)),)
)
mutant("H35", "an index is built though another process is at it", with_indexers)(
    lambda: ((index_plans, "settle_plans", lambda section, *, unused=(): index_plans.Settled()),)
)
mutant("H36", "nobody takes back what a dead process left of a build", with_dying_indexers)(
    lambda: ((index_plans, "abort", lambda section, plan: None),)
)
mutant("H37", "a build goes on though it was taken back", with_indexers)(
    lambda: ((Transactions, "check_alive", _checks_only_writes(Transactions.check_alive)),)
)
mutant("taken back late", "a build is taken back, and its process may still complete it", with_standing_indexers)(
    lambda: ((Section, "remove", _keeps_indexing(Section.remove)),)
)
mutant("merge not fenced", "a compaction leaves files in an index that was built since", with_maintained_indexes)(
    lambda: ((maintenance, "_execute_compaction", _without_fences(maintenance._execute_compaction)),)
)
mutant("late plan", "a compaction of the metadata table takes an index that was dropped since", with_indexers)(
    lambda: ((maintenance, "_still_there", lambda section, plan: plan.operations),)
)
mutant("committed elsewhere", "a write that another process committed is told to have failed", with_committers)(
    lambda: ((Transactions, "_find_completion", lambda self, section, attempt: None),)
)
