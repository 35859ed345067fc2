"""The index `files`: the list of data partitions and the files of each. Every metadata table has it.

A commit adds the partitions that it wrote to and its new files. A clean marks the files it removed; if it removes a
whole partition, it deletes that entry and marks the partition in the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.metadata.datum import RecordKind, stored_schema
from lakebed.format.metadata.keys import ALL_PARTITIONS, partition_key
from lakebed.format.metadata.records import decode_metadata_record, encode_files_record, merge_files
from lakebed.index.build import Build, Source, pieces_source
from lakebed.index.change import MetadataChange
from lakebed.index.check import Checked, Tally
from lakebed.index.data_files import listed_files
from lakebed.index.kind import Expected, IndexKind, Update
from lakebed.metadata.entries import Entries
from lakebed.metadata.files import live_files, read_metadata_files
from lakebed.metadata.merging import PLAIN, Form, Merged, MergedLogs
from lakebed.metadata.shard import DeleteLayer, EntryLayer, Shard, StoredValue
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import FileEntry


@dataclass(frozen=True, slots=True)
class MergeFiles:
    """The merge rule for lists of files: name by name."""

    def shard(self, shard: Shard, *, has_base: bool, form: Form = PLAIN) -> Merged:
        """The files left in each list; empty lists are dropped."""
        del form
        return _merge_files(shard, has_base=has_base)

    def logs(self, shard: Shard, *, form: Form = PLAIN) -> MergedLogs:
        """The log records merged. A deleted list also hides entries below the logs, even if files were added later."""
        del form
        return _merge_file_logs(shard)


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


def _merge_files(shard: Shard, *, has_base: bool) -> Merged:
    """Merges all records of a shard, list by list; empty lists are dropped."""
    layers = list(shard.layers())
    records = {ALL_PARTITIONS: _partition_list(shard)}
    for partition, names in live_files(shard).items():
        records[partition_key(partition)] = encode_files_record(names)
    rows = [len(layer.keys) if isinstance(layer, DeleteLayer) else layer.hfile.entry_count for layer in layers]
    before = set()
    if has_base and isinstance(layers[0], EntryLayer):
        before = {key.decode() for key, _ in layers[0].hfile.items()}
    keys = sorted(records, key=str.encode)
    return Merged(
        pa.array(keys, pa.string()),
        pa.array([records[key] for key in keys], pa.binary()),
        inserted=len(records.keys() - before),
        updated=len(records.keys() & before),
        deleted=len(before - records.keys()),
        log_records=sum(rows[1:] if has_base else rows),
    )


def _partition_list(shard: Shard) -> bytes:
    listed: dict[str, FileEntry] = {}
    for stored in shard.find_many([ALL_PARTITIONS]).get(ALL_PARTITIONS, ()):
        listed = merge_files(listed, _file_entries(stored))
    live = {name: entry for name, entry in listed.items() if not entry.is_deleted}
    return encode_files_record(live, kind=RecordKind.ALL_PARTITIONS)


def _merge_file_logs(shard: Shard) -> MergedLogs:
    """Merges the log records of a shard, list by list and name by name."""
    folds: dict[str, _FileFold] = {}
    deleted: set[str] = set()
    count = 0
    for layer in shard.layers():
        if isinstance(layer, DeleteLayer):
            count += len(layer.keys)
            deleted |= layer.keys
            folds = {key: fold for key, fold in folds.items() if key not in layer.keys}
        else:
            count += layer.hfile.entry_count
            for raw, value in layer.hfile.items():
                folds.setdefault(raw.decode(), _FileFold()).add(_file_entries(layer.stored(value)))
    first, last = {}, {}
    for key in sorted(folds, key=str.encode):
        kind = RecordKind.ALL_PARTITIONS if key == ALL_PARTITIONS else RecordKind.FILES
        again, names = folds[key].records()
        last[key] = encode_files_record(names, kind=kind)
        if again:
            first[key] = encode_files_record(again, kind=kind)
    blocks = tuple(
        (pa.array([*records], pa.string()), pa.array([*records.values()], pa.binary()))
        for records in (first, last)
        if records
    )
    return MergedLogs(pa.array(sorted(deleted), pa.string()), blocks, stored_schema(), count)


class _FileFold:
    """The merged log records of one list of files: live names, and all names that were deleted."""

    def __init__(self) -> None:
        self.live: dict[str, FileEntry] = {}
        self.gone: dict[str, FileEntry] = {}

    def add(self, names: Mapping[str, FileEntry]) -> None:
        """Adds a newer record."""
        for name, entry in names.items():
            if entry.is_deleted:
                self.gone[name] = entry
                self.live.pop(name, None)
            else:
                known = self.live.get(name)
                self.live[name] = entry if known is None or known.size < entry.size else known

    def records(self) -> tuple[dict[str, FileEntry], dict[str, FileEntry]]:
        """Two records, in this order, so that a name added again does not keep the size from before its deletion."""
        again = {name: entry for name, entry in self.gone.items() if name in self.live}
        return again, {**{name: entry for name, entry in self.gone.items() if name not in again}, **self.live}


def _file_entries(stored: StoredValue) -> Mapping[str, FileEntry]:
    payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
    if not isinstance(payload, dict):
        raise CorruptTableError("a record of another kind among lists of files", path=stored.path)
    return payload
