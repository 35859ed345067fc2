"""Entries of `column_stats`, one per column and file: of a change, of a whole table, and compared with the files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from lakebed.engine.engines import map_bounded
from lakebed.format.guard import decoding
from lakebed.format.log.blocks import decode_records
from lakebed.format.log.file import HeaderKey, decode_log_file
from lakebed.format.metadata.column_stats import encode_column_stats_record
from lakebed.format.metadata.keys import column_stats_key
from lakebed.format.metadata.records import merge_column_stats
from lakebed.index.build import Source, pieces_source
from lakebed.index.check import Checked, Tally
from lakebed.index.column_stats.compute import column_stats
from lakebed.index.column_stats.ranges import COLUMN_STATS
from lakebed.index.data_files import DATA_BLOCKS, StoredFile, stored_files
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Form
from lakebed.model.files import LogFile
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats, StatValue
from lakebed.observe import Meter
from lakebed.table import TableState

_PARQUET = ".parquet"


def column_stats_entries(
    stats: Mapping[str, Iterable[ColumnStats]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    *,
    columns: Sequence[str],
    version: str,
) -> Entries:
    """Entries for statistics of new files and for deleted files, both by partition.

    `columns` are the source fields of the index, `version` is its version.
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


def column_stats_source(state: TableState, definition: IndexDefinition, file_ids: Sequence[str]) -> Source:
    """Entries for all columns and files of a table."""

    def entries(stored: StoredFile) -> Entries:
        stats = file_stats(stored, definition.source_fields)
        return column_stats_entries(
            {stored.partition: stats}, columns=definition.source_fields, version=definition.version
        )

    return pieces_source(stored_files(state), entries, file_ids)


def file_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    """The statistics of a base or log file; none for a base file that is not Parquet.

    A column that a base file lacks is null in all of its rows and gets an entry that says so: with a filter for nulls,
    Apache Hudi 1.2 skips files that have statistics of other columns but none of this one.
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
    """The columns that a file with these top-level columns lacks; a nested column counts as its top-level one."""
    return (column for column in columns if column.partition(".")[0] not in names)


def _nulls(file_name: str, columns: Iterable[str], rows: int) -> Iterator[ColumnStats]:
    return (ColumnStats(file_name, column, None, None, rows, rows) for column in columns)


def _log_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    """Statistics over the records of all blocks.

    A file of deletes alone has empty ones. A column that a block of a partial update lacks has none: its values are in
    other files, and a range without them could exclude a row that the update completes. In any other block, a missing
    column is null.
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


def check_column_stats(checked: Checked, tally: Tally) -> None:
    """Compares entries with files: an entry may be wider than its file, never narrower."""
    columns = checked.metadata.definitions[COLUMN_STATS].source_fields
    files = stored_files(checked.state)
    meter = Meter(COLUMN_STATS, len(files), checked.observer)
    found: dict[tuple[str, str], ColumnStats] = {}
    for stats in map_bounded(files, lambda stored: file_stats(stored, columns)):
        meter.step()
        found |= {(each.file_name, each.column): each for each in stats}
    compare_stats(stored_stats(checked), found, tally)


def stored_stats(checked: Checked) -> dict[tuple[str, str], ColumnStats]:
    """The statistics in the index, by file name or partition, and column."""
    definition = checked.metadata.definitions.get(COLUMN_STATS)
    found = checked.payloads(Form(definition.version if definition else "V2"))
    payloads = (payload for _, payload in found if isinstance(payload, ColumnStats))
    return {(each.file_name, each.column): each for each in payloads if not each.is_deleted}


def compare_stats(
    indexed: Mapping[tuple[str, str], ColumnStats],
    found: Mapping[tuple[str, str], ColumnStats],
    tally: Tally,
    *,
    is_exact: bool = True,
) -> None:
    """Tallies statistics that are too narrow as different; exact ones, as those of files, also if counts differ."""
    shared = indexed.keys() & found.keys()
    counts = _counts if is_exact else _may_hold
    narrow = {k for k in shared if not counts(indexed[k], found[k]) or not _covers(indexed[k], found[k])}
    tally.compare(
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in indexed.items()},
        {_label(key): _bounds(stats) if key in narrow else "" for key, stats in found.items()},
    )


def _label(key: tuple[str, str]) -> str:
    return f"{key[1]} of {key[0] or 'the table'}"


def _bounds(stats: ColumnStats) -> str:
    return f"{stats.min_value!r} to {stats.max_value!r}, {stats.null_count} of {stats.value_count} null"


def _covers(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether readers that rely on `indexed` would miss no row of `found`."""
    return _is_below(indexed.min_value, found.min_value) and _is_below(found.max_value, indexed.max_value)


def _counts(indexed: ColumnStats, found: ColumnStats) -> bool:
    return (indexed.value_count, indexed.null_count) == (found.value_count, found.null_count)


def _may_hold(indexed: ColumnStats, found: ColumnStats) -> bool:
    """Whether the index counts nulls if there are any, and values likewise."""
    has_nulls, has_values = bool(found.null_count), found.value_count != found.null_count
    return (not has_nulls or bool(indexed.null_count)) and (not has_values or indexed.value_count != indexed.null_count)


def _is_below(low: StatValue | None, high: StatValue | None) -> bool:
    """Whether a bound is at most another one; unknown bounds, and those that readers do not trust, pass."""
    if low is None or high is None or isinstance(low, bytes) or low != low or high != high:
        return True
    try:
        return bool(low <= high)  # type: ignore[operator]
    except TypeError:
        return False
