from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.errors import LockUnavailableError
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Fault, FaultyStorage, on
from lakebed.transaction.locks.file_system import LOCK_FILE, HudiFileLock, encode_holder
from lakebed.transaction.locks.waiting import Patience
from transaction.locks.fakes import FakeBackground, FakeClock, tokens

ONCE = Patience(wait_s=0)


class World:
    """A table's folder, at the machine's own time, for files have that."""

    def __init__(self, root: Path) -> None:
        self.file = root / LOCK_FILE
        self.file.parent.mkdir(parents=True)
        self.storage: Storage = open_storage(root)
        self.clock = FakeClock(SystemClock().now_ms())
        self.background = FakeBackground()

    def lock(self, name: str = "a", expire_s: float = 0, storage: Storage | None = None) -> HudiFileLock:
        return HudiFileLock(
            storage or self.storage, self.clock, self.background, tokens(name), expire_s=expire_s, patience=ONCE
        )

    def pass_time(self, seconds: float) -> None:
        """Lets files grow older."""
        self.clock.ms += round(seconds * 1000)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_content_has_the_fields_of_apache_hudi() -> None:
    assert json.loads(encode_holder("lakebed-x", 1_700_000_000_123)) == {
        "lockCreateTime": "2023-11-14 22:13:20.123",
        "lockThreadName": "lakebed-x",
        "lockStacksInfo": [],
    }


def test_it_excludes_until_it_is_released(world: World) -> None:
    first, second = world.lock("a"), world.lock("b")
    assert first.remaining() == 0
    first.acquire()
    assert first.remaining() == math.inf
    assert first.can_be_lost
    assert not world.background.tasks
    with pytest.raises(LockUnavailableError, match=r"remove \.hoodie/lock"):
        second.acquire()
    assert first.remaining() == math.inf
    first.release()
    assert not world.file.exists()
    assert first.remaining() == 0
    second.acquire()
    with pytest.raises(LockUnavailableError):
        second.acquire()
    second.release()


def test_a_lock_of_apache_hudi_is_respected(world: World) -> None:
    world.file.touch()
    with pytest.raises(LockUnavailableError):
        world.lock().acquire()
    assert world.file.read_bytes() == b""
    world.pass_time(1e9)
    with pytest.raises(LockUnavailableError):
        world.lock().acquire()


def test_a_lock_that_is_too_old_is_taken_over(world: World) -> None:
    world.file.touch()
    world.pass_time(59)
    with pytest.raises(LockUnavailableError):
        world.lock(expire_s=60).acquire()
    world.pass_time(2)
    lock = world.lock(expire_s=60)
    lock.acquire()
    assert 0 < lock.remaining() <= 60
    lock.release()
    assert not world.file.exists()


def test_renewals_keep_the_file_young(world: World) -> None:
    lock = world.lock("a", expire_s=60)
    lock.acquire()
    assert [seconds for seconds, _ in world.background.tasks] == [6]
    old = SystemClock().now_ms() / 1000 - 50
    os.utime(world.file, (old, old))
    world.pass_time(50)
    assert lock.remaining() < 10
    world.background.run()
    assert lock.remaining() == 60
    assert world.file.stat().st_mtime > old + 40
    lock.release()
    assert not world.background.tasks


def test_a_lock_that_another_client_removed_is_lost_at_once(world: World) -> None:
    first, second = world.lock("a", expire_s=60), world.lock("b")
    first.acquire()
    world.file.unlink()
    assert first.remaining() == 0
    second.acquire()
    world.background.run()
    assert not world.background.tasks
    first.release()
    assert second.remaining() == math.inf


def test_a_file_that_apache_hudi_emptied_while_it_settled_is_not_ours(world: World) -> None:
    world.clock.on_sleep = lambda: world.file.write_bytes(b"") and None
    with pytest.raises(LockUnavailableError):
        world.lock().acquire()
    assert world.file.read_bytes() == b""


def test_an_interruption_leaves_no_lock_behind(world: World) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    world.clock.on_sleep = interrupt
    with pytest.raises(KeyboardInterrupt):
        world.lock().acquire()
    assert not world.file.exists()


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.REFUSE])
def test_an_unknown_create_is_settled_by_reading_back(world: World, fault: Fault) -> None:
    lock = world.lock(storage=FaultyStorage(world.storage, on("create", fault)))
    if fault is Fault.LOST_AFTER:
        lock.acquire()
        assert lock.remaining() == math.inf
    else:
        with pytest.raises(LockUnavailableError):
            lock.acquire()
        assert not world.file.exists()


@pytest.mark.parametrize("fault", [Fault.LOST_BEFORE, Fault.LOST_AFTER])
def test_an_unknown_delete_is_settled_by_reading_back(world: World, fault: Fault) -> None:
    lock = world.lock(storage=FaultyStorage(world.storage, on("delete", fault)))
    lock.acquire()
    lock.release()
    assert not world.file.exists()


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.LOST_BEFORE, Fault.REFUSE])
def test_a_renewal_that_is_not_confirmed_gives_no_time(world: World, fault: Fault) -> None:
    lock = world.lock("a", 60, FaultyStorage(world.storage, on("replace", fault)))
    lock.acquire()
    world.pass_time(30)
    world.background.run()
    assert lock.remaining() < 31
    world.background.run()
    assert lock.remaining() == 60
