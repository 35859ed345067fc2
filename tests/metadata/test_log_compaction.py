"""Log compaction of the metadata table: merged log files say the same to every reader; some are left alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.file_names import decode_data_file_name, encode_base_file_name, encode_log_file_name
from lakebed.format.log.file import BlockKind, HeaderKey, decode_log_file
from lakebed.format.metadata.datum import RecordKind, stored_schema
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.records import (
    decode_metadata_record,
    encode_bloom_record,
    encode_column_stats_record,
    encode_files_record,
    encode_secondary_record,
)
from lakebed.format.metadata.shard_files import encode_placeholder_log, encode_shard_base, encode_shard_log
from lakebed.index.kinds import merge_rule, merge_shard
from lakebed.metadata.files import live_files
from lakebed.metadata.merging import Merged
from lakebed.metadata.shard import Shard, load_whole_shard, open_file, parts_of
from lakebed.metadata.upkeep.log_compaction import Horizon, compact_shard_logs, plan_log_compaction, slices_to_merge
from lakebed.model.commit import CompactionOperation
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import BloomRecord, ColumnStats, FileEntry, ValueType
from lakebed.storage import open_storage

ROOT = ".hoodie/metadata/"
FILE_ID = "shard-0000-0"
ALL = "__all_partitions__"
KEYS = ("a", "b", "c", "d")
numbers = itertools.count()

Puts = Mapping[str, bytes]


def at(number: int) -> InstantTime:
    return InstantTime(f"{20300101000000000 + number}")


@dataclass
class Stack:
    """The files of one shard, written one after the other: originals, and log files that stand for some of them."""

    partition: str
    storage: Any = field(default_factory=lambda: open_storage(f"memory://logs-{next(numbers)}"))
    base: BaseFile | None = None
    logs: list[LogFile] = field(default_factory=list)
    merged: list[LogFile] = field(default_factory=list)
    time: int = 0

    def tick(self) -> InstantTime:
        self.time += 10
        return at(self.time)

    def write_base(self, puts: Puts) -> None:
        name = encode_base_file_name(FILE_ID, "1-1-1", self.tick(), ".hfile")
        keys, values = pa.array([*puts], pa.string()), pa.array([*puts.values()], pa.binary())
        file = self.store(name, encode_shard_base(keys, values, schema=stored_schema(), created_ms=0))
        assert isinstance(file, BaseFile)
        self.base = file

    def write_log(self, puts: Puts, deletes: frozenset[str], *, has_ordering: bool = False) -> None:
        instant = self.tick()
        gone = pa.array(sorted(deletes - puts.keys()), pa.string())
        if not puts and not len(gone):
            data = encode_placeholder_log(instant)
        else:
            data = encode_shard_log(
                instant,
                pa.array([*puts], pa.string()),
                pa.array([*puts.values()], pa.binary()),
                gone,
                mdt_partition=self.partition,
                schema=stored_schema(has_ordering=has_ordering),
                created_ms=0,
            )
        log = self.store(encode_log_file_name(FILE_ID, instant, 1, "1-1-1"), data)
        assert isinstance(log, LogFile)
        self.logs.append(log)

    def merge(self, left_out: int) -> None:
        """Merges all log files but the newest ones, at a time before these, unless that was done already."""
        taken = self.logs[: len(self.logs) - left_out]
        if not taken or any(log.instant > taken[-1].instant for log in self.merged):
            return
        instant = at(int(taken[-1].instant[-9:]) + 1)
        whole = self.slice([*taken, *self.merged], with_base=True)
        stat = compact_shard_logs(
            self.storage, whole, merge_rule(self.partition), instant=instant, token="2-2-2", created_ms=0
        )
        if stat is not None:
            log = decode_data_file_name(stat.log_files[0], size=stat.file_size)
            assert isinstance(log, LogFile)
            self.merged.append(log)

    def store(self, name: str, data: bytes) -> BaseFile | LogFile:
        self.storage.create(f"{ROOT}{self.partition}/{name}", data)
        file = decode_data_file_name(name, size=len(data))
        assert file is not None
        return file

    def slice(self, logs: list[LogFile], *, with_base: bool) -> FileSlice:
        in_order = tuple(sorted(logs, key=lambda log: log.instant))
        base = self.base if with_base else None
        first = base.instant if base else in_order[0].instant
        return FileSlice(FileGroupId(self.partition, FILE_ID), first, base, in_order)

    def originals(self) -> Merged:
        """What there is without log compactions."""
        return self.read(load_whole_shard(self.storage, self.slice(self.logs, with_base=True), root=ROOT))

    def with_merged(self) -> Merged:
        """What a reader finds that puts merged blocks in the place of those that they replace."""
        return self.read(load_whole_shard(self.storage, self.everything, root=ROOT))

    def by_time(self) -> Merged:
        """What a reader finds that takes all blocks in the order of their instants, as Apache Hudi does by default."""
        parts = parts_of(self.everything)
        return self.read(Shard(tuple(layer for p in parts for layer in open_file(self.storage, p, root=ROOT).layers)))

    @property
    def everything(self) -> FileSlice:
        return self.slice([*self.logs, *self.merged], with_base=True)

    def read(self, shard: Shard) -> Merged:
        return merge_shard(shard, self.partition, has_base=self.base is not None)


def payloads(merged: Merged) -> dict[str, object]:
    schema = stored_schema(has_ordering=merged.has_ordering)
    pairs = zip(merged.keys.to_pylist(), merged.values.to_pylist(), strict=True)
    return {key: decode_metadata_record(value, schema, path="").payload for key, value in pairs}


def without_counts(found: dict[str, object]) -> dict[str, object]:
    """Whoever takes all blocks counts rows twice that were merged before, as in tables of Apache Hudi."""
    nothing: dict[str, Any] = {"value_count": 0, "null_count": 0}
    return {key: replace(each, **nothing) if isinstance(each, ColumnStats) else each for key, each in found.items()}


def location(number: int, *, has_ordering: bool) -> bytes:
    place = RecordLocation("eu", f"{number:08x}-0000-4000-8000-000000000000-0", number)
    return encode_record_index_value(place, has_ordering=has_ordering)


def statistics(number: int, *, tight: bool, deleted: bool, of_partition: bool) -> bytes:
    stats = ColumnStats(
        "eu",
        "v",
        -number,
        number,
        value_count=number,
        null_count=1,
        is_tight_bound=tight,
        is_deleted=deleted,
        value_type=ValueType.LONG,
    )
    return encode_column_stats_record(stats, version="V2", partition_stats=of_partition)


def listing(key: str, names: dict[str, tuple[int, bool]]) -> bytes:
    kind = RecordKind.ALL_PARTITIONS if key == ALL else RecordKind.FILES
    entries = {name: FileEntry(0 if gone else size, is_deleted=gone) for name, (size, gone) in names.items()}
    return encode_files_record(entries, kind=kind)


def dictionaries(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[dict[str, bytes]]:
    return st.dictionaries(st.sampled_from(KEYS), values, max_size=3)


small = st.integers(1, 9)
names = st.dictionaries(st.sampled_from(["f", "g"]), st.tuples(small, st.booleans()), max_size=2)
ENTRIES: dict[str, st.SearchStrategy[dict[str, bytes]]] = {
    "files": st.dictionaries(st.sampled_from([ALL, "eu", "us"]), names, max_size=2).map(
        lambda found: {key: listing(key, names) for key, names in found.items()}
    ),
    "column_stats": dictionaries(
        st.builds(statistics, small, tight=st.just(False), deleted=st.booleans(), of_partition=st.just(False))
    ),
    "partition_stats": dictionaries(
        st.builds(statistics, small, tight=st.booleans(), deleted=st.booleans(), of_partition=st.just(True))
    ),
    "bloom_filters": dictionaries(
        st.builds(
            lambda number, gone: encode_bloom_record(
                BloomRecord("DYNAMIC_V0", str(at(number)), bytes([number]), is_deleted=gone)
            ),
            small,
            st.booleans(),
        )
    ),
    "secondary_index_v": dictionaries(st.builds(lambda gone: encode_secondary_record(is_deleted=gone), st.booleans())),
    "record_index": dictionaries(st.builds(location, small, has_ordering=st.just(False))),
}
ORDERED = dictionaries(st.builds(location, small, has_ordering=st.just(True)))


def histories(partition: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Log files, and now and then a merge of all but the newest."""
    keys = st.sampled_from([ALL, "eu", "us"] if partition == "files" else KEYS)
    deletes = st.frozensets(keys, max_size=2)
    writes = st.tuples(st.just("write"), ENTRIES[partition], deletes, st.just(False))
    if partition == "record_index":
        writes |= st.tuples(st.just("write"), ORDERED, deletes, st.just(True))
    return st.lists(writes | st.tuples(st.just("merge"), st.integers(0, 2)), min_size=2, max_size=12)


@pytest.mark.parametrize("partition", [*ENTRIES])
@given(data=st.data())
@settings(max_examples=60)
def test_merged_log_files_say_what_the_originals_say(partition: str, data: st.DataObject) -> None:
    stack = Stack(partition)
    base = data.draw(st.none() | ENTRIES[partition])
    if base is not None:
        stack.write_base(base)
    for kind, *rest in data.draw(histories(partition)):
        if kind == "write":
            stack.write_log(rest[0], rest[1], has_ordering=rest[2])
        else:
            stack.merge(*rest)
    stack.merge(0)
    if not stack.logs:
        return
    expected = payloads(stack.originals())
    assert payloads(stack.with_merged()) == expected
    assert without_counts(payloads(stack.by_time())) == without_counts(expected)
    if partition == "files":
        whole = (stack.slice(stack.logs, with_base=True), stack.everything)
        before, after = (live_files(load_whole_shard(stack.storage, each, root=ROOT)) for each in whole)
        assert before == after


def test_a_merged_log_names_whom_it_stands_for_and_keeps_deletions() -> None:
    stack = Stack("record_index")
    stack.write_base({"a": location(1, has_ordering=False), "b": location(2, has_ordering=False)})
    stack.write_log({}, frozenset())
    stack.write_log({"c": location(3, has_ordering=False)}, frozenset("a"))
    stack.write_log({"d": location(4, has_ordering=False)}, frozenset("c"))
    stack.merge(0)
    (log,) = stack.merged
    data = stack.storage.get(f"{ROOT}record_index/{log.name}")
    blocks = [*decode_log_file(data, path=log.name, torn="refuse")]
    assert [block.kind for block in blocks] == [BlockKind.DELETE, BlockKind.HFILE_DATA]
    replaced = ",".join(each.instant for each in reversed(stack.logs))
    assert [block.header[HeaderKey.COMPACTED_BLOCK_TIMES] for block in blocks] == [replaced, replaced]
    assert {block.header[HeaderKey.INSTANT_TIME] for block in blocks} == {log.instant}
    assert stack.with_merged().keys.to_pylist() == ["b", "d"]


def test_log_files_that_say_nothing_are_left() -> None:
    stack = Stack("record_index")
    stack.write_log({}, frozenset())
    stack.write_log({}, frozenset())
    stack.merge(0)
    assert stack.merged == []


def test_the_schema_of_another_engine_is_kept() -> None:
    """By it writers know statistics that are not their own, which may lack those of a write that was overtaken."""
    stack = Stack("partition_stats")
    theirs = stored_schema().replace('"name":', '"name": ', 1)
    assert theirs != stored_schema()
    tight = statistics(3, tight=True, deleted=False, of_partition=True)
    keys, values = pa.array(["a"], pa.string()), pa.array([tight], pa.binary())
    for schema in (stored_schema(), theirs, stored_schema()):
        instant = stack.tick()
        data = encode_shard_log(
            instant, keys, values, keys[:0], mdt_partition="partition_stats", schema=schema, created_ms=0
        )
        log = stack.store(encode_log_file_name(FILE_ID, instant, 1, "1-1-1"), data)
        assert isinstance(log, LogFile)
        stack.logs.append(log)
    stack.merge(0)
    found = load_whole_shard(stack.storage, stack.everything, root=ROOT).find_many(["a"])
    assert [stored.schema for stored in found["a"]] == [theirs]


GROUP = FileGroupId("files", "files-0000-0")


def log_at(requested: int) -> LogFile:
    log = decode_data_file_name(encode_log_file_name(GROUP.file_id, at(requested), 1, "1-1-1"), size=100)
    assert isinstance(log, LogFile)
    return log


def slice_at(*requested: int) -> FileSlice:
    logs = tuple(log_at(time) for time in requested)
    return FileSlice(GROUP, logs[0].instant, None, logs)


def horizon(instant: int, completions: Mapping[int, int], unsettled: tuple[int, ...] = ()) -> Horizon:
    known = {at(requested): at(completed) for requested, completed in completions.items()}
    return Horizon(at(instant), frozenset(map(at, unsettled)), known.get)


def taken(file_slice: FileSlice, found: Horizon) -> list[str]:
    return [str(int(log.instant[-9:])) for log in found.logs_of(file_slice)]


@pytest.mark.parametrize(
    ("instant", "completions", "unsettled", "expected"),
    [
        (50, {10: 15, 20: 25, 30: 35}, (), ["10", "20", "30"]),
        (28, {10: 15, 20: 25, 30: 35}, (29,), ["10", "20"]),
        # One that is pending was requested before the merge: its block would come to lie below older ones.
        (28, {10: 15, 20: 25, 30: 35}, (5, 29), []),
        (28, {10: 15, 20: 25, 30: 35}, (28,), []),
        # One that is pending has a block that completed before the merge: it may have to go again.
        (50, {10: 15, 20: 25, 30: 35}, (20, 60), []),
        # One that is left out was requested before the merge: older entries would come to lie on it.
        (28, {10: 15, 20: 25, 30: 35, 5: 40}, (29,), []),
        # One that is left out may be compacted, just before 39, without the merged one, which completes later.
        (28, {10: 15, 20: 25, 30: 35}, (29, 39), []),
        (28, {10: 15, 20: 25, 30: 35}, (29, 34), ["10", "20"]),
        # One that has not completed does not count.
        (50, {10: 15, 20: 25}, (), ["10", "20"]),
    ],
)
def test_what_a_log_compaction_takes_in(
    instant: int, completions: dict[int, int], unsettled: tuple[int, ...], expected: list[str]
) -> None:
    file_slice = slice_at(*sorted(completions))
    assert taken(file_slice, horizon(instant, completions, unsettled)) == expected


def test_a_shard_is_merged_once_a_reader_has_to_read_many_log_files() -> None:
    completions = {number: number + 5 for number in (10, 20, 30, 40)}
    found = horizon(100, completions)

    def planned(merged: tuple[int, ...], blocks_min: int) -> int:
        slices = [slice_at(10, 20, 30, 40)]
        plan = plan_log_compaction(slices, found, blocks_min=blocks_min, merged={*map(at, merged)})
        return len(plan.operations)

    assert planned((), 4) == 1
    assert planned((), 5) == 0
    assert planned((30,), 2) == 1  # The one that merged the two before it, and the one after.
    assert planned((30,), 3) == 0
    assert planned((40,), 1) == 0  # There is nothing to merge.


def test_what_was_merged_is_not_merged_again_at_an_earlier_time() -> None:
    """While a write is pending every log compaction takes a time just before it."""
    completions = {number: number + 5 for number in (10, 20, 30)} | {39: 50}
    plan = plan_log_compaction(
        [slice_at(10, 20, 30, 39)], horizon(38, completions, (40,)), blocks_min=2, merged={at(39)}
    )
    assert plan.operations == ()


def moved(change: Callable[[FileSlice], FileSlice]) -> int:
    """How many shards are left to merge of a plan, once its slice has changed."""
    completions = {number: number + 5 for number in (10, 20, 30)}
    before, found = slice_at(10, 20), horizon(28, completions)
    names = tuple(log.name for log in before.logs)
    operation = CompactionOperation(GROUP.partition, GROUP.file_id, before.base_instant, None, names)
    return len(slices_to_merge([operation], [change(before)], found))


def test_a_plan_is_carried_out_as_far_as_it_is_possible() -> None:
    base = decode_data_file_name(encode_base_file_name(GROUP.file_id, "1-1-1", at(26), ".hfile"))
    assert isinstance(base, BaseFile)
    assert moved(lambda it: it) == 1
    assert moved(lambda it: replace(it, logs=(*it.logs, log_at(30)))) == 1
    assert moved(lambda it: replace(it, base=base, logs=())) == 0  # It was compacted.
    assert moved(lambda it: replace(it, logs=it.logs[:1])) == 0  # Something was undone.
    assert moved(lambda it: replace(it, group=FileGroupId("files", "files-0001-0"))) == 0  # It is not there any more.
