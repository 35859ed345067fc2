"""Entries of the `column_stats` partition: one per column and file, base or log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakebed.format.metadata.column_stats import encode_column_stats_record
from lakebed.format.metadata.keys import column_stats_key
from lakebed.metadata.entries import Entries
from lakebed.model.metadata import ColumnStats


def column_stats_entries(
    stats: Mapping[str, Iterable[ColumnStats]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    *,
    columns: Sequence[str],
    version: str,
) -> Entries:
    """The entries for statistics of new files and for files that are gone, both by partition.

    Of `columns`, the index's source fields, whose entries go with a file; `version` is that of the index.
    """
    records = {
        column_stats_key(each.column, partition, each.file_name): encode_column_stats_record(each, version=version)
        for partition, of_partition in stats.items()
        for each in of_partition
        if each.column in columns
    }
    deletes = [
        column_stats_key(column, partition, name)
        for partition, names in (deleted or {}).items()
        for name in names
        for column in columns
    ]
    return Entries.of(records, deletes)
