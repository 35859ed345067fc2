"""Looks up a few keys in the record index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from lakebed.format.java import shard_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.record_index import (
    ORDERING_COLUMN,
    RecordLocation,
    decode_record_index,
    decode_record_index_value,
)
from lakebed.metadata.shard import EntryLayer, Shard, load_whole_shard
from lakebed.metadata.table import ROOT, MetadataTable, ShardFiles
from lakebed.model.files import FileSlice
from lakebed.model.index import IndexDefinition

RECORD_INDEX = "record_index"


class KeyShards(Protocol):
    """The part of a metadata table that locating keys needs."""

    @property
    def definitions(self) -> Mapping[str, IndexDefinition]:
        """Index definitions by metadata-table partition."""
        ...

    @property
    def is_near(self) -> bool:
        """Whether its files can be read with low latency."""
        ...

    def slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest slice of each file group, in shard order."""
        ...

    def shard(self, partition: str, file_id: str) -> Shard:
        """One file group."""
        ...

    def shard_files(self, partition: str) -> tuple[ShardFiles, ...] | None:
        """The files of all shards, in shard order; None if files alone do not tell what is visible."""
        ...


@dataclass(frozen=True, slots=True)
class RecordIndexFiles:
    """The record index of a metadata table alone, for workers that locate keys. Picklable."""

    definitions: Mapping[str, IndexDefinition]
    files: tuple[ShardFiles, ...]
    is_near: bool

    def slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest slice of each file group, in shard order."""
        assert partition == RECORD_INDEX, partition
        return tuple(files.file_slice for files in self.files)

    def shard(self, partition: str, file_id: str) -> Shard:
        """One file group."""
        assert partition == RECORD_INDEX, partition
        files = next(files for files in self.files if files.file_slice.group.file_id == file_id)
        return load_whole_shard(files.storage, files.file_slice, root=ROOT)

    def shard_files(self, partition: str) -> tuple[ShardFiles, ...]:
        """The files of all shards, in shard order."""
        assert partition == RECORD_INDEX, partition
        return self.files


def record_index_files(metadata: MetadataTable) -> RecordIndexFiles:
    """The record index in this snapshot of the metadata table."""
    files = metadata.shard_files(RECORD_INDEX)
    assert files is not None, "only tables with timeline layout 2 are written"
    named = {name: found for name, found in metadata.definitions.items() if name == RECORD_INDEX}
    return RecordIndexFiles(named, files, metadata.is_near)


def is_partitioned(metadata: KeyShards) -> bool:
    """Whether keys are unique per data partition only."""
    definition = metadata.definitions.get(RECORD_INDEX)
    return definition is not None and definition.is_partitioned


def find_locations(metadata: MetadataTable, keys: Iterable[str]) -> dict[str, tuple[RecordLocation, ...]]:
    """Locations of keys; unknown keys are left out.

    A key has one location or, if the index is partitioned, one per data partition.
    """
    wanted = tuple(dict.fromkeys(keys))
    found: dict[str, tuple[RecordLocation, ...]] = {}
    for file_ids in _shard_sets(metadata):
        by_shard: dict[str, list[str]] = {}
        for key in wanted:
            by_shard.setdefault(file_ids[shard_of(key, len(file_ids))], []).append(key)
        for file_id, shard_keys in by_shard.items():
            for key, values in metadata.shard(RECORD_INDEX, file_id).find_many(shard_keys).items():
                newest = values[-1]
                location = decode_record_index_value(newest.value, newest.schema, path=newest.path)
                found[key] = (*found.get(key, ()), location)
    return found


def read_record_index(metadata: MetadataTable) -> pa.Table:
    """All entries: key, partition, file_id, instant_ms and ordering value (null for none)."""
    tables = [shard.read_all(_read_layer) for shard in metadata.shards(RECORD_INDEX)]
    entries = [table for table in tables if table is not None]
    return pa.concat_tables(entries).unify_dictionaries() if entries else _EMPTY.empty_table()


_EMPTY = pa.schema(
    [
        ("key", pa.string()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant_ms", pa.int64()),
        (ORDERING_COLUMN, pa.int64()),
    ]
)


def _read_layer(layer: EntryLayer) -> pa.Table:
    entries = pa.table(decode_record_index(layer.source))
    if ORDERING_COLUMN in entries.column_names and entries[ORDERING_COLUMN].type == pa.int64():
        return entries
    without = entries.select(_EMPTY.names[:-1])
    return without.append_column(ORDERING_COLUMN, pa.nulls(entries.num_rows, pa.int64()))


def _shard_sets(metadata: MetadataTable) -> list[tuple[str, ...]]:
    """Sets of shards over which keys are hashed: one, or one per data partition."""
    file_ids = [file_slice.group.file_id for file_slice in metadata.slices(RECORD_INDEX)]
    if not is_partitioned(metadata):
        return [tuple(file_ids)]
    sets: dict[str | None, list[str]] = {}
    for file_id in file_ids:
        sets.setdefault(data_partition_of_group(file_id), []).append(file_id)
    return [tuple(ids) for ids in sets.values()]
