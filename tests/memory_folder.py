"""A folder in memory for what a run of the tests writes: most tests wait for files more than they compute."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOM_BYTES = 4 << 30
"""Free space that memory must have; a run of all tests writes a tenth of it."""
_PREFIX, _LOCK = "lakebed-tests-", "lock"


def use(memory: Path = Path("/dev/shm"), room_bytes: int = ROOM_BYTES) -> Callable[[], None]:
    """Makes it the folder of temporary files, of child processes too; returns how to remove it.

    Where the user names another folder, or memory has no room, files go where they always go.
    """
    if "TMPDIR" in os.environ or not _has_room(memory, room_bytes):
        return lambda: None
    _sweep(memory)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=memory))
    held = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)

    def remove() -> None:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)

    return remove


def _has_room(memory: Path, room_bytes: int) -> bool:
    try:
        return os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free >= room_bytes
    except OSError:
        return False


def _sweep(memory: Path) -> None:
    """Removes what runs that were killed have left: nobody holds their locks."""
    for lock in memory.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            held = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(held)
