"""The index `files`: the list of data partitions and the files of each. Every metadata table has it.

A commit adds the partitions that it wrote to and its new files. A clean marks the files it removed; if it removes a
whole partition, it deletes that entry and marks the partition in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from lakebed.format.metadata.keys import ALL_PARTITIONS, partition_key
from lakebed.format.metadata.record_kinds import RecordKind
from lakebed.format.metadata.records import encode_files_record
from lakebed.index.build import Build, Source, pieces_source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import listed_files
from lakebed.index.files.merge import MergeFiles
from lakebed.index.kind import Expected, IndexKind, Update
from lakebed.metadata.entries import Entries
from lakebed.metadata.files import read_metadata_files
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import FileEntry


class Files(IndexKind):
    """The list of partitions and data files."""

    partition = "files"
    is_default = True
    switches: ClassVar[Mapping[str, str]] = {"hoodie.metadata.enable": "files"}
    words = ("files",)
    has_few = True
    merge = MergeFiles()

    def is_expected(self, partition: str, expected: Expected, definitions: Mapping[str, IndexDefinition]) -> bool:
        """Always true: names and sizes are in write stats."""
        del partition, expected, definitions
        return True

    def first_entries(self, file_ids: Sequence[str]) -> Iterable[tuple[str, Entries]]:
        """An empty list of partitions."""
        return ((file_ids[0], no_files()),)

    def entries(self, partition: str, change: MetadataChange, update: Update) -> Entries:
        """Files and partitions that were added or removed."""
        del partition, update
        return file_entries(change.added, change.deleted, change.removed_partitions)

    def source(self, build: Build, file_ids: Sequence[str]) -> Source:
        """Lists the folders of the table once."""
        return pieces_source([listed_files(build.state)], file_entries, file_ids)

    def check(self, checked: Checked, tally: Tally) -> None:
        """Compares the list with the folders, for files of completed instants."""
        completion_of = checked.state.latest.completion_of
        indexed = {
            partition: {file.name: file.size or 0 for file in files if completion_of(file.instant) is not None}
            for partition, files in read_metadata_files(checked.metadata).items()
        }
        tally.compare(_sizes(indexed), _sizes(listed_files(checked.state)))


FILES = Files()


def file_entries(
    added: Mapping[str, Mapping[str, int]],
    deleted: Mapping[str, Sequence[str]] | None = None,
    removed_partitions: Sequence[str] = (),
) -> Entries:
    """Entries for new files (sizes by partition and name), deleted files, and removed partitions."""
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
    """The one entry of a table without data: an empty list of partitions."""
    return Entries.of({ALL_PARTITIONS: encode_files_record({}, kind=RecordKind.ALL_PARTITIONS)})


def _sizes(files: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    return {
        f"{partition}/{name}" if partition else name: f"{size} bytes"
        for partition, names in files.items()
        for name, size in names.items()
    }
