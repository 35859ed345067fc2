"""What Apache Hudi logged in the metadata tables of the real tables, beside what the data files say it should log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta, timezone
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from conftest import RealTable
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.hfile import HFile
from lakebed.format.log.blocks import decode_deletes, decode_records, hfile_content
from lakebed.format.log.file import BlockKind, decode_log_file
from lakebed.format.metadata.keys import instant_millis
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.index.change import MetadataChange, change_of_clean, change_of_commit
from lakebed.index.column_stats.compute import column_stats
from lakebed.index.facts import FileFacts
from lakebed.index.record.entries import KeyChanges
from lakebed.metadata import MetadataTable
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import BaseFile
from lakebed.model.instant import Instant
from lakebed.model.metadata import ColumnStats
from lakebed.model.words import Action
from lakebed.read.scan import plan_slices, read_arrow
from lakebed.read.snapshot import take_snapshot
from lakebed.table import TableState, open_handle
from lakebed.view import latest_slices, list_data_files

ROOT = ".hoodie/metadata/"


@dataclass(frozen=True)
class Logged:
    """Records (decoded) and deletes of one shard, by key."""

    records: dict[str, object]
    deletes: frozenset[str] = frozenset()


@dataclass
class RealCommits:
    """The instants of a real table of version 9 whose data files are all there still."""

    table: RealTable
    state: TableState = field(init=False)

    def __post_init__(self) -> None:
        self.state = open_handle(self.table.path).state()

    @property
    def metadata(self) -> MetadataTable:
        assert isinstance(self.state.metadata, MetadataTable)
        return self.state.metadata

    @cached_property
    def columns(self) -> tuple[str, ...]:
        definition = self.state.definitions.get("column_stats")
        return definition.source_fields if definition else ()

    def instants(self) -> Iterator[Instant]:
        """Instants that the metadata table has a delta commit of."""
        for instant in self.state.timeline.completed():
            if instant.action.changes_data or instant.action is Action.CLEAN:
                yield instant

    def change(self, instant: Instant) -> MetadataChange | None:
        """What an instant means, found out from the files; None if some of them are gone."""
        if instant.action is Action.CLEAN:
            return change_of_clean(self.state.documents.clean(instant))
        commit = self.state.documents.commit(instant)
        try:
            files = [self.file(stat) for stat in commit.stats]
            keys = self._key_changes(instant)
        except (FileNotFoundError, CorruptTableError, InvalidInputError):
            return None
        return change_of_commit(files, replaced=commit.replaced_file_ids, replaced_keys=keys, compacts=commit.compacted)

    def commit(self, instant: Instant) -> CommitMetadata:
        return self.state.documents.commit(instant)

    def instant_ms(self, instant: Instant) -> int:
        # Tables say that their times are local, not where; the one table from elsewhere was written in Tokyo.
        zone = timezone(timedelta(hours=9)) if "timezone" in self.table.name else timezone.utc
        return instant_millis(instant.requested_at, zone)

    def logged(self, instant: Instant, mdt_partition: str) -> dict[str, Logged]:
        """What Hudi wrote for an instant, by file id, from log files with entries."""
        found = {}
        for listed in self.state.storage.list(f"{ROOT}{mdt_partition}"):
            file = decode_data_file_name(listed.path.rpartition("/")[2])
            if file is None or isinstance(file, BaseFile) or file.instant != instant.requested_at:
                continue
            logged = _decode_log(self.state.storage.get(listed.path), listed.path)
            if logged.records or logged.deletes:
                found[file.file_id] = logged
        return found

    def has_metadata_files(self, instant: Instant) -> bool:
        """Whether the metadata table still has what the instant wrote."""
        return bool(self.logged(instant, "files"))

    def current_files(self, instant: Instant, partition: str, *, with_replaced: bool) -> frozenset[str]:
        """Names of the files in the latest slices of a partition after an instant, perhaps with those it hides."""
        assert instant.completed_at is not None
        snapshot = self.state.snapshot_at(instant.completed_at)
        replaced = self.state.replaced(snapshot)
        if with_replaced and instant.action is Action.REPLACE_COMMIT:
            own = self.commit(instant).replaced_file_ids
            replaced -= {group for group in replaced if group.file_id in own.get(group.partition, ())}
        slices = latest_slices(list_data_files(self.state.storage), snapshot.completion_of, layout=2, replaced=replaced)
        return frozenset(path.rpartition("/")[2] for s in slices if s.group.partition == partition for path in s.paths)

    def file(self, stat: WriteStat) -> FileFacts:
        path, name = self.table.path / stat.path, stat.path.rpartition("/")[2]
        if name.endswith(".parquet"):
            with pq.ParquetFile(path) as file:
                stats = column_stats(file.read(), name, self.columns, file.metadata)
            footer = decode_parquet_footer(path.read_bytes(), path=name)
            return FileFacts(stat, stats, footer.bloom_text)
        blocks = decode_log_file(path.read_bytes(), path=name)
        rows = [decode_records(block, path=name) for block in blocks if block.kind is not BlockKind.DELETE]
        if not rows:
            return FileFacts(stat, tuple(ColumnStats(name, column, None, None, 0, 0) for column in self.columns), None)
        return FileFacts(stat, column_stats(pa.concat_tables(rows), name, self.columns), None)

    def _key_changes(self, instant: Instant) -> list[KeyChanges]:
        if "record_index" not in self.metadata.ready:
            return []
        commits = self.state.timeline.commits()
        position = commits.index(instant)
        after = self._keys(commits[position])
        before = self._keys(commits[position - 1]) if position else {}
        return [
            KeyChanges(
                *group,
                inserted=pa.array(sorted(after.get(group, set()) - before.get(group, set())), pa.string()),
                deleted=pa.array(sorted(before.get(group, set()) - after.get(group, set())), pa.string()),
            )
            for group in sorted(before.keys() | after.keys())
        ]

    def _keys(self, instant: Instant) -> dict[tuple[str, str], set[str]]:
        """Record keys by file group right after an instant."""
        snapshot = take_snapshot(self.state, instant.requested_at)
        found: dict[tuple[str, str], set[str]] = {}
        for file_slice in self.state.slices(snapshot):
            plan = plan_slices(
                self.state, snapshot, (file_slice,), columns=["_hoodie_record_key"], where=None, is_latest=False
            )
            keys = set(read_arrow(plan)["_hoodie_record_key"].to_pylist())
            if keys:
                found[file_slice.group.partition, file_slice.group.file_id] = keys
        return found


def planned(writes: tuple[ShardWrite, ...], mdt_partition: str) -> dict[str, Logged]:
    """What we would write, in the form of `RealCommits.logged`."""
    from lakebed.format.metadata.datum import stored_schema

    found = {}
    for write in writes:
        if write.mdt_partition == mdt_partition and len(write.entries):
            entries = write.entries
            values = entries.values
            values = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
            records = {
                key: decode_metadata_record(value, stored_schema(), path="planned").payload
                for key, value in zip(entries.keys.to_pylist(), values.to_pylist(), strict=True)
            }
            found[write.file_id] = Logged(records, frozenset(entries.deletes.to_pylist()))
    return found


def _decode_log(data: bytes, path: str) -> Logged:
    records: dict[str, object] = {}
    deletes: set[str] = set()
    for block in decode_log_file(data, path=path):
        if block.kind is BlockKind.HFILE_DATA:
            hfile = HFile.open(hfile_content(block, path=path))
            for key, value in hfile.items():
                records[key.decode()] = decode_metadata_record(value, hfile.schema or "", path=path).payload
        else:
            deletes |= set(decode_deletes(block, path=path)["key"].to_pylist())
    return Logged(records, frozenset(deletes))
