"""Leaving out slices whose files have statistics that exclude the filter."""

from __future__ import annotations

import numpy as np

from lakebed.filter.ranges import may_match
from lakebed.index.column_stats.ranges import COLUMN_STATS, find_column_ranges
from lakebed.index.prune import Kept, NotUsed, Query, Slices, align, masked, ranged_columns, serving


def prune_by_column_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    """The slices of which some file may have a matching row."""
    metadata = serving(query, COLUMN_STATS)
    if isinstance(metadata, NotUsed):
        return metadata
    names = [path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths]
    ranges = {}
    for column, kind in ranged_columns(query):
        table = find_column_ranges(metadata, COLUMN_STATS, column, kind)
        if table.num_rows:
            ranges[column] = align(table, names)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    matching = may_match(query.predicate, ranges, len(names))
    owner = np.repeat(np.arange(len(slices)), [len(file_slice.paths) for file_slice in slices])
    # A slice goes only if every file of it is excluded: the newest file that a row has values from cannot be, since it
    # has no ranges for columns that it does not carry.
    kept = np.zeros(len(slices), bool)
    kept[owner[matching]] = True
    return Kept(masked(slices, kept), f"by ranges of {', '.join(sorted(ranges))} per file")
