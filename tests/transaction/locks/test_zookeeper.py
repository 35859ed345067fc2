from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

import pytest

from lakebed.errors import InvalidInputError, LockUnavailableError, StorageUnavailableError
from lakebed.transaction.locks.kazoo_session import connector
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.locks.zookeeper import ZooKeeperLock, queue_order
from transaction.locks.fakes import FakeClock, tokens

ONCE = Patience(wait_s=0)
PATH = "/hudi/orders"
CURATOR = "_c_6f1c7c68-02ab-4b6f-8f5e-5c2f6b3a4f10-lock-"


class FakeZooKeeper:
    """One node with numbered ephemeral children, and sessions that can end or fall silent."""

    def __init__(self) -> None:
        self.owners: dict[str, FakeSession] = {}
        self.number = 0
        self.open = 0

    def connect(self) -> FakeSession:
        self.open += 1
        return FakeSession(self)

    def expire(self, session: FakeSession) -> None:
        self.owners = {name: owner for name, owner in self.owners.items() if owner is not session}


class FakeSession:
    timeout_s = 30.0

    def __init__(self, server: FakeZooKeeper) -> None:
        self.server = server
        self.silent = False
        self.calls = 0
        self.lost: frozenset[int] = frozenset()

    def children(self, path: str) -> Sequence[str]:
        self._answer()
        assert path == PATH
        return sorted(self.server.owners, key=lambda name: name[::-1])

    def append(self, path: str, prefix: str) -> None:
        assert path == PATH
        self.server.owners[f"{prefix}{self.server.number:010}"] = self
        self.server.number += 1
        self._answer()

    def owns(self, path: str) -> bool:
        self._answer()
        return self.server.owners.get(path.removeprefix(f"{PATH}/")) is self

    def close(self) -> None:
        self.server.expire(self)
        self.server.open -= 1

    def _answer(self) -> None:
        self.calls += 1
        if self.silent or self.calls in self.lost:
            raise StorageUnavailableError("ZooKeeper did not answer", hint="none")


def lock_on(server: FakeZooKeeper, clock: FakeClock | None = None, patience: Patience = ONCE) -> ZooKeeperLock:
    return ZooKeeperLock(PATH, server.connect, clock or FakeClock(), tokens(), patience)


def waiting(server: FakeZooKeeper, then: Callable[[], None]) -> ZooKeeperLock:
    """A lock with patience; `then` happens during its fifth pause."""
    clock = FakeClock()
    clock.on_sleep = lambda: then() if len(clock.slept) == 5 else None
    return lock_on(server, clock, Patience(10))


def test_nodes_are_named_like_those_of_curator() -> None:
    server = FakeZooKeeper()
    lock_on(server).acquire()
    assert list(server.owners) == ["_c_t1-lock-0000000000"]
    assert re.fullmatch(r"_c_.+-lock-\d{10}", f"{CURATOR}0000000001")


@pytest.mark.parametrize(
    ("name", "order"),
    [
        (f"{CURATOR}0000000012", "0000000012"),
        ("_c_t1-lock-0000000003", "0000000003"),
        ("lock-lock-0000000003", "0000000003"),
        ("6f1c7c68__lock__0000000001", "6f1c7c68__lock__0000000001"),
    ],
)
def test_the_order_of_the_queue_is_that_of_curator(name: str, order: str) -> None:
    assert queue_order(name) == order


@pytest.mark.parametrize("name", [CURATOR, "_c_0-lock-", "_c_zzz-lock-"])
def test_it_excludes_in_both_directions(name: str) -> None:
    server = FakeZooKeeper()
    curator = server.connect()
    curator.append(PATH, name)
    with pytest.raises(LockUnavailableError, match=PATH):
        lock_on(server).acquire()
    assert list(server.owners) == [f"{name}0000000000"]
    curator.close()
    lock = lock_on(server)
    lock.acquire()
    assert lock.can_be_lost
    other = server.connect()
    other.append(PATH, name)
    assert sorted(server.owners, key=queue_order)[0] == "_c_t1-lock-0000000002"
    lock.release()
    assert list(server.owners) == [f"{name}0000000003"]
    assert server.open == 1


def test_it_waits_for_its_turn() -> None:
    server = FakeZooKeeper()
    first, second = server.connect(), server.connect()
    first.append(PATH, CURATOR)
    second.append(PATH, CURATOR)

    def both_leave() -> None:
        first.close()
        second.close()

    lock = waiting(server, both_leave)
    lock.acquire()
    assert lock.remaining() > 0


def test_remaining_is_what_the_servers_owe_a_session_they_just_heard_of() -> None:
    server, clock = FakeZooKeeper(), FakeClock()
    lock = lock_on(server, clock)
    assert lock.remaining() == 0
    lock.acquire()
    assert lock.remaining() == 20
    clock.ms += 3_600_000
    assert lock.remaining() == 20
    (session,) = server.owners.values()
    session.silent = True
    assert lock.remaining() == 0
    lock.release()
    assert lock.remaining() == 0


def test_a_lock_whose_session_ended_is_lost() -> None:
    server = FakeZooKeeper()
    lock = lock_on(server)
    lock.acquire()
    (session,) = server.owners.values()
    server.expire(session)
    assert lock.remaining() == 0
    other = lock_on(server)
    other.acquire()
    assert (lock.remaining(), other.remaining()) == (0, 20)
    lock.release()
    assert other.remaining() == 20


@pytest.mark.parametrize("lost", [{1}, {2}, {3}, {1, 2}, {2, 3}, {1, 3, 4}], ids=str)
def test_a_lost_reply_does_not_make_two_of_us(lost: set[int]) -> None:
    server = FakeZooKeeper()
    session = server.connect()
    session.lost = frozenset(lost)
    lock = ZooKeeperLock(PATH, lambda: session, FakeClock(), tokens(), Patience(10))
    lock.acquire()
    assert lock.remaining() > 0
    assert len(server.owners) == 1


def test_a_session_that_ends_while_waiting_queues_again() -> None:
    server = FakeZooKeeper()
    first = server.connect()
    first.append(PATH, CURATOR)

    def all_end() -> None:
        for session in set(server.owners.values()):
            server.expire(session)

    lock = waiting(server, all_end)
    lock.acquire()
    assert lock.remaining() > 0


def test_an_interrupted_wait_leaves_the_queue() -> None:
    server = FakeZooKeeper()
    first = server.connect()
    first.append(PATH, CURATOR)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        waiting(server, interrupt).acquire()
    assert list(server.owners.values()) == [first]
    assert server.open == 1


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'lakebed\[zookeeper\]'"):
        connector("localhost:2181", session_s=60, connection_s=15)
