"""Keys of a large write, in files: the entries that come of them are those of keys at hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakebed.engine.exchange import Shelf
from lakebed.index.record.entries import KeyChanges, record_index_shards
from lakebed.index.record.stored_keys import KeyFiles, shard_sets, store_keys
from lakebed.metadata.entries import Entries
from lakebed.storage import open_storage

GROUPS = ("3b2f0f4e-8a4c-4c3f-9d43-5a6f1b0e7c11-0", "9a1c7d52-1e0b-4b7e-8f7d-2c4e6a8b0d13-0")


def text_of(entries: Entries) -> tuple[dict[str, bytes], list[str]]:
    found = dict(zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True))
    return found, sorted(entries.deletes.to_pylist())


def check(folder: Path, changes: list[KeyChanges], file_ids: list[str], *, is_partitioned: bool) -> int:
    """How many shards have entries, the same in both ways."""
    shelf = Shelf(open_storage(str(folder)), "shelf")
    sets = shard_sets(file_ids, is_partitioned=is_partitioned)
    kept = (store_keys(shelf, change, sets(change.partition)) for change in changes)
    files = KeyFiles(shelf, tuple(keys for keys in kept if keys is not None))
    expected = record_index_shards(changes, sets, instant_ms=7)
    stored = files.by_shard(instant_ms=7)
    found = {shard: entries.load() for shard, entries in stored.items()}
    assert {shard: text_of(each) for shard, each in found.items()} == {
        shard: text_of(each) for shard, each in expected.items()
    }
    assert all(entries.bytes > 0 for entries in stored.values())
    return len(expected)


def test_entries_of_an_index_over_the_whole_table(tmp_path: Path) -> None:
    came, left = (
        pa.array([f"k{number}" for number in range(200)]),
        pa.array([f"k{number}" for number in range(90, 300)]),
    )
    changes = [
        KeyChanges("eu", GROUPS[0], inserted=came),
        KeyChanges("us", GROUPS[1], inserted=came.slice(150), deleted=left),
        KeyChanges("us", GROUPS[0]),
    ]
    shards = [f"record-index-{number:04d}-0" for number in range(7)]
    assert check(tmp_path, changes, shards, is_partitioned=False) == 7


def test_entries_of_a_partitioned_index(tmp_path: Path) -> None:
    keys = pa.array([f"k{number}" for number in range(20)])
    changes = [KeyChanges("eu", GROUPS[0], inserted=keys), KeyChanges("us", GROUPS[1], deleted=keys)]
    shards = [f"record-index-eu-{number:04d}-0" for number in range(2)]
    assert check(tmp_path, changes, shards, is_partitioned=True) == 3, "a new partition has one shard"
    assert check(tmp_path, [KeyChanges("eu", GROUPS[0])], shards, is_partitioned=True) == 0
