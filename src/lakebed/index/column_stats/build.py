"""Building column statistics: those of every data file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from lakebed.format.guard import decoding
from lakebed.format.log.blocks import decode_records
from lakebed.format.log.file import HeaderKey, decode_log_file
from lakebed.format.metadata.records import merge_column_stats
from lakebed.index.build import Source, pieces_source
from lakebed.index.column_stats.compute import column_stats
from lakebed.index.column_stats.entries import column_stats_entries
from lakebed.index.data_files import DATA_BLOCKS, StoredFile, stored_files
from lakebed.metadata.entries import Entries
from lakebed.model.files import LogFile
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.table import TableState

_PARQUET = ".parquet"


def column_stats_source(state: TableState, definition: IndexDefinition, file_ids: Sequence[str]) -> Source:
    """Statistics of every column and file."""

    def entries(stored: StoredFile) -> Entries:
        stats = file_stats(stored, definition.source_fields)
        return column_stats_entries(
            {stored.partition: stats}, columns=definition.source_fields, version=definition.version
        )

    return pieces_source(stored_files(state), entries, file_ids)


def file_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    """The statistics of a base or log file; none of a base file that is not Parquet.

    A column that a base file does not have is null in all of its rows, and that is said: Apache Hudi 1.2 leaves a file
    out, by a filter for nulls there, that has statistics of other columns and none of this one.
    """
    if isinstance(stored.file, LogFile):
        return _log_stats(stored, columns)
    if stored.file.extension != _PARQUET:
        return ()
    with stored.storage.arrow_file(stored.path) as file, decoding(stored.path, "the Parquet file"):
        parquet: Any = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        names = parquet.schema_arrow.names
        table = parquet.read(columns=[name for name in columns if name in names])
        known = column_stats(table, stored.file.name, columns, parquet.metadata)
        return (*known, *_nulls(stored.file.name, _lacking(columns, names), parquet.metadata.num_rows))


def _lacking(columns: Sequence[str], names: Collection[str]) -> Iterator[str]:
    """The columns that a file with columns of these names does not have; those inside of others are of these."""
    return (column for column in columns if column.partition(".")[0] not in names)


def _nulls(file_name: str, columns: Iterable[str], rows: int) -> Iterator[ColumnStats]:
    return (ColumnStats(file_name, column, None, None, rows, rows) for column in columns)


def _log_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    """Statistics over the records of all blocks.

    A file of deletes alone has them too, with no value in them. A column that a block of a partial update lacks has
    none: the values of its rows lie in other files, and a range that leaves them out could prune a row that the update
    completes. In rows of any other block it is null.
    """
    name = stored.file.name
    blocks = decode_log_file(stored.storage.get(stored.path), path=stored.path)
    data = [block for block in blocks if block.kind in DATA_BLOCKS]
    if not data:
        return tuple(_nulls(name, columns, 0))
    tables = [decode_records(block, path=stored.path) for block in data]
    untold = {
        column
        for block, table in zip(data, tables, strict=True)
        if block.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"
        for column in _lacking(columns, table.schema.names)
    }
    known = [column for column in columns if column not in untold]
    merged: dict[str, ColumnStats] = {}
    for table in tables:
        lacking = _lacking(known, table.schema.names)
        for stats in (*column_stats(table, name, known), *_nulls(name, lacking, table.num_rows)):
            older = merged.get(stats.column)
            merged[stats.column] = stats if older is None else merge_column_stats(older, stats)
    return tuple(merged.values())
