"""Locks of one host: of the operating system, for tables on a local disk, and among the threads of one process."""

from __future__ import annotations

import fcntl
import math
import os

from lakebed.clock import Clock
from lakebed.storage import posix
from lakebed.storage.problems import os_errors_typed
from lakebed.transaction.locks.waiting import Patience


class FileLock:
    """Tries for, and holds, the lock on one file. The file is created when missing, and never removed."""

    __slots__ = ("_handle", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock, in this process."""
        return self._handle is not None

    def try_acquire(self) -> bool:
        """Whether the lock was free and is now held. OSError if the file cannot be opened for writing."""
        posix.make_folder(os.path.dirname(self._path))
        # For writing: over NFS an exclusive lock asks for that. It also keeps those out who may only read the table.
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not _lock(handle, self._path):
            os.close(handle)
            return False
        self._handle = handle
        _HELD.add(self)
        return True

    def release(self) -> None:
        """Frees the lock, if this object holds it."""
        handle, self._handle = self._handle, None
        _HELD.discard(self)
        if handle is not None:
            # Closing alone would not do: a child that is being forked right now has a copy of the handle.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def _forget(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _lock(handle: int, path: str) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever drops a table removes the file, and a lock on a removed file excludes nobody.
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


_HELD: set[FileLock] = set()


def _forget_all() -> None:
    for lock in _HELD:
        lock._forget()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_all)


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


_HOLDERS: dict[str, object] = {}
"""Who holds which table. `setdefault` is one step, also between threads."""


class InProcessLock:
    """The lock of the table at `url`, for this process only. It cannot be lost."""

    __slots__ = ("_clock", "_holder", "_patience", "_url")

    def __init__(self, url: str, clock: Clock, patience: Patience) -> None:
        self._url = url
        self._clock = clock
        self._patience = patience
        self._holder: object = None

    @property
    def can_be_lost(self) -> bool:
        """Never: there is no lease."""
        return False

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        holder = object()
        if not self._patience.wait(lambda: _HOLDERS.setdefault(self._url, holder) is holder, self._clock):
            raise self._patience.unavailable(
                f"the lock of {self._url}", hint="another thread of this process holds it: run the write again"
            )
        self._holder = holder

    def remaining(self) -> float:
        """Infinite while it is held, else 0."""
        return math.inf if self._holder is not None else 0.0

    def release(self) -> None:
        """Gives the lock up."""
        holder, self._holder = self._holder, None
        if holder is not None:
            del _HOLDERS[self._url]
