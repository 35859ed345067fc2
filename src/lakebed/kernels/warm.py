"""Compiles every function of `kernels.compiled` into this host's cache.

`lakebed warm-up` does so in the foreground: for images, benchmarks and tests. `start_in_background` starts a child
process, `python -m lakebed.kernels.warm`: at most one per host, at the lowest priority.
"""

from __future__ import annotations

import fcntl
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from lakebed.kernels import cache

_LOCK = "compiling"
_RETRY_AFTER_S = 3600
"""Seconds before a failed compilation is retried, so that not every process that starts tries it."""
_ROOT = str(Path(__file__).parents[2])
"""The folder that this process imports the package from."""
_CHILDREN: list[subprocess.Popen[bytes]] = []
"""Child processes that compile. They may outlive this process, which does not wait for them."""
_NICE = 19
"""Scheduling priority of the child process: the lowest."""


def start_in_background() -> bool:
    """Start compiling in a child process, unless the code is there, being compiled, or was tried within the last hour.

    Returns whether a child was started.
    """
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
def compile_lock(folder: str, *, wait: bool) -> Iterator[bool]:
    """Hold the lock for compiling; False if another process holds it and this one does not wait."""
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
    """Whether no process compiles or has tried to within the last hour."""
    path = os.path.join(folder, _LOCK)
    try:
        age_s = time.time_ns() / 1e9 - os.stat(path).st_mtime
    except FileNotFoundError:
        return True
    return not 0 <= age_s < _RETRY_AFTER_S


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Result of a warm-up: numbers of functions compiled and already present, and the folder if one is writable."""

    compiled: int
    present: int
    folder: str | None


def warm_up(*, wait: bool = True, tell: Callable[[str], None] | None = None) -> WarmUp | None:
    """Compile what is missing and mark the folder as ready; None if another process does so and we do not `wait`."""
    folder = cache.make_folder()
    if folder is None:
        return WarmUp(0, 0, None)
    with compile_lock(folder, wait=wait) as is_ours:
        if not is_ours:
            return None
        compiled, present = _compile_all(folder, tell)
        cache.mark_ready(folder)
    return WarmUp(compiled, present, folder)


def _compile_all(folder: str, tell: Callable[[str], None] | None) -> tuple[int, int]:
    from lakebed.kernels import compiled as package  # Loads numba, which takes half a second.
    from lakebed.kernels.compiled import jit

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    made = 0
    for entry in jit.ENTRIES:
        is_new = entry.compile_into(folder)
        made += is_new
        if tell is not None:
            tell(f"{'compiled' if is_new else 'found'} {entry.name}")
    return made, len(jit.ENTRIES) - made


def main() -> None:
    """Compile at the lowest priority, unless another process does."""
    with suppress(OSError):
        os.nice(_NICE)
    warm_up(wait=False)


if __name__ == "__main__":
    main()
