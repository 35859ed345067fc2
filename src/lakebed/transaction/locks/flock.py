"""An exclusive lock on a file, kept by the operating system: the one place here that calls it.

The lock belongs to an open file, so two threads that each open the file exclude each other like two processes do. It
ends when the last handle on that open file is closed, at the latest with the process, however that ends. A forked
child gets copies of all handles and would keep the lock of a dead parent, so it closes them first of all; programs
started by `exec` never see them.
"""

from __future__ import annotations

import fcntl
import os

from lakebed.storage import posix


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
