from __future__ import annotations

import math

import pytest

from lakebed.errors import LockUnavailableError
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from transaction.locks.fakes import FakeClock

ONCE = Patience(wait_s=0)


def test_it_excludes_by_table() -> None:
    clock = FakeClock()
    first, second, other = (InProcessLock(url, clock, ONCE) for url in ("memory://x", "memory://x", "memory://y"))
    first.acquire()
    other.acquire()
    assert first.remaining() == math.inf
    assert not first.can_be_lost
    for lock in (first, second):
        with pytest.raises(LockUnavailableError):
            lock.acquire()
    second.release()
    assert second.remaining() == 0
    first.release()
    assert first.remaining() == 0
    second.acquire()
    second.release()
    other.release()


def test_it_waits() -> None:
    clock = FakeClock()
    first, second = InProcessLock("memory://w", clock, ONCE), InProcessLock("memory://w", clock, Patience(9))
    first.acquire()
    clock.on_sleep = first.release
    second.acquire()
    assert second.remaining() == math.inf
    second.release()
