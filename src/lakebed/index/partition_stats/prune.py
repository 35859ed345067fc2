"""Leaving out slices of partitions whose statistics exclude the filter."""

from __future__ import annotations

import pyarrow.compute as pc

from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS, find_column_ranges
from lakebed.index.prune import Kept, NotUsed, Query, Slices, align, keep_partitions, ranged_columns, serving


def prune_by_partition_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    """The slices of partitions that may have a matching row."""
    metadata = serving(query, PARTITION_STATS, latest_only=True)
    if isinstance(metadata, NotUsed):
        return metadata
    if metadata.has(COLUMN_STATS):
        # Another engine's may lack files of a write that overtook its own; those of files exclude as much.
        return NotUsed("column_stats exclude the same, file by file")
    paths = sorted({file_slice.group.partition for file_slice in slices})
    ranges = {}
    for column, kind in ranged_columns(query):
        table = find_column_ranges(metadata, PARTITION_STATS, column, kind)
        table = table.filter(pc.fill_null(table["is_tight_bound"], False))  # Others are no bound on today's files.
        if table.num_rows:
            ranges[column] = align(table, paths)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    return keep_partitions(query, slices, paths, ranges, f"by ranges of {', '.join(sorted(ranges))} per partition")
