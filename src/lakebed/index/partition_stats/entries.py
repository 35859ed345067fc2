"""Entries of the `partition_stats` partition: the statistics of each column over all current files of a partition.

They are tight: exactly the union of the statistics of the files in the latest slices. A commit that supersedes no file
widens what is known by its new files. One that does, such as an update on copy-on-write or a compaction, takes the
union anew, from the column statistics of the files that are current after it. So does one that finds what another
engine wrote, or that a new file has statistics of a column of which the partition has none: older files may have values
of it.

Readers take the entry of the newest instant for the whole truth if it is marked as tight, and widen older ones by it if
not. While another engine writes, its entry may come to stand below ours, and is to count: ours are not marked then.

A current file that has statistics, but none of some column, was written before the column existed, or carries a partial
update, whose other values lie in the files below it: its rows count as nulls. That is also how Apache Hudi takes it. A
partition of which nothing is known is to be avoided: Apache Hudi leaves one out that has no entry of a column, if
another partition has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

from lakebed.format.metadata.column_stats import encode_column_stats_record, widen_column_stats
from lakebed.format.metadata.keys import partition_stats_key
from lakebed.metadata.entries import Entries
from lakebed.model.metadata import ColumnStats


def partition_stats_entries(
    stats: Mapping[str, Iterable[ColumnStats]],
    removed_partitions: Iterable[str] = (),
    *,
    columns: Sequence[str],
    version: str,
    stand_alone: bool = True,
) -> Entries:
    """The entries for statistics of partitions, and for partitions without rows.

    `columns` are the source fields of the column statistics, `version` is that of their index. Unless they are to
    `stand_alone`, readers widen older entries by these.
    """
    records = {
        partition_stats_key(each.column, partition): encode_column_stats_record(
            each if stand_alone else _loose(each), version=version, partition_stats=True
        )
        for partition, of_partition in stats.items()
        for each in of_partition
        if each.column in columns
    }
    deletes = [partition_stats_key(column, partition) for partition in removed_partitions for column in columns]
    return Entries.of(records, deletes)


def stats_of_files(partition: str, stats: Iterable[ColumnStats]) -> tuple[ColumnStats, ...]:
    """The statistics of a partition whose current files have these column statistics."""
    by_file: dict[str, dict[str, ColumnStats]] = {}
    for each in stats:
        by_file.setdefault(each.file_name, {})[each.column] = each
    return _union(partition, [*by_file.values()])


def widened_stats(
    partition: str, known: Iterable[ColumnStats], added: Iterable[ColumnStats]
) -> tuple[ColumnStats, ...]:
    """The statistics of a partition that had `known` ones and got files with the column statistics `added`."""
    before = {each.column: each for each in known if not each.is_deleted}
    by_file: dict[str, dict[str, ColumnStats]] = {}
    for each in added:
        by_file.setdefault(each.file_name, {})[each.column] = each
    return _union(partition, [before, *by_file.values()] if before else [*by_file.values()])


def _union(partition: str, parts: list[dict[str, ColumnStats]]) -> tuple[ColumnStats, ...]:
    """The union of parts of a partition, each with statistics by column; a column that a part lacks is null there."""
    widen = partial(widen_column_stats, file_name=partition, is_tight_bound=True)
    found = []
    for column in dict.fromkeys(column for part in parts for column in part):
        first, *others = (part[column] if column in part else _nulls(part, column) for part in parts)
        alone = replace(first, file_name=partition, is_tight_bound=True, is_deleted=False) if not others else first
        found.append(reduce(widen, others, alone))
    return tuple(found)


def _loose(stats: ColumnStats) -> ColumnStats:
    """Statistics that widen older ones: what is tight or deleted stands alone."""
    is_loose = not stats.is_tight_bound and not stats.is_deleted
    return stats if is_loose else replace(stats, is_tight_bound=False, is_deleted=False)


def _nulls(part: Mapping[str, ColumnStats], column: str) -> ColumnStats:
    rows = max((each.value_count or 0 for each in part.values()), default=0)
    return ColumnStats("", column, None, None, value_count=rows, null_count=rows)
