"""Checking statistics of partitions."""

from __future__ import annotations

from lakebed.engine.engines import map_bounded
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.build import file_stats
from lakebed.index.column_stats.check import compare_stats, stored_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.data_files import current_files, stored_files
from lakebed.index.partition_stats.entries import stats_of_files
from lakebed.model.metadata import ColumnStats
from lakebed.observe import Meter


def check_partition_stats(checked: Checked, tally: Tally) -> None:
    """Those of partitions and of their current files, as far as they exclude rows."""
    state, columns = checked.state, checked.metadata.definitions[COLUMN_STATS].source_fields
    current = current_files(state)
    wanted = [s for s in stored_files(state) if s.file.name in current.get(s.partition, ())]
    meter = Meter(PARTITION_STATS, len(wanted), checked.observer)
    by_partition: dict[str, list[ColumnStats]] = {}
    for stored, stats in zip(wanted, map_bounded(wanted, lambda s: file_stats(s, columns)), strict=True):
        meter.step()
        by_partition.setdefault(stored.partition, []).extend(stats)
    found = {
        (partition, each.column): each
        for partition, stats in by_partition.items()
        for each in stats_of_files(partition, stats)
    }
    # Of a partition that has no rows any more Hudi leaves statistics behind: there is nothing they could exclude.
    indexed = {key: each for key, each in stored_stats(checked).items() if key[0] in by_partition}
    compare_stats(indexed, found, tally, is_exact=False)
