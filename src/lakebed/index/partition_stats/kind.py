"""The index `partition_stats`: min, max and null counts of each column over the current files of a partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

import pyarrow.compute as pc

from lakebed.errors import InvalidInputError
from lakebed.index.build import Build, IndexRequest, Source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.kind import has_columns, with_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS, find_column_ranges
from lakebed.index.column_stats.ranges import PARTITION_STATS as PARTITION
from lakebed.index.data_files import StoredFile
from lakebed.index.facts import FileFacts
from lakebed.index.kind import Expected, IndexKind, Update, unsupported
from lakebed.index.partition_stats.current import StatsReader
from lakebed.index.partition_stats.entries import (
    WIDENING,
    check_partition_stats,
    partition_stats_entries,
    partition_stats_source,
    stats_of_files,
    widened_stats,
)
from lakebed.index.prune import Kept, NotUsed, Query, Slices, align, keep_partitions, ranged_columns, serving
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.table import TableState


class PartitionStatistics(IndexKind):
    """Statistics of each column and partition, computed from those of its current files."""

    partition = PARTITION
    words = ("partition_stats",)
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.index.partition.stats.enable": "partition_stats"}
    is_default = True
    needs_partitions = True
    has_few = True
    made_of = COLUMN_STATS
    newest_request_wins = True
    merge = WIDENING

    def is_defined(self, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether the columns of the statistics of files are known."""
        return COLUMN_STATS in definitions

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Whether files have statistics of all columns."""
        return partition in expected.partitions and has_columns(expected, definitions)

    def complete(self, facts: FileFacts, stored: StoredFile, definitions: Mapping[str, IndexDefinition]) -> FileFacts:
        """Adds the statistics of a file, read from it."""
        return with_stats(facts, stored, definitions)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """New statistics of the partitions that a change touches."""
        definition = update.definitions.get(COLUMN_STATS)
        if definition is None:
            raise unsupported(partition)
        columns, version = definition.source_fields, definition.version
        if partition in update.building:
            return _stats_while_building(change, columns, version)
        stats, emptied = _partition_stats(change, columns, update.stats)
        return partition_stats_entries(
            stats, emptied, columns=columns, version=version, stand_alone=not update.others_write
        )

    def prune(self, query: Query, slices: Slices) -> Kept | NotUsed:
        """Keeps slices of partitions that may have a matching row."""
        return prune_by_partition_stats(query, slices)

    def check_request(self, state: TableState, request: IndexRequest) -> None:
        """Raises if the table is not partitioned or has no column statistics."""
        del request
        if not state.config.partition_fields:
            raise InvalidInputError(
                f"table {state.config.name} is not partitioned", hint="column_stats serves tables without partitions"
            )
        if COLUMN_STATS not in state.config.metadata_partitions:
            raise InvalidInputError(
                "partition_stats are computed from column_stats, which the table does not have",
                hint="create column_stats first",
            )

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Combines the statistics of current files."""
        metadata = build.state.metadata
        assert isinstance(metadata, MetadataTable), "check_request saw ready column statistics"
        return partition_stats_source(build.state, metadata, build.state.definitions[COLUMN_STATS], file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares entries with the current files of partitions."""
        check_partition_stats(checked, tally)


PARTITION_STATS = PartitionStatistics()


def prune_by_partition_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    """Keeps slices of partitions that may have a matching row."""
    metadata = serving(query, PARTITION, latest_only=True)
    if isinstance(metadata, NotUsed):
        return metadata
    if metadata.has(COLUMN_STATS):
        # Those of another engine may lack files of a concurrent write, and those of files exclude as much.
        return NotUsed("column_stats exclude the same, file by file")
    paths = sorted({file_slice.group.partition for file_slice in slices})
    ranges = {}
    for column, kind in ranged_columns(query):
        table = find_column_ranges(metadata, PARTITION, column, kind)
        table = table.filter(
            pc.fill_null(table["is_tight_bound"], False)
        )  # Loose ones may exclude rows of current files.
        if table.num_rows:
            ranges[column] = align(table, paths)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    return keep_partitions(query, slices, paths, ranges, f"by ranges of {', '.join(sorted(ranges))} per partition")


def _stats_while_building(change: MetadataChange, columns: Sequence[str], version: str) -> Entries:
    """Entries that widen those being built: a tight one would hide them once the index is ready."""
    found = {partition: stats_of_files(partition, added) for partition, added in change.column_stats.items()}
    return partition_stats_entries(found, columns=columns, version=version, stand_alone=False)


def _partition_stats(
    change: MetadataChange, columns: Sequence[str], reader: StatsReader
) -> tuple[dict[str, tuple[ColumnStats, ...]], tuple[str, ...]]:
    """New statistics of the partitions that a change touches, and the partitions that no longer have any."""
    touched = sorted(change.column_stats.keys() | change.rewritten)
    found = {partition: _stats_after(partition, change, columns, reader) for partition in touched}
    reader.learn({**found, **dict.fromkeys(change.removed_partitions, ())}, columns)
    emptied = (*change.removed_partitions, *(partition for partition, stats in found.items() if not stats))
    return {partition: stats for partition, stats in found.items() if stats}, emptied


def _stats_after(
    partition: str, change: MetadataChange, columns: Sequence[str], reader: StatsReader
) -> tuple[ColumnStats, ...]:
    """The statistics of a partition after a change: the known ones widened if that is exact, else recomputed.

    If a current file has none, the known ones are widened anyway: such a file is another engine's log file of deletes.
    """
    added = change.column_stats.get(partition, ())
    known = None if partition in change.rewritten else reader.of_partition(partition, columns)
    if known is not None and known.is_whole and _has_columns(known.stats, added, columns):
        return widened_stats(partition, known.stats, added)
    anew = _stats_anew(partition, added, columns, reader)
    if anew is not None:
        return anew
    stats = (known or reader.of_partition(partition, columns)).stats
    known_columns = {each.column for each in stats}
    return widened_stats(partition, stats, [each for each in added if each.column in known_columns])


def _has_columns(known: Iterable[ColumnStats], added: Iterable[ColumnStats], columns: Collection[str]) -> bool:
    """Whether a partition has statistics of every column that new files have.

    If it lacks a column, older files may still have values of it: the column may be new in the index. If it has no
    statistics at all, it may be new, or have a file without statistics.
    """
    return {each.column for each in added if each.column in columns} <= {each.column for each in known}


def _stats_anew(
    partition: str, added: tuple[ColumnStats, ...], columns: Sequence[str], reader: StatsReader
) -> tuple[ColumnStats, ...] | None:
    """The statistics over all current files after a change; None if one of them has none."""
    own = {each.file_name for each in added}
    names = set(reader.current_files(partition)) - own
    known = reader.of_files(partition, names, columns)
    if names - {each.file_name for each in known}:
        return None
    return stats_of_files(partition, (*known, *added))
