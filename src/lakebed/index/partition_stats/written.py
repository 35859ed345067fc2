"""Statistics of partitions as this process wrote them last, cached: valid while its files are the newest ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.model.metadata import ColumnStats
from lakebed.storage.cache import FileCache

PartitionStats = Mapping[str, tuple[ColumnStats, ...]]
"""Statistics of columns by data partition."""

_KEY = ("partition stats",)
_STATS_BYTES = 512
"""About what the statistics of a column take in memory, in bytes."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Statistics that a commit wrote to files of these names, added to those `before` (completion times by name)."""

    before: Mapping[str, str]
    names: frozenset[str]
    columns: tuple[str, ...]
    stats: PartitionStats


def find_written(cache: FileCache, files: Mapping[str, str], columns: Sequence[str]) -> PartitionStats:
    """Statistics of partitions, of some or none, if these files of theirs count (completion times by name)."""
    known = cache.get(_KEY, _Written)
    if known is None or known.columns != tuple(columns) or not known.names <= files.keys():
        return {}
    older = {name: completed_at for name, completed_at in files.items() if name not in known.names}
    return known.stats if older == known.before else {}


def note_written(
    cache: FileCache, before: Mapping[str, str], names: Iterable[str], columns: Sequence[str], stats: PartitionStats
) -> None:
    """Caches statistics that were written to new files, whose names nobody else has, on top of the files before."""
    known = {**find_written(cache, before, columns), **stats}
    written = _Written(dict(before), frozenset(names), tuple(columns), known)
    cache.put(_KEY, written, _STATS_BYTES * sum(map(len, known.values())))
