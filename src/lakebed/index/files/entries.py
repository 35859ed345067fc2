"""Entries of the `files` partition: the list of data partitions, and the files of each.

A commit adds the partitions it wrote to and its new files. A clean marks the files it removed; of a partition that
goes as a whole it deletes the entry, and marks the partition in the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.format.metadata.datum import RecordKind
from lakebed.format.metadata.keys import ALL_PARTITIONS, partition_key
from lakebed.format.metadata.records import encode_files_record
from lakebed.metadata.entries import Entries
from lakebed.model.metadata import FileEntry


def file_entries(
    added: Mapping[str, Mapping[str, int]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    removed_partitions: Sequence[str] = (),
) -> Entries:
    """The entries for new files (sizes by name, by partition), files that are gone, and partitions that are."""
    gone = deleted or {}
    partitions = {partition_key(partition): FileEntry(0) for partition in added}
    partitions |= {partition_key(partition): FileEntry(0, is_deleted=True) for partition in removed_partitions}
    records = {ALL_PARTITIONS: encode_files_record(partitions, kind=RecordKind.ALL_PARTITIONS)} if partitions else {}
    for partition in {**added, **gone}:
        if partition not in removed_partitions:
            names = {name: FileEntry(size) for name, size in added.get(partition, {}).items()}
            names |= {name: FileEntry(0, is_deleted=True) for name in gone.get(partition, ())}
            records[partition_key(partition)] = encode_files_record(names)
    return Entries.of(records, map(partition_key, removed_partitions))


def no_files() -> Entries:
    """The one entry of a table without data: a list of no partitions."""
    return Entries.of({ALL_PARTITIONS: encode_files_record({}, kind=RecordKind.ALL_PARTITIONS)})
