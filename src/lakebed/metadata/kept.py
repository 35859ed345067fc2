"""What one look at a metadata table leaves for the next one. Its files never change, so what is kept is never wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.storage.held import HeldFiles

OPENED_BYTES_MAX = 64 << 20
"""Room for the log files of ten commits of a hundred thousand new keys each."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Entries of the newest `files` partition, by where they lie, and files of all partitions as they were opened."""

    files: dict[tuple[str, int], pa.Table] = field(default_factory=dict)
    opened: HeldFiles = field(default_factory=lambda: HeldFiles(OPENED_BYTES_MAX))
