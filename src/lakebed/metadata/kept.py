"""What one look at a metadata table leaves for the next one. Its files never change, so what is kept is never wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats
from lakebed.storage.held import HeldFiles

PartitionStats = Mapping[str, tuple[ColumnStats, ...]]
"""Statistics of columns by data partition."""

DataFiles = Mapping[str, tuple[BaseFile | LogFile, ...]]
"""Data files by partition path."""

OPENED_BYTES_MAX = 64 << 20
"""Room for the log files of ten commits of a hundred thousand new keys each."""
LISTED_MAX = 1 << 17
"""So many data files are kept at most, which take about 50 MiB."""


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
class Listing:
    """The data files that the files of a shard list.

    `sources` are these, oldest first, by path and when they completed; None of one that this process wrote, whose name
    nobody else has. Blocks of instants that are `replaced` do not count among them.
    """

    sources: tuple[tuple[str, InstantTime | None], ...]
    files: DataFiles
    replaced: frozenset[str] = frozenset()

    def starts(self, sources: Sequence[tuple[str, InstantTime]]) -> bool:
        """Whether these are the sources of this listing, and maybe newer ones."""
        pairs = zip(self.sources, sources, strict=False)
        return len(self.sources) <= len(sources) and all(
            known == source or known == (source[0], None) for known, source in pairs
        )


class LastListing:
    """The data files as this process has seen or changed them last, unless they are very many."""

    def __init__(self) -> None:
        self._newest: Listing | None = None

    def find(self, sources: Sequence[tuple[str, InstantTime]]) -> Listing | None:
        """The listing, if its sources are the first of these."""
        newest = self._newest
        return newest if newest is not None and newest.starts(sources) else None

    def note(self, listing: Listing) -> None:
        """Keeps a listing in place of the last one."""
        self._newest = listing if sum(map(len, listing.files.values())) <= LISTED_MAX else None


@dataclass(frozen=True, slots=True)
class Kept:
    """Files of all partitions as they were opened, the data files that were listed, and what was written last."""

    listing: LastListing = field(default_factory=LastListing)
    opened: HeldFiles = field(default_factory=lambda: HeldFiles(OPENED_BYTES_MAX))
    stats: WrittenStats = field(default_factory=WrittenStats)
