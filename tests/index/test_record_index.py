from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.format.java import shard_of
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import RecordLocation, decode_record_index_value
from lakebed.index.record.entries import KeyChanges, ShardSizing, record_index_shards, shard_count
from lakebed.metadata.entries import Entries

GROUP = "9e1ff7e7-7578-4c65-9921-704ef5274d85-0"
SHARDS = [f"record-index-{i:04d}-0" for i in range(4)]


def texts(*keys: str) -> pa.Array:
    return pa.array(keys, pa.string())


def locations(shards: dict[str, Entries]) -> tuple[dict[str, RecordLocation], set[str]]:
    found = {
        key: decode_record_index_value(value, stored_schema())
        for entries in shards.values()
        for key, value in zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    }
    return found, {key for entries in shards.values() for key in entries.deletes.to_pylist()}


def test_keys_of_several_groups_meet_in_their_shard() -> None:
    changes = [
        KeyChanges("eu", GROUP, inserted=texts("k000", "k001")),
        KeyChanges(
            "us", "not a uuid", inserted=pa.chunked_array([texts("k003"), texts("k008")]), deleted=texts("k009")
        ),
    ]
    shards = record_index_shards(changes, lambda _: SHARDS, instant_ms=7)
    for file_id, entries in shards.items():
        keys = [*entries.keys.to_pylist(), *entries.deletes.to_pylist()]
        assert {SHARDS[shard_of(key, 4)] for key in keys} == {file_id}
    here, there = RecordLocation("eu", GROUP, 7), RecordLocation("us", "not a uuid", 7)
    assert locations(shards) == ({"k000": here, "k001": here, "k003": there, "k008": there}, {"k009"})


def test_a_key_that_moves_is_inserted_not_deleted() -> None:
    changes = [KeyChanges("eu", GROUP, deleted=texts("a", "b")), KeyChanges("us", GROUP, inserted=texts("b"))]
    found, deletes = locations(record_index_shards(changes, lambda _: SHARDS, instant_ms=7))
    assert (set(found), deletes) == ({"b"}, {"a"})


def test_in_a_partitioned_index_it_leaves_one_partition_and_comes_to_another() -> None:
    changes = [KeyChanges("eu", GROUP, deleted=texts("b")), KeyChanges("us", GROUP, inserted=texts("b"))]
    shards = record_index_shards(changes, {"eu": ["of eu"], "us": ["of us"]}.__getitem__, instant_ms=7)
    assert {file_id: len(entries.keys) for file_id, entries in shards.items()} == {"of eu": 0, "of us": 1}
    assert shards["of eu"].deletes.to_pylist() == ["b"]


def test_nothing_changes_nothing() -> None:
    assert record_index_shards([KeyChanges("", GROUP)], lambda _: SHARDS, instant_ms=7) == {}


def test_many_keys_keep_their_locations() -> None:
    keys = [f"key-{i}" for i in range(5000)]
    changes = [
        KeyChanges(f"p{part}", GROUP, inserted=pa.array(keys[part::5]), deleted=pa.array(keys[(part + 1) % 5 :: 50]))
        for part in range(5)
    ]
    found, deletes = locations(record_index_shards(changes, lambda _: SHARDS, instant_ms=7))
    assert {key: location.partition for key, location in found.items()} == {k: f"p{i % 5}" for i, k in enumerate(keys)}
    assert deletes == set()


def test_of_many_keys_the_last_insert_of_each_counts() -> None:
    keys = [f"key-{i}" for i in range(5000)]
    changes = [KeyChanges("first", GROUP, inserted=pa.array(keys)), KeyChanges("last", GROUP, texts("key-7", "key-8"))]
    shards = record_index_shards(changes, lambda _: SHARDS, instant_ms=7)
    found, _ = locations(shards)
    assert sum(len(entries.keys) for entries in shards.values()) == 5000
    assert {key for key, location in found.items() if location.partition == "last"} == {"key-7", "key-8"}


@pytest.mark.parametrize(("rows", "expected"), [(0, 10), (100_000_000, 10), (1_000_000_000, 89), (10**13, 10_000)])
def test_shard_count_grows_with_the_table(rows: int, expected: int) -> None:
    assert shard_count(rows, ShardSizing()) == expected
