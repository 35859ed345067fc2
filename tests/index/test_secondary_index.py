from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.format.java import shard_of
from lakebed.format.metadata.keys import secondary_hash_part, secondary_key
from lakebed.index.secondary.entries import ValueChanges, secondary_index_shards

SHARDS = [f"secondary-index-v-{i:04d}-0" for i in range(5)]


def changes(new: dict[str, str | None], old: dict[str, str | None]) -> ValueChanges:
    columns = [pa.array(part, pa.string()) for rows in (new, old) for part in (list(rows), list(rows.values()))]
    return ValueChanges(*columns)


def found(change: ValueChanges, version: str) -> tuple[set[str], set[str]]:
    puts, takes = set(), set()
    for file_id, entries in secondary_index_shards(change, SHARDS, version=version).items():
        for keys, into in ((entries.keys.to_pylist(), puts), (entries.deletes.to_pylist(), takes)):
            into |= set(keys)
            assert {SHARDS[shard_of(secondary_hash_part(key, version), 5)] for key in keys} <= {file_id}
    return puts, takes


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_pairs_come_and_go_with_values(version: str) -> None:
    new = {"stays": "a", "moves": "b$", "comes": "c\\", "k$": "d"}
    old = {"stays": "a", "moves": "a", "goes": "z"}
    assert found(changes(new, old), version) == (
        {secondary_key(new[key], key, version=version) for key in ("moves", "comes", "k$")},
        {secondary_key(old[key], key, version=version) for key in ("moves", "goes")},
    )


def test_nulls_have_pairs_in_version_2_alone() -> None:
    change = changes({"a": None, "b": "x"}, {"a": "x", "b": None})
    assert found(change, "V2") == ({"\0$a", "x$b"}, {"x$a", "\0$b"})
    assert found(change, "V1") == ({"x$b"}, {"x$a"})


def test_numbers_are_spelled_as_java_does() -> None:
    keys, none = pa.array(["a"]), pa.array([], pa.string())
    change = ValueChanges(keys, pa.array([2.0]), none, pa.array([], pa.float64()))
    assert found(change, "V2") == ({"2.0$a"}, set())
