"""Computes the facts of files that a task has just written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.format.metadata.column_stats import merge_column_stats
from lakebed.format.parquet_encode import Spread
from lakebed.index.bloom.kind import BLOOM_FILTERS
from lakebed.index.column_stats.compute import column_stats, spread_stats
from lakebed.index.column_stats.kind import COLUMN_STATS
from lakebed.index.facts import FileFacts
from lakebed.index.kind import Expected
from lakebed.index.kinds import wanted_of
from lakebed.index.record.definition import find_ordering
from lakebed.index.record.kind import RECORD_INDEX
from lakebed.index.wanted import Wanted, gather_all
from lakebed.model.commit import WriteStat
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats


@dataclass(frozen=True, slots=True)
class FileStats:
    """What indexes want from the rows of a file: column statistics, and what else was gathered."""

    columns: tuple[ColumnStats, ...]
    gathered: Mapping[str, bytes]

    def facts(self, stat: WriteStat, **more: Any) -> FileFacts:
        """The facts of the file; `more` are other fields of `FileFacts`."""
        return FileFacts(stat, self.columns, gathered=self.gathered, **more)


def expect(config: TableConfig, definitions: Mapping[str, IndexDefinition], partition_shards: int = 1) -> Expected:
    """The indexes that a write starting now must maintain, and what they want from its files."""
    indexes = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    stats = definitions.get(COLUMN_STATS.partition)
    return Expected(
        frozenset(indexes),
        stats.source_fields if stats is not None and COLUMN_STATS.partition in indexes else (),
        find_ordering(definitions, config) if RECORD_INDEX.partition in indexes else None,
        partition_shards,
        {each.partition: each.columns for each in wanted_of(indexes, definitions)},
    )


def wants_filters(config: TableConfig) -> bool:
    """Whether an index stores Bloom filters; if not, workers need not send them to the commit."""
    return BLOOM_FILTERS.partition in (*config.metadata_partitions, *config.metadata_partitions_inflight)


def base_file_stats(
    table: pa.Table, name: str, columns: Sequence[str], wanted: Sequence[Wanted], footer: Any
) -> FileStats:
    """Statistics of a base file with these rows and this Parquet footer."""
    return FileStats(column_stats(table, name, columns, footer), gather_all(wanted, [table]))


def log_file_stats(
    blocks: Sequence[pa.Table], name: str, columns: Sequence[str], wanted: Sequence[Wanted]
) -> FileStats:
    """Statistics of a log file with the rows of these blocks; a file of deletes alone has empty ones.

    A column that a block lacks has none: its values are in other files, and a range without them could exclude a row
    that a partial update completes.
    """
    gathered = gather_all(wanted, blocks)
    if not blocks:
        return FileStats(tuple(ColumnStats(name, column, None, None, 0, 0) for column in columns), gathered)
    known = [column for column in columns if all(_has(block, column) for block in blocks)]
    merged: dict[str, ColumnStats] = {}
    for block in blocks:
        for stats in column_stats(block, name, tuple(known)):
            older = merged.get(stats.column)
            merged[stats.column] = stats if older is None else merge_column_stats(older, stats)
    return FileStats(tuple(merged.values()), gathered)


def spread_file_stats(
    spreads: Mapping[str, Spread], name: str, columns: Sequence[str], rows: int, gathered: Mapping[str, bytes]
) -> FileStats:
    """Statistics of a log file with so many rows, from the spread of values that its encoder found."""
    return FileStats(spread_stats(spreads, name, columns, rows), gathered)


def _has(block: pa.Table, column: str) -> bool:
    return column.partition(".")[0] in block.column_names
