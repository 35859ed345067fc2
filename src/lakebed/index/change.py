"""The change that one instant of the data table makes to its metadata table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.format.file_names import decode_data_file_name
from lakebed.index.facts import FileFacts
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.stored_keys import KeyFiles
from lakebed.index.secondary.entries import ValueChanges
from lakebed.model.commit import CleanMetadata, WriteStat
from lakebed.model.files import BaseFile
from lakebed.model.metadata import ColumnStats


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """Files added and deleted, by data partition, and the facts that indexes need about them.

    `added` has sizes by file name, `blooms` filter texts by base file name. In `rewritten` partitions the instant does
    more than add files: it supersedes some, or hides file groups. `removed_partitions` are deleted with their files.
    `keys` are for the record index; a large write has them in `key_files` instead. `values`, by metadata-table
    partition, are for secondary indexes. `gathered` has what write tasks gathered for an index, by its metadata-table
    partition, data partition and file name.
    """

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    deleted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removed_partitions: tuple[str, ...] = ()
    rewritten: frozenset[str] = frozenset()
    column_stats: Mapping[str, tuple[ColumnStats, ...]] = field(default_factory=dict)
    blooms: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    keys: tuple[KeyChanges, ...] = ()
    values: Mapping[str, ValueChanges] = field(default_factory=dict)
    key_files: KeyFiles | None = None
    gathered: Mapping[str, Mapping[str, Mapping[str, bytes]]] = field(default_factory=dict)


def change_of_commit(
    written: Iterable[FileFacts],
    *,
    replaced: Iterable[str] = (),
    replaced_keys: Iterable[KeyChanges] = (),
    values: Mapping[str, ValueChanges] | None = None,
    key_files: KeyFiles | None = None,
    compacts: bool = False,
) -> MetadataChange:
    """The change that a commit makes: its files and their CDC files.

    `replaced` are the partitions in which it replaces file groups, `replaced_keys` the keys of those groups. If
    `key_files` is given, it has all keys. With `compacts`, each file replaces a whole file slice, with or without a
    base file.
    """
    files = [file for file in written if file.stat.path]
    added: dict[str, dict[str, int]] = {}
    stats: dict[str, tuple[ColumnStats, ...]] = {}
    blooms: dict[str, dict[str, bytes]] = {}
    gathered: dict[str, dict[str, dict[str, bytes]]] = {}
    for file in files:
        partition = file.stat.partition
        added.setdefault(partition, {}).update(_sizes(file.stat))
        stats[partition] = stats.get(partition, ()) + file.column_stats
        if file.bloom_text is not None:
            blooms.setdefault(partition, {})[_name(file.stat.path)] = file.bloom_text
        for index, data in file.gathered.items():
            gathered.setdefault(index, {}).setdefault(partition, {})[_name(file.stat.path)] = data
    return MetadataChange(
        added=added,
        rewritten=frozenset(replaced).union(f.stat.partition for f in files if compacts or _supersedes(f.stat)),
        column_stats=stats,
        blooms=blooms,
        keys=(*(key_changes(file) for file in files), *replaced_keys) if key_files is None else (),
        values=values or {},
        key_files=key_files,
        gathered=gathered,
    )


def change_of_clean(clean: CleanMetadata) -> MetadataChange:
    """The change that a clean makes. Files that it planned to delete are no longer listed, even if that failed."""
    removed = tuple(name for name, partition in clean.partitions.items() if partition.is_partition_deleted)
    return MetadataChange(
        deleted={name: partition.planned for name, partition in clean.partitions.items()}, removed_partitions=removed
    )


def _sizes(stat: WriteStat) -> dict[str, int]:
    return {_name(stat.path): stat.file_size, **{_name(path): size for path, size in stat.cdc_stats.items()}}


def _supersedes(stat: WriteStat) -> bool:
    """Whether a file supersedes another: it is a base file that has a predecessor."""
    return stat.prev_commit is not None and isinstance(decode_data_file_name(_name(stat.path)), BaseFile)


def key_changes(file: FileFacts) -> KeyChanges:
    """Keys added to and removed from the file group of a file."""
    return KeyChanges(file.stat.partition, file.stat.file_id, file.inserted_keys, file.deleted_keys, file.ordering)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
