"""What the data files of a table say of themselves: names and sizes, column statistics, bloom filters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from lakebed.engine.threads import map_bounded
from lakebed.errors import InvalidInputError
from lakebed.format.bloom import BloomKind
from lakebed.format.guard import decoding
from lakebed.format.log.blocks import decode_records
from lakebed.format.log.file import BlockKind, HeaderKey, decode_log_file
from lakebed.format.metadata.records import merge_column_stats
from lakebed.format.parquet_footer import BaseFileFooter, decode_parquet_footer
from lakebed.index.bloom.entries import bloom_entries
from lakebed.index.column_stats.entries import column_stats_entries
from lakebed.index.files.entries import file_entries
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.index.partition_stats.entries import partition_stats_entries, stats_of_files
from lakebed.metadata.entries import Entries, split_entries
from lakebed.metadata.table import MetadataTable
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.read.base_file import PARQUET
from lakebed.services.indexing.shards import Read, Source, join_unique
from lakebed.storage import Storage
from lakebed.table import TableState
from lakebed.view import list_data_files
from lakebed.write.files.stats import column_stats


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a completed instant."""

    storage: Storage
    partition: str
    file: BaseFile | LogFile

    @property
    def path(self) -> str:
        """Where it lies in the table."""
        return f"{self.partition}/{self.file.name}" if self.partition else self.file.name


def stored_files(state: TableState) -> list[StoredFile]:
    """Every data file that the table knows, of older slices too, but for change records."""
    snapshot = state.latest
    snapshot.prefetch(file.instant for files in state.files.values() for file in files)
    return [
        StoredFile(state.storage, partition, file)
        for partition, files in state.files.items()
        for file in files
        if snapshot.completion_of(file.instant) is not None and not (isinstance(file, LogFile) and file.is_cdc)
    ]


def listed_files(state: TableState) -> dict[str, dict[str, int]]:
    """Sizes of the files of completed instants by name, by partition, as they lie in the folders."""
    snapshot, listed = state.latest, list_data_files(state.storage)
    snapshot.prefetch(file.instant for files in listed.values() for file in files)
    return {
        partition: {f.name: f.size or 0 for f in files if snapshot.completion_of(f.instant) is not None}
        for partition, files in listed.items()
    }


def files_source(state: TableState, file_ids: Sequence[str]) -> Source:
    """The list of partitions and the files of each, from one listing of the table."""
    return _source([file_entries(listed_files(state))], _same, file_ids)


def column_stats_source(state: TableState, definition: IndexDefinition, file_ids: Sequence[str]) -> Source:
    """Statistics of every column and file."""

    def entries(stored: StoredFile) -> Entries:
        stats = file_stats(stored, definition.source_fields)
        return column_stats_entries(
            {stored.partition: stats}, columns=definition.source_fields, version=definition.version
        )

    return _source(stored_files(state), entries, file_ids)


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

    return _source(list(current), entries, file_ids)


def _known_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    found = file_stats(stored, columns)
    if not found:
        raise InvalidInputError(
            f"{stored.path} has no column statistics, so its partition cannot have any",
            hint="partition_stats need Parquet base files: do not create them for this table",
        )
    return found


def bloom_source(state: TableState, instant: str, file_ids: Sequence[str]) -> Source:
    """The bloom filters in the footers of base files."""

    def entries(stored: StoredFile) -> Entries:
        footer = read_footer(stored)
        if footer.bloom_text is None:
            return Entries.of({})
        blooms = {stored.partition: {stored.file.name: footer.bloom_text}}
        return bloom_entries(blooms, instant=instant, kind=BloomKind(footer.bloom_type))

    return _source(base_files(state), entries, file_ids)


def base_files(state: TableState) -> list[StoredFile]:
    """Every base file that the table knows."""
    return [stored for stored in stored_files(state) if isinstance(stored.file, BaseFile)]


def current_files(state: TableState) -> dict[str, tuple[str, ...]]:
    """Names of the files in the latest slices of each data partition."""
    found: dict[str, tuple[str, ...]] = {}
    for file_slice in state.latest_slices:
        names = tuple(path.rpartition("/")[2] for path in file_slice.paths)
        found[file_slice.group.partition] = found.get(file_slice.group.partition, ()) + names
    return found


def read_footer(stored: StoredFile) -> BaseFileFooter:
    """The footer of a base file."""
    with stored.storage.arrow_file(stored.path) as file:
        return decode_parquet_footer(file, path=stored.path)


def file_stats(stored: StoredFile, columns: Sequence[str]) -> tuple[ColumnStats, ...]:
    """The statistics of a base or log file; none of a base file that is not Parquet.

    A column that a base file does not have is null in all of its rows, and that is said: Apache Hudi 1.2 leaves a file
    out, by a filter for nulls there, that has statistics of other columns and none of this one.
    """
    if isinstance(stored.file, LogFile):
        return _log_stats(stored, columns)
    if stored.file.extension != PARQUET:
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
    data = [block for block in blocks if block.kind in _DATA]
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


_DATA = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA)


def _source(items: Sequence[Any], entries: Callable[[Any], Entries], file_ids: Sequence[str]) -> Source:
    return Source(_reader(items, entries, file_ids), len(items), join_unique)


def _reader(items: Sequence[Any], entries: Callable[[Any], Entries], file_ids: Sequence[str]) -> Read:
    def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
        split = partial(split_entries, file_ids=file_ids, wanted=wanted)
        return map_bounded(items, lambda item: split(entries(item)))

    return read


def _same(entries: Entries) -> Entries:
    return entries
