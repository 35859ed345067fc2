"""A child process that compiles while this one works, once per host and at the lowest priority."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakebed.kernels import cache

_LOCK = "compiling"
_RETRY_AFTER_S = 3600
"""A compilation that did not come to its end is not tried again by every process that starts."""
_ROOT = str(Path(__file__).parents[2])
"""Where the package lies, wherever this process has it from."""
_CHILDREN: list[subprocess.Popen[bytes]] = []
"""They outlive this process, which does not wait for them."""


def start() -> bool:
    """Start to compile in the background unless that is done, under way, or was tried lately; whether it started."""
    folder = cache.make_folder() if cache.find_ready() is None else None
    if folder is None or not _is_due(folder):
        return False
    with suppress(OSError):
        _CHILDREN.append(
            subprocess.Popen(
                [sys.executable, "-m", "lakebed.kernels.warm"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (_ROOT, os.environ.get("PYTHONPATH"))))},
            )
        )
        return True
    return False


@contextmanager
def lock(folder: str, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of those who compile; False if another process has it and this one does not wait."""
    handle = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        os.utime(handle)
        yield True
    finally:
        os.close(handle)


def _is_due(folder: str) -> bool:
    """Whether nobody compiles, nor tried to within the last hour."""
    path = os.path.join(folder, _LOCK)
    try:
        age_s = time.time_ns() / 1e9 - os.stat(path).st_mtime
    except FileNotFoundError:
        return True
    return not 0 <= age_s < _RETRY_AFTER_S
