"""What one look at a metadata table leaves for the next one. Its files never change, so what is kept is never wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.metadata.shard import EntryLayer
from lakebed.model.metadata import ColumnStats
from lakebed.storage.held import HeldFiles

PartitionStats = Mapping[str, tuple[ColumnStats, ...]]
"""Statistics of columns by data partition."""

OPENED_BYTES_MAX = 64 << 20
"""Room for the log files of ten commits of a hundred thousand new keys each."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Statistics of partitions that a commit added to what `before`, by name, completed when."""

    before: Mapping[str, str]
    names: frozenset[str]
    columns: tuple[str, ...]
    stats: PartitionStats


class WrittenStats:
    """Statistics of partitions as this process wrote them last. They count while its files are the newest ones."""

    def __init__(self) -> None:
        self._newest: _Written | None = None

    def find(self, files: Mapping[str, str], columns: Sequence[str]) -> PartitionStats:
        """What partitions have if these files of theirs count, by name and when they completed; of some, or of none."""
        known = self._newest
        if known is None or known.columns != tuple(columns) or not known.names <= files.keys():
            return {}
        older = {name: completed_at for name, completed_at in files.items() if name not in known.names}
        return known.stats if older == known.before else {}

    def note(
        self, before: Mapping[str, str], names: Iterable[str], columns: Sequence[str], stats: PartitionStats
    ) -> None:
        """Statistics that were written to new files, whose names nobody else has, on top of those before."""
        older = self.find(before, columns)
        self._newest = _Written(dict(before), frozenset(names), tuple(columns), {**older, **stats})


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of all partitions as they were opened, the entries of layers of `files`, and what was written last."""

    files: dict[EntryLayer, pa.Table] = field(default_factory=dict)
    opened: HeldFiles = field(default_factory=lambda: HeldFiles(OPENED_BYTES_MAX))
    stats: WrittenStats = field(default_factory=WrittenStats)
