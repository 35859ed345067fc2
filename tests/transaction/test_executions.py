"""Plans of table services on the timeline: who may execute them, and what becomes of those that nobody finishes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from commits import NoMetadataTable, commit_files
from lakebed.errors import (
    InvalidInputError,
    LockUnavailableError,
    RolledBackError,
    ServiceCancelledError,
    ServiceRunningError,
    WriteConflictError,
)
from lakebed.format.properties import encode_properties
from lakebed.format.timeline.metadata import encode_compaction_plan
from lakebed.model.commit import CommitMetadata, CompactionOperation, CompactionPlan
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file
from lakebed.timeline import Timeline, load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.conflicts import WriteKind, WriteSet
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.markers import write_markers
from lakebed.transaction.pending import pending_rivals
from lakebed.transaction.plans import REMOVABLE, cancel_marker
from lakebed.transaction.section import METADATA, Section
from lakebed.transaction.transactions import MetadataWriter, Transactions

from .conftest import PROPERTIES, commit_of, ports_of

GROUP = FileGroupId("p", "g")
PLAN = CompactionPlan((CompactionOperation(GROUP.partition, GROUP.file_id, "20200101000000000"),))
AT_ONCE = Timing(service_delay_seconds=0)
NO_METADATA_TABLE = NoMetadataTable()
NEVER = 1 << 30


def schedule(transactions: Transactions, action: Action = Action.COMPACTION, *, removable: bool = False) -> InstantTime:
    extra = {REMOVABLE: "true"} if removable else {}

    def make_plan(section: Section, instant: InstantTime) -> bytes:
        assert section.timeline.completion_of(instant) is None
        return encode_compaction_plan(replace(PLAN, extra_metadata=extra))

    instant = transactions.executions.schedule(action, make_plan)
    assert instant is not None
    return instant


def complete(
    transactions: Transactions, attempt: Attempt, metadata_table: MetadataWriter = NO_METADATA_TABLE
) -> InstantTime:
    metadata = replace(commit_of("g", attempt.instant), operation="COMPACT", compacted=True)
    writes = WriteSet(WriteKind.COMPACTION, rewritten=frozenset([GROUP]))

    def check(section: Section) -> None:
        del section
        transactions.executions.check_not_cancelled(attempt.instant)

    return commit_files(transactions, attempt, writes, frozenset(), metadata, metadata_table, check)


def timeline_of(storage: Storage) -> Timeline:
    return load_timeline(storage, load_config(storage))


def die(storage: Storage, instant: str) -> None:
    path = Path(storage.url, ".hoodie/.heartbeat", instant)
    old = path.stat().st_mtime - 10_000
    os.utime(path, (old, old))


def leave_files(storage: Storage, instant: InstantTime) -> None:
    """What an attempt made before it died: one file with a marker and one without."""
    write_markers(storage, instant, [f"p/g_0-0-1_{instant}.parquet"], "1")
    for token in ("0-0-1", "0-0-2"):
        storage.create(f"p/g_{token}_{instant}.parquet", b"rows")


def test_a_plan_is_executed_once(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    other = Transactions(ports_of(storage), Timing())
    attempt = other.executions.begin(instant)
    assert [(i.action, i.state) for i in timeline_of(storage)] == [(Action.COMPACTION, State.INFLIGHT)]
    with pytest.raises(ServiceRunningError):
        transactions.executions.begin(instant)
    complete(other, attempt)
    assert [(i.action, i.state) for i in timeline_of(storage)] == [(Action.COMMIT, State.COMPLETED)]
    with pytest.raises(InvalidInputError, match="already"):
        transactions.executions.begin(instant)
    with pytest.raises(InvalidInputError, match="no plan"):
        transactions.executions.begin(InstantTime("20200101000000000"))
    assert not storage.list(".hoodie/.heartbeat")
    assert not storage.find_tickets(instant)


def test_a_plan_that_is_gone_since_the_timeline_was_listed_is_no_rival(
    storage: Storage, transactions: Transactions
) -> None:
    """Writers look at plans without the lock: one that is removable may be rolled back meanwhile."""
    instant = schedule(transactions, Action.LOG_COMPACTION, removable=True)
    seen, config = timeline_of(storage), load_config(storage)
    assert [rival.writes.rewritten for rival in pending_rivals(storage, config, seen)] == [frozenset([GROUP])]
    transactions.executions.cancel(instant)
    assert transactions.rollbacks.run() == (instant,)
    assert list(pending_rivals(storage, config, seen)) == []


def test_nothing_to_do_leaves_nothing(storage: Storage, transactions: Transactions) -> None:
    assert transactions.executions.schedule(Action.COMPACTION, lambda *_: None) is None
    assert not list(timeline_of(storage))


def test_what_a_dead_attempt_left_is_undone_and_the_plan_stays(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    dead = transactions.executions.begin(instant)
    leave_files(storage, instant)
    die(storage, instant)

    other = Transactions(ports_of(storage), Timing())
    attempt = other.executions.begin(instant)
    assert not [listed for listed in storage.list("p") if instant in listed.path]
    assert [i.action for i in timeline_of(storage).completed()] == [Action.ROLLBACK]
    with pytest.raises(RolledBackError):
        complete(transactions, dead)
    transactions.executions.give_up(dead, is_idle=True)
    assert attempt.heartbeat.is_certain(), "the one that woke up must not end the other's heartbeat"
    complete(other, attempt)
    assert not timeline_of(storage).pending()
    assert timeline_of(storage).completion_of(instant) is not None


def test_writers_leave_immutable_plans_alone(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    transactions.executions.begin(instant)
    die(storage, instant)
    Transactions(ports_of(storage), AT_ONCE).rollbacks.run()
    assert [i.requested_at for i in timeline_of(storage).pending()] == [instant]


def test_a_failed_attempt_can_be_followed_at_once(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    attempt = transactions.executions.begin(instant)
    transactions.executions.give_up(attempt, is_idle=True)
    complete(transactions, transactions.executions.begin(instant))
    assert timeline_of(storage).completion_of(instant) is not None


def test_tasks_that_may_still_run_keep_others_off(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    attempt = transactions.executions.begin(instant)
    transactions.executions.give_up(attempt, is_idle=False)
    with pytest.raises(ServiceRunningError):
        transactions.executions.begin(instant)


def test_a_removable_plan_that_was_begun_must_be_rolled_back(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions, Action.LOG_COMPACTION, removable=True)
    transactions.executions.begin(instant)
    leave_files(storage, instant)
    die(storage, instant)
    with pytest.raises(ServiceCancelledError, match="rollback_failed_writes"):
        transactions.executions.begin(instant)
    assert Transactions(ports_of(storage), Timing()).rollbacks.run() == (), "the delay has not passed"
    assert Transactions(ports_of(storage), AT_ONCE).rollbacks.run() == (instant,)
    assert not timeline_of(storage).pending()
    assert not storage.list("p")
    assert not storage.list(".hoodie/.heartbeat")


def test_a_removable_plan_that_nobody_began_goes_after_the_delay(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions, Action.LOG_COMPACTION, removable=True)
    assert Transactions(ports_of(storage), Timing(service_delay_seconds=60)).rollbacks.run() == ()
    attempt = transactions.executions.begin(instant)
    assert Transactions(ports_of(storage), AT_ONCE).rollbacks.run() == (), "its heart beats"
    complete(transactions, attempt)
    other = schedule(transactions, Action.LOG_COMPACTION, removable=True)
    assert Transactions(ports_of(storage), AT_ONCE).rollbacks.run() == (other,)


def test_a_cancelled_plan_never_completes(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions, Action.LOG_COMPACTION, removable=True)
    attempt = transactions.executions.begin(instant)
    Transactions(ports_of(storage), Timing()).executions.cancel(instant)
    with pytest.raises(ServiceCancelledError):
        complete(transactions, attempt)
    transactions.executions.give_up(attempt, is_idle=True)
    with pytest.raises(ServiceCancelledError):
        transactions.executions.begin(instant)
    assert Transactions(ports_of(storage), Timing()).rollbacks.run() == (instant,), "no delay for what is cancelled"
    transactions.executions.cancel(instant)
    assert not storage.list(".hoodie/.cancelled")


class Interrupted:
    """A store of a process that stands still before one of its calls, while another does something."""

    def __init__(self, storage: Storage, call: int, meanwhile: Callable[[], object]) -> None:
        self.calls = 0
        self._storage = storage
        self._call = call
        self._meanwhile = meanwhile

    def interrupt(self, call: int) -> None:
        """Has it stand still before a call, counted from now on."""
        self._call = self.calls + call

    @property
    def is_over(self) -> bool:
        """Whether it has stood still."""
        return self.calls >= self._call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self._call:
                self._meanwhile()
            return function(*args, **kwargs)

        return call


@pytest.mark.parametrize("call", range(1, 20))
def test_a_plan_is_cancelled_or_completed_wherever_the_canceller_loses_the_lock(
    storage: Storage, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = itertools.count()
    ports = replace(ports_of(storage), tokens=lambda: f"executor{next(tokens)}")
    executor = Transactions(ports, AT_ONCE)
    instant = schedule(executor, Action.LOG_COMPACTION, removable=True)
    attempt = executor.executions.begin(instant)
    monkeypatch.setattr(executor, "close", lambda attempt: None)  # It dies before it ends the tickets.
    slow = Interrupted(storage, call, lambda: complete(executor, attempt))
    lock_of_none = InProcessLock("another table", ports.clock, Patience())
    canceller = Transactions(replace(ports_of(cast(Storage, slow)), lock=lock_of_none), AT_ONCE)
    with suppress(WriteConflictError, LockUnavailableError, InvalidInputError, ServiceCancelledError):
        canceller.executions.cancel(instant)
    is_completed = timeline_of(storage).completion_of(instant) is not None
    is_cancelled = storage.find(cancel_marker(instant)) is not None
    assert is_completed is not is_cancelled
    assert all(ticket.generation.startswith("executor") for ticket in storage.find_tickets(instant))


class LostLock:
    """A lock that its holder has until it stands still."""

    can_be_lost = True

    def __init__(self, holder: Interrupted) -> None:
        self._holder = holder

    def acquire(self) -> None:
        pass

    def release(self) -> None:
        pass

    def remaining(self) -> float:
        return 0.0 if self._holder.is_over else 1e6


class OneLogFile:
    """Writes to the metadata table: a file per commit."""

    def is_ready(self, section: Section) -> bool:
        return True

    def get_ready(self) -> None:
        raise AssertionError("it is ready")

    def write(self, section: Section, instant: InstantTime) -> CommitMetadata:
        create_file(section.files, f"{METADATA}files/.files-0000-0_{instant}.log.1_0-0-0", b"listing")
        return CommitMetadata({}, operation="UPSERT")


@pytest.mark.parametrize("call", range(1, 30))
def test_a_plan_that_others_completed_does_not_come_back_to_the_metadata_table(storage: Storage, call: int) -> None:
    properties = {**PROPERTIES, "hoodie.table.metadata.partitions": "files"}
    storage.replace(".hoodie/hoodie.properties", encode_properties(properties, comment="test", date="today"))
    other = Transactions(replace(ports_of(storage), tokens=map("other{}".format, itertools.count()).__next__), AT_ONCE)

    def meanwhile() -> None:
        """Another process takes the plan for dead, carries it out, and the metadata table's timeline is archived."""
        with suppress(InvalidInputError):  # It has completed the plan itself.
            die(storage, instant)
            complete(other, other.executions.begin(instant), OneLogFile())
        for listed in storage.list(f"{METADATA}.hoodie/timeline"):
            storage.delete(listed.path)

    slow = Interrupted(storage, NEVER, meanwhile)
    paused = Transactions(replace(ports_of(cast(Storage, slow)), lock=LostLock(slow)), AT_ONCE)
    instant = schedule(paused)
    attempt = paused.executions.begin(instant)
    slow.interrupt(call)
    with suppress(LockUnavailableError, RolledBackError):
        complete(paused, attempt, OneLogFile())
    if slow.is_over:
        assert not storage.list(f"{METADATA}.hoodie/timeline")
        assert timeline_of(storage).completion_of(instant) is not None


@pytest.mark.parametrize("call", range(1, 16))
def test_a_write_that_loses_the_lock_while_it_begins_leaves_no_ticket(storage: Storage, call: int) -> None:
    other = Transactions(replace(ports_of(storage), tokens=map("other{}".format, itertools.count()).__next__), AT_ONCE)

    def meanwhile() -> None:
        """Another process takes it for dead, and looks for its tickets."""
        for listed in storage.list(".hoodie/.heartbeat"):
            die(storage, listed.path.rpartition("/")[2])
        other.abandon(other.begin(Action.COMMIT))

    slow = Interrupted(storage, call, meanwhile)
    paused = Transactions(replace(ports_of(cast(Storage, slow)), lock=LostLock(slow)), AT_ONCE)
    with suppress(LockUnavailableError):
        paused.abandon(paused.begin(Action.COMMIT))
    tickets = [entry for entry in os.scandir(Path(storage.url, ".hoodie/.tickets")) if entry.is_dir()]
    assert not tickets


def test_only_removable_plans_can_be_cancelled(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    with pytest.raises(InvalidInputError, match="removable"):
        transactions.executions.cancel(instant)
    complete(transactions, transactions.executions.begin(instant))
    with pytest.raises(InvalidInputError, match="cannot be cancelled"):
        transactions.executions.cancel(instant)
    assert isinstance(timeline_of(storage).completion_of(instant), str)


def test_an_interrupted_rollback_of_an_attempt_is_taken_up(storage: Storage, transactions: Transactions) -> None:
    instant = schedule(transactions)
    transactions.executions.begin(instant)
    leave_files(storage, instant)
    die(storage, instant)
    with transactions.section() as section:
        (plan,) = section.timeline.pending()
        transactions.rollbacks.schedule_attempt(section, plan)
    write = Transactions(ports_of(storage), Timing()).begin(Action.COMMIT)
    assert not storage.list("p")
    assert (instant, State.REQUESTED) in [(i.requested_at, i.state) for i in timeline_of(storage).pending()]
    assert write.heartbeat.is_certain()
    complete(transactions, transactions.executions.begin(instant))
    assert timeline_of(storage).completion_of(instant) is not None


def grow_old(storage: Storage, name: str, seconds: int = 1200) -> None:
    """Has a file of the timeline be that old."""
    path = Path(storage.url) / ".hoodie/timeline" / name
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


@pytest.mark.parametrize("removable", [False, True])
def test_whether_another_engine_is_at_a_plan_is_told_by_the_age_of_its_inflight_file(
    storage: Storage, transactions: Transactions, removable: bool
) -> None:
    action = Action.LOG_COMPACTION if removable else Action.COMPACTION
    instant = schedule(transactions, action, removable=removable)
    grow_old(storage, f"{instant}.{action}.requested")
    create_file(
        storage, f".hoodie/timeline/{instant}.{action}.inflight", b""
    )  # Apache Hudi begins, without a heartbeat.
    with pytest.raises(ServiceRunningError, match="another engine"):
        transactions.executions.begin(instant)
    assert transactions.rollbacks.run() == ()
    grow_old(storage, f"{instant}.{action}.inflight")
    if removable:
        assert transactions.rollbacks.run() == (instant,)
    else:
        complete(transactions, transactions.executions.begin(instant))
