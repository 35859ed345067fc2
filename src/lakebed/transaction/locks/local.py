"""The lock of a table on a local disk that only lakebed writes."""

from __future__ import annotations

import math

from lakebed.clock import Clock
from lakebed.storage.problems import os_errors_typed
from lakebed.transaction.locks.flock import FileLock
from lakebed.transaction.locks.waiting import Patience

LOCK_FILE = ".hoodie/.locks/lakebed.lock"
"""Beside the lock files of Apache Hudi, which looks only for its own there. Always empty."""
_PAUSE_S = 0.02


class LocalLock:
    """A lock of the operating system on a file of the table: it cannot be lost, and it ends with its process."""

    __slots__ = ("_clock", "_lock", "_patience", "_root")

    def __init__(self, root: str, clock: Clock, patience: Patience) -> None:
        self._root = root
        self._clock = clock
        self._patience = Patience(patience.wait_s, min(patience.pause_s, _PAUSE_S))
        self._lock: FileLock | None = None

    @property
    def can_be_lost(self) -> bool:
        """Never: no lease runs out, and a paused process still has its files open."""
        return False

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        lock = FileLock(f"{self._root}/{LOCK_FILE}")
        with os_errors_typed(LOCK_FILE):
            if not self._patience.wait(lock.try_acquire, self._clock):
                raise self._patience.unavailable(
                    f"the lock of {self._root}", hint="another writer of this host holds it: run the write again"
                )
        self._lock = lock

    def remaining(self) -> float:
        """Infinite while it is held, else 0."""
        return math.inf if self._lock is not None and self._lock.is_held else 0.0

    def release(self) -> None:
        """Gives the lock up."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
