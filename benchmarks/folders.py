"""A folder for a run, away from what the runs before it have left.

ext4 without a journal does not use an inode again for minutes, and looks through all of those for every file that is
made nearby: after a run has deleted its tables the next one would take up to half a millisecond longer for each file.
"""

from __future__ import annotations

import array
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.batches import BENCH

_GET_FLAGS, _SET_FLAGS, _TOP_FOLDER = 0x80086601, 0x40086602, 0x20000
"""Of Linux: folders in one with this flag, as `chattr +T` sets it, are put where there is room, not near each other."""


@contextmanager
def fresh_folder() -> Iterator[Path]:
    """An empty folder, gone after the block."""
    BENCH.mkdir(exist_ok=True)
    with suppress(OSError, ImportError):  # Other systems, other file systems.
        _spread_folders(BENCH)
    with tempfile.TemporaryDirectory(dir=BENCH) as made:
        yield Path(made)


def _spread_folders(folder: Path) -> None:
    import fcntl

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(handle, _GET_FLAGS, flags)
        flags[0] |= _TOP_FOLDER
        fcntl.ioctl(handle, _SET_FLAGS, flags)
    finally:
        os.close(handle)
