"""What one look at a metadata table leaves for the next one. Its files never change, so what is kept is never wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.metadata.shard import EntryLayer
from lakebed.storage.held import HeldFiles

OPENED_BYTES_MAX = 64 << 20
"""Room for the log files of ten commits of a hundred thousand new keys each."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of all partitions as they were opened, and the entries of layers of the `files` partition."""

    files: dict[EntryLayer, pa.Table] = field(default_factory=dict)
    opened: HeldFiles = field(default_factory=lambda: HeldFiles(OPENED_BYTES_MAX))
