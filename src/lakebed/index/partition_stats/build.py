"""Building statistics of partitions, from those of their current files."""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.errors import InvalidInputError
from lakebed.index.build import Source, pieces_source
from lakebed.index.column_stats.build import file_stats
from lakebed.index.data_files import StoredFile, current_files, stored_files
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.index.partition_stats.entries import partition_stats_entries, stats_of_files
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.table import TableState


def partition_stats_source(
    state: TableState, metadata: MetadataTable, definition: IndexDefinition, file_ids: Sequence[str]
) -> Source:
    """Statistics of every column and partition, from those of its current files.

    A file that has none, such as another engine's log file of deletes, is read. Apache Hudi leaves a partition out that
    has no entry where others have one: there is one of each partition, or there are no statistics of partitions.
    """
    current = current_files(state)
    known = CurrentStats(metadata, lambda partition: current[partition])
    columns, version = definition.source_fields, definition.version
    stored = {each.path: each for each in stored_files(state)}

    def entries(partition: str) -> Entries:
        stats = [*known.of_files(partition, current[partition], columns)]
        for name in sorted(set(current[partition]) - {each.file_name for each in stats}):
            stats += _known_stats(stored[f"{partition}/{name}" if partition else name], columns)
        return partition_stats_entries({partition: stats_of_files(partition, stats)}, columns=columns, version=version)

    return pieces_source(list(current), entries, file_ids)


def _known_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    found = file_stats(stored, columns)
    if not found:
        raise InvalidInputError(
            f"{stored.path} has no column statistics, so its partition cannot have any",
            hint="partition_stats need Parquet base files: do not create them for this table",
        )
    return found
