"""Reads the statistics of a data partition from the metadata table, for commits that update them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Protocol

from lakebed.format.metadata.datum import is_own
from lakebed.format.metadata.keys import column_stats_key, partition_stats_key
from lakebed.format.metadata.records import decode_metadata_record, merge_column_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.metadata.shard import StoredValue
from lakebed.metadata.table import MetadataTable
from lakebed.model.metadata import ColumnStats
from lakebed.storage.cache import FileCache


@dataclass(frozen=True, slots=True)
class KnownStats:
    """The statistics of a data partition in the metadata table, and whether they surely cover all files.

    Those of another engine may not: Apache Hudi computes them before its commit section, so they miss writes that
    complete in between. Nor may statistics that are not tight.
    """

    stats: tuple[ColumnStats, ...] = ()
    is_whole: bool = True


class StatsReader(Protocol):
    """Statistics of data partitions before a change."""

    def current_files(self, partition: str) -> Collection[str]:
        """Names of the files in the latest slices of a data partition after the change."""
        ...

    def of_partition(self, partition: str, columns: Sequence[str]) -> KnownStats:
        """The statistics of a data partition."""
        ...

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of files of a data partition."""
        ...

    def learn(self, stats: PartitionStats, columns: Sequence[str]) -> None:
        """Records the statistics of data partitions after the change; empty for partitions without any."""
        ...


class CurrentStats:
    """Statistics of a metadata table. The caller passes in `current_files`, because it needs the timeline."""

    def __init__(self, metadata: MetadataTable, current_files: Callable[[str], Collection[str]]) -> None:
        self._metadata = metadata
        self._current_files = current_files
        self._learned: tuple[PartitionStats, Sequence[str]] | None = None

    def learn(self, stats: PartitionStats, columns: Sequence[str]) -> None:
        """Records the statistics of data partitions after the change; empty for partitions without any."""
        self._learned = stats, columns

    def remember(self, names: Iterable[str]) -> None:
        """Caches the recorded statistics for the next commit: they were written, tight, to files of these names."""
        if self._learned is not None and self._files is not None:
            stats, columns = self._learned
            note_written(self._metadata.cache, self._files, names, columns, stats)

    @cached_property
    def _files(self) -> dict[str, str] | None:
        """Files of the index with their completion times; None if these do not identify the content."""
        shards = self._metadata.shard_files(PARTITION_STATS)
        if shards is None:
            return None
        return {
            path.rpartition("/")[2]: completed_at
            for files in shards
            for path, completed_at in zip(files.file_slice.paths, files.completions, strict=True)
        }

    def current_files(self, partition: str) -> Collection[str]:
        """Names of the files in the latest slices of a data partition after the change."""
        return self._current_files(partition)

    def of_partition(self, partition: str, columns: Sequence[str]) -> KnownStats:
        """The statistics of a data partition."""
        written = find_written(self._metadata.cache, self._files, columns) if self._files is not None else {}
        if partition in written:
            return KnownStats(written[partition])
        keys = [partition_stats_key(column, partition) for column in columns]
        found, is_whole = [], True
        for layers in self._metadata.find_many(PARTITION_STATS, keys).values():
            merged = _merged(layers)
            if merged is not None and not merged.is_deleted:
                found.append(merged)
                is_whole &= merged.is_tight_bound and is_own(layers[-1].schema)
        return KnownStats(tuple(found), is_whole)

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of files of a data partition."""
        keys = [column_stats_key(column, partition, name) for name in names for column in columns]
        newest = (_stats(layers[-1]) for layers in self._metadata.find_many(COLUMN_STATS, keys).values())
        return tuple(each for each in newest if each is not None and not each.is_deleted)


def _merged(layers: Sequence[StoredValue]) -> ColumnStats | None:
    """The entries of one column, oldest first, merged; nothing below a tight or deleted one counts."""
    newest: list[ColumnStats] = []
    for stats in filter(None, map(_stats, reversed(layers))):
        newest.append(stats)
        if stats.is_tight_bound or stats.is_deleted:
            break
    return reduce(merge_column_stats, reversed(newest)) if newest else None


def _stats(stored: StoredValue) -> ColumnStats | None:
    payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
    return payload if isinstance(payload, ColumnStats) else None


PartitionStats = Mapping[str, tuple[ColumnStats, ...]]
"""Statistics of columns, by data partition."""
_KEY = ("partition stats",)
_STATS_BYTES = 512
"""Approximate size of the statistics of a column in memory, in bytes."""


@dataclass(frozen=True, slots=True)
class _Written:
    """Statistics that a commit wrote to files of these names, on top of files `before` (completion times by name)."""

    before: Mapping[str, str]
    names: frozenset[str]
    columns: tuple[str, ...]
    stats: PartitionStats


def find_written(cache: FileCache, files: Mapping[str, str], columns: Sequence[str]) -> PartitionStats:
    """Cached statistics of partitions, valid for exactly these index files (completion times by name)."""
    known = cache.get(_KEY, _Written)
    if known is None or known.columns != tuple(columns) or not known.names <= files.keys():
        return {}
    older = {name: completed_at for name, completed_at in files.items() if name not in known.names}
    return known.stats if older == known.before else {}


def note_written(
    cache: FileCache, before: Mapping[str, str], names: Iterable[str], columns: Sequence[str], stats: PartitionStats
) -> None:
    """Caches statistics that were written to new files, with unique names, on top of the files before."""
    known = {**find_written(cache, before, columns), **stats}
    written = _Written(dict(before), frozenset(names), tuple(columns), known)
    cache.put(_KEY, written, _STATS_BYTES * sum(map(len, known.values())))
