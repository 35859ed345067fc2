"""The `files` partition: all data files of the table, without listing folders.

The list is cached together with the files that it was read from. If there are newer log files, their records are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import pc
from lakebed.format.metadata.keys import partition_key, partition_of_key
from lakebed.format.metadata.records import decode_files, decode_metadata_record, merge_file_entries, merge_files
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard
from lakebed.metadata.table import FILES, MetadataTable, ShardFiles
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import FileEntry
from lakebed.storage.cache import FileCache
from lakebed.view.slices import parse_data_files

_KEY = ("listing",)
_FILE_BYTES = 400
"""Approximate size of a listed file in memory, in bytes."""

DataFiles = Mapping[str, tuple[BaseFile | LogFile, ...]]
"""Data files by partition path."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Data files listed in the files of a shard.

    `sources` are the files of the shard, oldest first, by path and completion time; the time is None for a file that
    this process wrote, whose name is unique. Blocks of instants that are `replaced` do not count.
    """

    sources: tuple[tuple[str, InstantTime | None], ...]
    files: DataFiles
    replaced: frozenset[str] = frozenset()

    def starts(self, sources: Sequence[tuple[str, InstantTime]]) -> bool:
        """Whether these sources are those of this listing, possibly followed by newer ones."""
        pairs = zip(self.sources, sources, strict=False)
        return len(self.sources) <= len(sources) and all(
            known == source or known == (source[0], None) for known, source in pairs
        )


def find_listing(cache: FileCache, sources: Sequence[tuple[str, InstantTime]]) -> Listing | None:
    """The cached listing, if its sources are the first of these."""
    newest = cache.get(_KEY, Listing)
    return newest if newest is not None and newest.starts(sources) else None


def note_listing(cache: FileCache, listing: Listing) -> None:
    """Caches a listing, replacing the previous one."""
    cache.put(_KEY, listing, _FILE_BYTES * sum(map(len, listing.files.values())))


def list_metadata_files(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path ("" for an unpartitioned table)."""
    shards = metadata.shard_files(FILES)
    if shards is None:
        return read_metadata_files(metadata)
    (files,) = shards
    sources = _sources(files)
    known = find_listing(metadata.cache, sources)
    listing = None if known is None else _extended(known, files, metadata)
    if listing is None:
        (shard,) = metadata.shards(FILES)
        listing = Listing(sources, _listed(shard), shard.replaced)
    note_listing(metadata.cache, listing)
    return dict(listing.files)


def read_metadata_files(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Like `list_metadata_files`, but without the cache: for checks."""
    (shard,) = metadata.shards(FILES)
    return _listed(shard)


def note_added(metadata: MetadataTable, sizes: Mapping[str, Mapping[str, int]], path: str) -> None:
    """Adds the files of this write to the cached listing, valid once the log file at `path` is visible.

    `sizes` are by partition and name. The path is unique, so if the write fails the addition is never used.
    """
    shards = metadata.shard_files(FILES)
    if shards is None:
        return
    (files,) = shards
    sources = _sources(files)
    known = find_listing(metadata.cache, sources)
    if known is not None and len(known.sources) == len(sources):
        added = {name: {n: FileEntry(size) for n, size in of_name.items()} for name, of_name in sizes.items()}
        listing = Listing((*sources, (path, None)), _with(known.files, added), known.replaced)
        note_listing(metadata.cache, listing)


def live_files(shard: Shard) -> dict[str, dict[str, FileEntry]]:
    """The data files in the `files` partition, by data partition; a deleted partition loses its older files."""
    tables: list[pa.Table] = []
    for layer in shard.layers():
        if isinstance(layer, DeleteLayer):
            gone = pa.array(map(partition_of_key, layer.keys), pa.string())
            tables = [table.filter(pc.invert(pc.is_in(table["partition"], gone))) for table in tables]
        else:
            tables.append(layer.decode(decode_files))
    files: dict[str, dict[str, FileEntry]] = {}
    if tables:
        entries = merge_file_entries(pa.concat_tables(tables))
        rows = zip(*(entries[column].to_pylist() for column in ("partition", "name", "size")), strict=True)
        for partition, name, size in rows:
            files.setdefault(partition, {})[name] = FileEntry(size)
    return files


def _sources(files: ShardFiles) -> tuple[tuple[str, InstantTime], ...]:
    return tuple(zip(files.file_slice.paths, files.completions, strict=True))


def _listed(shard: Shard) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    return {
        partition: parse_data_files({name: entry.size for name, entry in names.items()}, partition)
        for partition, names in sorted(live_files(shard).items())
    }


def _extended(known: Listing, files: ShardFiles, metadata: MetadataTable) -> Listing | None:
    """The known listing with the records of newer log files; None if these replace older blocks."""
    sources, count = _sources(files), len(known.sources)
    newer = metadata.shard_after(files, count)
    logs = files.file_slice.logs
    if newer.replaced or known.replaced & {log.instant for log in logs[len(logs) - len(sources) + count :]}:
        return None
    found = known.files
    for layer in newer.layers():
        if isinstance(layer, DeleteLayer):
            gone = {*map(partition_of_key, layer.keys)}
            found = {partition: names for partition, names in found.items() if partition not in gone}
        else:
            found = _with(found, _entries(layer))
    return Listing(sources, found, known.replaced)


def _entries(layer: EntryLayer) -> dict[str, dict[str, FileEntry]]:
    """The file entries in the records of a layer, by partition."""
    table = layer.decode(decode_files)
    columns = (table[name].to_pylist() for name in ("partition", "name", "size", "is_deleted"))
    found: dict[str, dict[str, FileEntry]] = {}
    for partition, name, size, is_deleted in zip(*columns, strict=True):
        found.setdefault(partition, {})[name] = FileEntry(size, is_deleted)
    return found


def _with(files: DataFiles, entries: Mapping[str, Mapping[str, FileEntry]]) -> DataFiles:
    """The files with newer entries applied; updated files move to the end."""
    found = dict(files)
    for partition, names in entries.items():
        known = {file.name: file for file in found.get(partition, ())}
        for name, entry in names.items():
            older = known.pop(name, None)
            if not entry.is_deleted:
                size = max(entry.size, older.size or 0) if older is not None else entry.size
                known |= {file.name: file for file in parse_data_files({name: size}, partition)}
        found[partition] = tuple(known.values())
    is_known = entries.keys() <= files.keys()
    return {name: found[name] for name in (found if is_known else sorted(found)) if found[name]}


def find_partition_files(metadata: MetadataTable, partition: str) -> dict[str, int]:
    """Names and sizes of the data files of one partition."""
    (shard,) = metadata.shards(FILES)
    key = partition_key(partition)
    merged: dict[str, FileEntry] = {}
    for stored in shard.find_many([key]).get(key, ()):
        payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
        if not isinstance(payload, dict):
            raise CorruptTableError("a list of files has the wrong kind of record", path=stored.path)
        merged = merge_files(merged, payload)
    return {name: entry.size for name, entry in merged.items() if not entry.is_deleted}
