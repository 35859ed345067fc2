from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from commits import commit_files
from lakebed.errors import InvalidInputError, LockUnavailableError, RolledBackError, WriteConflictError
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Outcome, Storage, Ticket
from lakebed.timeline import load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.conflicts import WriteKind, WriteSet
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.markers import write_markers
from lakebed.transaction.transactions import Transactions

from .conftest import commit_of, ports_of


def upserts(*groups: str) -> WriteSet:
    return WriteSet(WriteKind.UPSERT, rewritten=frozenset(FileGroupId("p", g) for g in groups))


def names(storage: Storage) -> list[str]:
    return sorted(listed.path.rpartition("/")[2] for listed in storage.list(".hoodie/timeline"))


def write(transactions: Transactions, group: str = "g") -> str:
    attempt = transactions.begin(Action.COMMIT)
    metadata = commit_of(group, attempt.instant, prev="20200101000000000")
    transactions.declare(attempt, metadata)
    commit_files(transactions, attempt, upserts(group), frozenset(), metadata)
    return attempt.instant


def test_a_commit_leaves_its_three_files_and_nothing_else(storage: Storage, transactions: Transactions) -> None:
    instant = write(transactions)
    timeline = load_timeline(storage, load_config(storage))
    assert [(i.requested_at, i.state) for i in timeline] == [(instant, State.COMPLETED)]
    assert len(names(storage)) == 3
    assert not storage.list(".hoodie/.heartbeat")
    assert not storage.list(".hoodie/.temp", recursive=True)
    assert not storage.find_tickets(instant)


def test_times_grow_and_completion_follows_request(storage: Storage, transactions: Transactions) -> None:
    for group in "abcdef":
        write(transactions, group)
    times = [t for i in load_timeline(storage, load_config(storage)) for t in (i.requested_at, i.completed_at)]
    assert times == sorted(times)
    assert len(set(times)) == len(times)


def test_the_second_of_two_writes_on_a_file_group_is_told(storage: Storage, transactions: Transactions) -> None:
    other = Transactions(ports_of(storage), Timing())
    mine = transactions.begin(Action.COMMIT)
    transactions.declare(mine, commit_of("g", mine.instant))
    theirs = write(other, "g")
    with pytest.raises(WriteConflictError, match=theirs):
        commit_files(transactions, mine, upserts("g"), frozenset(), commit_of("g", mine.instant))
    transactions.abandon(mine)
    timeline = load_timeline(storage, load_config(storage))
    assert [i.action for i in timeline] == [Action.COMMIT, Action.ROLLBACK]
    assert not storage.list(".hoodie/.heartbeat")


def test_writes_on_different_file_groups_both_complete(storage: Storage, transactions: Transactions) -> None:
    other = Transactions(ports_of(storage), Timing())
    mine = transactions.begin(Action.COMMIT)
    transactions.declare(mine, commit_of("g", mine.instant))
    write(other, "h")
    commit_files(transactions, mine, upserts("g"), frozenset(), commit_of("g", mine.instant))
    assert len(load_timeline(storage, load_config(storage)).completed()) == 2


def grow_old(storage: Storage, instant: str) -> None:
    path = Path(storage.url, ".hoodie/.heartbeat", instant)
    old = path.stat().st_mtime - 1000
    os.utime(path, (old, old))


def test_a_dead_write_is_rolled_back_with_its_files_by_the_next_writer(
    storage: Storage, transactions: Transactions
) -> None:
    dead = transactions.begin(Action.COMMIT)
    transactions.declare(dead, commit_of("g", dead.instant))
    marked, unmarked = f"p/g_0-0-1_{dead.instant}.parquet", f"p/g_0-0-2_{dead.instant}.parquet"
    write_markers(storage, dead.instant, [marked], "1")
    for path in (marked, unmarked, "p/other_0-0-0_20200101000000000.parquet"):
        storage.create(path, b"rows")
    other = Transactions(ports_of(storage), Timing())
    write(other, "h")
    assert storage.find(marked) is not None, "its heart still beats"
    grow_old(storage, dead.instant)
    write(other, "i")
    assert [listed.path for listed in storage.list("p")] == ["p/other_0-0-0_20200101000000000.parquet"]
    timeline = load_timeline(storage, load_config(storage))
    assert not timeline.pending()
    assert timeline.completion_of(dead.instant) is None
    with pytest.raises(RolledBackError):
        commit_files(transactions, dead, upserts("g"), frozenset(), commit_of("g", dead.instant))
    assert timeline.completion_of(dead.instant) is None


def test_only_the_newest_completed_write_can_be_rolled_back(storage: Storage, transactions: Transactions) -> None:
    first, second = write(transactions, "a"), write(transactions, "b")
    storage.create(f"p/b_0-0-0_{second}.parquet", b"rows")
    with pytest.raises(InvalidInputError, match="newest"):
        transactions.rollbacks.schedule_completed(InstantTime(first))
    rollback = transactions.rollbacks.schedule_completed(InstantTime(second))
    assert transactions.rollbacks.execute(rollback) == second
    timeline = load_timeline(storage, load_config(storage))
    assert [i.requested_at for i in timeline.commits()] == [first]
    assert not timeline.pending()
    assert not storage.list("p")


class RunningOut(InProcessLock):
    """A lock whose lease runs out when a test says so."""

    seconds_left = float("inf")

    def remaining(self) -> float:
        return self.seconds_left


class Deaf:
    """A store that loses the first request for a ticket; by the time it is asked again the lock has run out."""

    def __init__(self, storage: Storage, lock: RunningOut) -> None:
        self._storage = storage
        self._lock = lock

    def open_ticket(self, ticket: Ticket) -> Outcome:
        if self._lock.seconds_left > 0:
            self._lock.seconds_left = 0
            return Outcome.UNKNOWN
        return self._storage.open_ticket(ticket)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)


def test_no_ticket_is_opened_after_the_lock_has_run_out(storage: Storage) -> None:
    ports = ports_of(storage)
    lock = RunningOut(storage.url, ports.clock, Patience())
    transactions = Transactions(replace(ports, storage=cast(Storage, Deaf(storage, lock)), lock=lock), Timing())
    with pytest.raises(LockUnavailableError, match="lease expired"):
        transactions.begin(Action.COMMIT)
    assert storage.list_folders(".hoodie/.tickets") == ()
