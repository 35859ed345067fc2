"""The statistics that the metadata table holds of a data partition, for writers that bring them up to date."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from lakebed.format.java_hash import shard_of
from lakebed.format.metadata.keys import column_stats_key, partition_stats_key
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.metadata.column_stats import COLUMN_STATS, PARTITION_STATS
from lakebed.metadata.table import MetadataTable
from lakebed.model.metadata import ColumnStats


class StatsReader(Protocol):
    """What is known of data partitions before a change."""

    def current_files(self, partition: str) -> Collection[str]:
        """Names of the files in the latest slices of a data partition once the change took place, its own or not."""
        ...

    def of_partition(self, partition: str, columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of a data partition."""
        ...

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of files of a data partition."""
        ...


class CurrentStats:
    """Statistics as a metadata table has them. `current_files` is the caller's: it needs the timeline."""

    def __init__(self, metadata: MetadataTable, current_files: Callable[[str], Collection[str]]) -> None:
        self._metadata = metadata
        self._current_files = current_files

    def current_files(self, partition: str) -> Collection[str]:
        """Names of the files in the latest slices of a data partition once the change took place, its own or not."""
        return self._current_files(partition)

    def of_partition(self, partition: str, columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of a data partition."""
        return tuple(self._find(PARTITION_STATS, [partition_stats_key(column, partition) for column in columns]))

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        """The statistics of files of a data partition."""
        keys = [column_stats_key(column, partition, name) for name in names for column in columns]
        return tuple(self._find(COLUMN_STATS, keys))

    def _find(self, mdt_partition: str, keys: list[str]) -> Iterator[ColumnStats]:
        file_ids = [file_slice.group.file_id for file_slice in self._metadata.slices(mdt_partition)]
        by_shard: dict[str, list[str]] = {}
        for key in keys:
            by_shard.setdefault(file_ids[shard_of(key, len(file_ids))], []).append(key)
        for file_id, of_shard in by_shard.items():
            for layers in self._metadata.shard(mdt_partition, file_id).find_many(of_shard).values():
                stored = layers[-1]
                payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
                if isinstance(payload, ColumnStats) and not payload.is_deleted:
                    yield payload
