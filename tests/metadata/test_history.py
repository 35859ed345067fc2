"""Random histories of a table: what is written into its metadata table, compacted and cleaned is what readers find."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.bloom import build_bloom, encode_bloom
from lakebed.format.file_names import decode_data_file_name, encode_base_file_name, encode_log_file_name
from lakebed.format.metadata.keys import instant_millis
from lakebed.format.properties import encode_properties
from lakebed.format.timeline.metadata import decode_commit, encode_commit, encode_compaction_plan
from lakebed.index.bloom.kind import find_blooms
from lakebed.index.change import MetadataChange, change_of_clean, change_of_commit
from lakebed.index.column_stats.kind import column_stats_definition
from lakebed.index.column_stats.ranges import read_column_stats
from lakebed.index.facts import FileFacts
from lakebed.index.kind import Update
from lakebed.index.kinds import empty_partitions, merge_rule
from lakebed.index.obliged import list_groups
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.index.record.definition import record_index_definition
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.probe import read_record_index
from lakebed.index.secondary.entries import ValueChanges
from lakebed.index.secondary.kind import read_secondary_index
from lakebed.index.update import write_change
from lakebed.metadata import MetadataTable, find_metadata_table
from lakebed.metadata.bootstrap import bootstrap_empty, metadata_properties
from lakebed.metadata.files import list_metadata_files, live_files
from lakebed.metadata.upkeep.clean import plan_clean
from lakebed.metadata.upkeep.compaction import compact_shard, plan_compaction, slice_of
from lakebed.metadata.upkeep.log_compaction import Horizon, compact_shard_logs, plan_log_compaction, slices_to_merge
from lakebed.model.commit import CleanedPartition, CleanMetadata, CommitMetadata, WriteStat
from lakebed.model.config import TableConfig
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats, ValueType
from lakebed.storage import open_storage
from lakebed.timeline import load_timeline
from lakebed.timeline.timeline import Timeline

ROOT = ".hoodie/metadata/"
SECONDARY = "secondary_index_v"
SHARDS = {
    "files": 1,
    "column_stats": 2,
    "bloom_filters": 3,
    "record_index": 4,
    "partition_stats": 1,
    SECONDARY: 3,
}
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
numbers = itertools.count()

Rows = dict[str, int | None]


@dataclass
class Group:
    """A file group: its current files, each with the rows that it mentions, and the rows that live."""

    rows: Rows
    files: dict[str, Rows] = field(default_factory=dict)


class World:
    """A table of copy-on-write and merge-on-read writes, without its data files."""

    def __init__(self, *, is_partitioned: bool) -> None:
        self.storage = open_storage(f"memory://history-{next(numbers)}")
        self.clock = itertools.count(20300101000000000)
        self.definitions = {
            "column_stats": column_stats_definition(SCHEMA, has_meta_columns=False),
            "record_index": record_index_definition(is_partitioned=is_partitioned),
            SECONDARY: IndexDefinition(SECONDARY, "secondary_index", "identity", ("v",), version="V2"),
        }
        self.groups: dict[tuple[str, str], Group] = {}
        self.files: dict[str, dict[str, int]] = {}
        self.inserted_at: dict[str, int] = {}
        self.config = TableConfig(
            {
                "hoodie.table.name": "t",
                "hoodie.table.type": "MERGE_ON_READ",
                "hoodie.table.version": "9",
                "hoodie.table.metadata.partitions": ",".join(SHARDS),
            }
        )
        shards = {**SHARDS, "record_index": 0} if is_partitioned else SHARDS
        properties = encode_properties(metadata_properties("t"), comment="test", date="today")
        self.storage.create(f"{ROOT}.hoodie/hoodie.properties", properties)
        for built in bootstrap_empty(self.storage, empty_partitions(shards), token="1-0-0", created_ms=0, date="today"):
            self.publish(built.instant, "deltacommit", built.stats, "BULK_INSERT_PREPPED")

    def tick(self) -> InstantTime:
        return InstantTime(str(next(self.clock)))

    def publish(self, instant: InstantTime, action: str, stats: Sequence[WriteStat], operation: str) -> None:
        by_partition: dict[str, tuple[WriteStat, ...]] = {}
        for stat in stats:
            by_partition[stat.partition] = (*by_partition.get(stat.partition, ()), stat)
        metadata = CommitMetadata(by_partition, operation=operation, compacted=action == "commit")
        data = encode_commit(metadata, replace=False)
        assert decode_commit(data, path="").write_stats == by_partition
        self.storage.create(f"{ROOT}.hoodie/timeline/{instant}_{self.tick()}.{action}", data)

    def metadata(self) -> MetadataTable:
        found = find_metadata_table(self.storage, self.config, Timeline(()), self.definitions)
        assert isinstance(found, MetadataTable)
        return found

    def apply(self, instant: InstantTime, change: MetadataChange) -> None:
        update = Update(
            instant,
            instant_millis(instant, timezone.utc),
            tuple(SHARDS),
            list_groups(self.storage, tuple(SHARDS)),
            self.definitions,
            CurrentStats(self.metadata(), self.current_files),
            groups_per_partition=2,
        )
        stats = write_change(self.storage, change, update, token="1-2-3", created_ms=0)
        for stat in stats:
            assert self.storage.size(f"{ROOT}{stat.path}") == stat.file_size
        self.publish(instant, "deltacommit", stats, "UPSERT_PREPPED")

    def current_files(self, partition: str) -> list[str]:
        return [name for (p, _), group in self.groups.items() if p == partition for name in group.files]

    def home(self, key: str) -> tuple[str, str] | None:
        return next((group_id for group_id, group in self.groups.items() if key in group.rows), None)

    def upsert(self, partition: str, rows: Rows, deletes: set[str], *, to_new_group: bool) -> None:
        """Rewrites the base files of all groups that the rows come to or leave."""
        instant = self.tick()
        ids = [group_id for group_id in self.groups if group_id[0] == partition]
        target = (
            ids[0] if ids and not to_new_group else (partition, f"{next(numbers):08x}-0000-4000-8000-000000000000-0")
        )
        before = {group_id: dict(group.rows) for group_id, group in self.groups.items()}
        after = {group_id: dict(old) for group_id, old in before.items()}
        after.setdefault(target, {})
        for key in {*rows, *deletes}:
            home = self.home(key)
            if home is not None and (key in deletes or home[0] != partition or home not in after):
                del after[home][key]
        for key, value in rows.items():
            if key not in deletes:
                home = self.home(key)
                after[home if home is not None and key in after[home] else target][key] = value
        written = [
            self.rewrite(instant, group_id, before.get(group_id, {}), new)
            for group_id, new in after.items()
            if new != before.get(group_id)
        ]
        self.apply(instant, change_of_commit(written, values=self.values(before, after)))

    def rewrite(self, instant: InstantTime, group_id: tuple[str, str], before: Rows, after: Rows) -> FileFacts:
        partition, file_id = group_id
        name = encode_base_file_name(file_id, "0-0-1", instant)
        group = self.groups.setdefault(group_id, Group({}))
        stat = WriteStat(
            file_id,
            f"{partition}/{name}",
            partition,
            prev_commit="20300101000000000" if group.files else None,
            file_size=len(name),
        )
        group.rows, group.files = after, {name: after}
        self.files.setdefault(partition, {})[name] = len(name)
        inserted = sorted(after.keys() - before.keys())
        for key in inserted:
            self.inserted_at[key] = instant_millis(instant, timezone.utc)
        bloom = encode_bloom(build_bloom(pa.array(list(after), pa.string()), capacity=10))
        deleted = sorted(before.keys() - after.keys())
        return FileFacts(
            stat, stats_of(name, after), bloom, pa.array(inserted, pa.string()), pa.array(deleted, pa.string())
        )

    def append(self, partition: str, values: list[int | None]) -> None:
        """Appends a log file with new values of rows that are there."""
        ids = [group_id for group_id, group in self.groups.items() if group_id[0] == partition and group.rows]
        if not ids:
            return
        instant, group = self.tick(), self.groups[ids[0]]
        name = encode_log_file_name(ids[0][1], instant, 1, "0-0-1")
        rows = dict(zip(sorted(group.rows), values, strict=False))
        before = {ids[0]: dict(group.rows)}
        group.rows = {**group.rows, **rows}
        group.files[name] = rows
        self.files[partition][name] = len(name)
        stat = WriteStat(ids[0][1], f"{partition}/{name}", partition, prev_commit=instant, file_size=len(name))
        changed = self.values(before, {ids[0]: group.rows})
        self.apply(instant, change_of_commit([FileFacts(stat, stats_of(name, rows))], values=changed))

    def replace(self, partition: str, rows: Rows | None) -> None:
        """Overwrites a partition, or deletes what is in it."""
        instant = self.tick()
        old = {group_id: self.groups.pop(group_id) for group_id in list(self.groups) if group_id[0] == partition}
        rows = None if rows is None else {key: value for key, value in rows.items() if self.home(key) is None}
        before = {group_id: group.rows for group_id, group in old.items()}
        after: dict[tuple[str, str], Rows] = {}
        if rows is not None:
            after[partition, f"{next(numbers):08x}-0000-4000-8000-000000000000-0"] = rows
        written = [self.rewrite(instant, group_id, {}, new) for group_id, new in after.items()]
        keys = [KeyChanges(*group_id, deleted=pa.array(list(rows), pa.string())) for group_id, rows in before.items()]
        changed = self.values(before, after)
        self.apply(instant, change_of_commit(written, replaced=[partition], replaced_keys=keys, values=changed))

    def values(
        self, before: dict[tuple[str, str], Rows], after: dict[tuple[str, str], Rows]
    ) -> dict[str, ValueChanges]:
        old = {key: value for rows in before.values() for key, value in rows.items()}
        new = {key: value for rows in after.values() for key, value in rows.items()}
        columns = [(pa.array(list(r), pa.string()), pa.array(list(r.values()), pa.int64())) for r in (new, old)]
        return {SECONDARY: ValueChanges(*columns[0], *columns[1])}

    def clean(self) -> None:
        """Removes files that are not current, and partitions in which none is."""
        cleaned = {}
        for partition in list(self.files):
            old = tuple(name for name in self.files[partition] if name not in self.current_files(partition))
            is_gone = not self.current_files(partition)
            if old:
                cleaned[partition] = CleanedPartition(partition, "", old, old, is_partition_deleted=is_gone)
                self.files[partition] = {n: size for n, size in self.files[partition].items() if n not in old}
            if is_gone:
                del self.files[partition]
        self.apply(self.tick(), change_of_clean(CleanMetadata("", "", "", cleaned)))

    def compact(self) -> None:
        metadata, instant = self.metadata(), self.tick()
        timeline = load_timeline(self.storage, TableConfig(metadata_properties("t")), ROOT)
        partitions = [p for p in SHARDS if list_groups(self.storage, [p])[p]]
        plan = plan_compaction(
            (s for partition in partitions for s in metadata.slices(partition)), instant, timeline.completion_of
        )
        stats = [
            compact_shard(
                self.storage,
                slice_of(operation),
                merge_rule(operation.partition),
                instant=instant,
                token="7-7-7",
                created_ms=0,
            )
            for operation in plan.operations
        ]
        self.publish(instant, "commit", stats, "COMPACT")

    def merge_logs(self) -> None:
        """Log-compacts what has two log files or more that nobody merged."""
        metadata, instant = self.metadata(), self.tick()
        timeline = load_timeline(self.storage, TableConfig(metadata_properties("t")), ROOT)
        partitions = [p for p in SHARDS if list_groups(self.storage, [p])[p]]
        slices = [s for partition in partitions for s in metadata.slices(partition)]
        horizon = Horizon(instant, frozenset(), timeline.completion_of)
        plan = plan_log_compaction(slices, horizon, blocks_min=2, merged=timeline.log_compactions)
        stats = [
            compact_shard_logs(
                self.storage, each, merge_rule(each.group.partition), instant=instant, token="8-8-8", created_ms=0
            )
            for each in slices_to_merge(plan.operations, slices, horizon)
        ]
        self.storage.create(f"{ROOT}.hoodie/timeline/{instant}.logcompaction.requested", encode_compaction_plan(plan))
        self.publish(instant, "deltacommit", [stat for stat in stats if stat is not None], "LOG_COMPACT")

    def clean_metadata(self, retained: int) -> None:
        timeline = load_timeline(self.storage, TableConfig(metadata_properties("t")), ROOT)
        files = {
            partition: [
                file
                for listed in self.storage.list(f"{ROOT}{partition}")
                if (file := decode_data_file_name(listed.path.rpartition("/")[2])) is not None
            ]
            for partition in SHARDS
        }
        commits = [instant.requested_at for instant in timeline.commits()]
        groups = list_groups(self.storage, tuple(SHARDS))
        plan = plan_clean(files, commits, timeline.completion_of, retained=retained)
        for partition, names in (plan.files if plan else {}).items():
            for name in names:
                self.storage.delete(f"{ROOT}{partition}/{name}")
        assert list_groups(self.storage, tuple(SHARDS)) == groups

    def check(self) -> None:
        metadata = self.metadata()
        known = {partition: names for partition, names in self.files.items() if names}
        (shard,) = metadata.shards("files")
        listed = live_files(shard)
        assert {p: {name: entry.size for name, entry in names.items()} for p, names in listed.items()} == known
        found = list_metadata_files(metadata)
        assert {p: {file.name: file.size for file in files} for p, files in found.items()} == known
        if list_groups(self.storage, ["record_index"])["record_index"]:
            entries = read_record_index(metadata).to_pylist()
            assert {e["key"]: (e["partition"], e["file_id"], e["instant_ms"]) for e in entries} == {
                key: (*group_id, self.inserted_at[key]) for group_id, group in self.groups.items() for key in group.rows
            }
        pairs = read_secondary_index(metadata, SECONDARY).to_pylist()
        live = [(key, value) for group in self.groups.values() for key, value in group.rows.items()]
        assert sorted((p["record_key"], p["value"] or "") for p in pairs) == sorted(
            (key, "" if value is None else str(value)) for key, value in live
        )
        self.check_statistics(metadata)
        bases = [
            (partition, name, rows)
            for (partition, _), group in self.groups.items()
            for name, rows in group.files.items()
            if name.endswith(".parquet")
        ]
        blooms = find_blooms(metadata, [(partition, name) for partition, name, _ in bases])
        assert all(blooms[name].might_contain(key) for _, name, rows in bases for key in rows)

    def check_statistics(self, metadata: MetadataTable) -> None:
        if not self.groups:
            return
        of_files = {
            (e["file_name"], e["column"]): bounds(e) for e in read_column_stats(metadata, "column_stats").to_pylist()
        }
        current = {name: rows for group in self.groups.values() for name, rows in group.files.items()}
        assert {key: of for key, of in of_files.items() if key[0] in current} == {
            (name, stats.column): tuple_of(stats) for name, rows in current.items() for stats in stats_of(name, rows)
        }
        assert {name for name, _ in of_files} == {name for names in self.files.values() for name in names}
        of_partitions = {
            (e["file_name"], e["column"]): bounds(e) for e in read_column_stats(metadata, "partition_stats").to_pylist()
        }
        rows = {partition: [] for partition, _ in self.groups}
        for (partition, _), group in self.groups.items():
            rows[partition] += [item for mentioned in group.files.values() for item in mentioned.items()]
        assert of_partitions == {
            (partition, column): tuple_of(stats)
            for partition, items in rows.items()
            for column, stats in zip(("id", "v"), column_stats("", items), strict=True)
        }


def stats_of(name: str, rows: Rows) -> tuple[ColumnStats, ...]:
    return column_stats(name, list(rows.items()))


def column_stats(name: str, rows: list[tuple[str, int | None]]) -> tuple[ColumnStats, ...]:
    keys, known = [key for key, _ in rows], [value for _, value in rows if value is not None]
    nulls = len(rows) - len(known)
    return (
        ColumnStats(
            name, "id", min(keys, default=None), max(keys, default=None), len(rows), 0, value_type=ValueType.STRING
        ),
        ColumnStats(
            name, "v", min(known, default=None), max(known, default=None), len(rows), nulls, value_type=ValueType.LONG
        ),
    )


def tuple_of(stats: ColumnStats) -> tuple[object, ...]:
    return stats.min_value, stats.max_value, stats.value_count, stats.null_count


def bounds(entry: dict) -> tuple[object, ...]:
    low, high = (entry[end]["string"] if entry["column"] == "id" else entry[end]["long"] for end in ("min", "max"))
    return low, high, entry["value_count"], entry["null_count"]


partitions = st.sampled_from(["eu", "us", "a=b/c-d_e"])
keys = st.sampled_from([f"k{i}" for i in range(8)])
values = st.none() | st.integers(-5, 5)
rows = st.dictionaries(keys, values, max_size=5)
steps = st.one_of(
    st.tuples(st.just("upsert"), partitions, rows, st.frozensets(keys, max_size=2), st.booleans()),
    st.tuples(st.just("upsert"), partitions, rows, st.just(frozenset()), st.booleans()),
    st.tuples(st.just("append"), partitions, st.lists(values, min_size=1, max_size=3)),
    st.tuples(st.just("replace"), partitions, st.none() | rows),
    st.tuples(st.just("clean")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("merge logs")),
    st.tuples(st.just("merge logs")),
    st.tuples(st.just("clean metadata"), st.integers(1, 3)),
)


def take(world: World, step: tuple) -> None:
    match step:
        case ("upsert", partition, rows, deletes, to_new_group):
            world.upsert(partition, rows, set(deletes), to_new_group=to_new_group)
        case ("append", partition, values):
            world.append(partition, values)
        case ("replace", partition, rows):
            world.replace(partition, rows)
        case ("clean",):
            world.clean()
        case ("compact",):
            world.compact()
        case ("merge logs",):
            world.merge_logs()
        case ("clean metadata", retained):
            world.clean_metadata(retained)


@pytest.mark.parametrize("is_partitioned", [False, True])
@given(history=st.lists(steps, min_size=1, max_size=10))
@settings(max_examples=10)
def test_readers_find_what_was_written(is_partitioned: bool, history: list[tuple]) -> None:
    world = World(is_partitioned=is_partitioned)
    for step in history:
        take(world, step)
    world.check()
    world.merge_logs()
    world.check()
    world.compact()
    world.clean_metadata(1)
    world.check()
