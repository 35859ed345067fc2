from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.java import shard_of
from lakebed.metadata.entries import Entries, concat_entries, concat_texts, concat_values, split_entries, split_in_order

records = st.dictionaries(st.text(max_size=8), st.binary(max_size=4), max_size=20)


def plain(entries: Entries) -> tuple[dict[str, bytes], set[str]]:
    values = entries.values.dictionary_decode() if pa.types.is_dictionary(entries.values.type) else entries.values
    found = dict(zip(entries.keys.to_pylist(), values.to_pylist(), strict=True))
    assert len(found) == len(entries.keys)
    return found, set(entries.deletes.to_pylist())


@given(records=records, deletes=st.sets(st.text(max_size=8), max_size=8), shards=st.integers(1, 7))
def test_shards_hold_all_entries_where_readers_look(records: dict[str, bytes], deletes: set[str], shards: int) -> None:
    file_ids = [f"shard-{i:04d}-0" for i in range(shards)]
    split = split_entries(Entries.of(records, deletes), file_ids)
    assert all(len(entries) for entries in split.values())
    for file_id, entries in split.items():
        for key in (*plain(entries)[0], *plain(entries)[1]):
            assert file_ids[shard_of(key, shards)] == file_id
    assert {k: v for entries in split.values() for k, v in plain(entries)[0].items()} == records
    assert {key for entries in split.values() for key in plain(entries)[1]} == deletes


@given(
    records=records, deletes=st.sets(st.text(max_size=8), max_size=8), shards=st.integers(1, 7), is_wide=st.booleans()
)
def test_many_entries_are_split_the_same_and_in_order(
    records: dict[str, bytes], deletes: set[str], shards: int, is_wide: bool
) -> None:
    file_ids = [f"shard-{i:04d}-0" for i in range(shards)]
    every = Entries.of(records, deletes)
    keys = every.keys.cast(pa.large_string()) if is_wide else every.keys
    split = split_in_order(Entries(keys, every.values.dictionary_encode(), every.deletes), file_ids)
    assert split is not None
    assert {id_: plain(each) for id_, each in split.items()} == {
        id_: plain(each) for id_, each in split_entries(every, file_ids).items()
    }
    for each in split.values():
        rows = [key.encode() for key in each.keys.to_pylist()]
        assert each.in_order
        assert each.keys.type == keys.type
        assert rows == sorted(rows)
        each.keys.validate(full=True)


def test_a_key_that_occurs_twice_is_told() -> None:
    values = pa.array([b"x", b"y", b"x"]).dictionary_encode()
    entries = Entries(pa.array(["a", "b", "a"]), values, pa.array([], pa.string()))
    assert split_in_order(entries, ["shard-0000-0", "shard-0001-0"]) is None


def test_what_is_hashed_may_be_a_part_of_the_key() -> None:
    file_ids = [f"shard-{i:04d}-0" for i in range(5)]
    entries = Entries.of({"a$1": b"", "a$2": b"", "b$1": b""}, ["a$3"])
    split = split_entries(entries, file_ids, hashed=(pa.array(["a$", "a$", "b$"]), pa.array(["a$"])))
    assert plain(split[file_ids[shard_of("a$", 5)]]) == ({"a$1": b"", "a$2": b""}, {"a$3"})


@given(parts=st.lists(records, min_size=1, max_size=4))
def test_concat(parts: list[dict[str, bytes]]) -> None:
    unique = [{f"{i}{key}": value for key, value in part.items()} for i, part in enumerate(parts)]
    mixed = [
        Entries(e.keys, e.values.dictionary_encode() if i % 2 else e.values, e.deletes)
        for i, e in enumerate(map(Entries.of, unique))
    ]
    assert plain(concat_entries(mixed))[0] == {key: value for part in unique for key, value in part.items()}


def test_concat_of_nothing_and_of_wide_texts() -> None:
    assert concat_texts([]).to_pylist() == []
    wide = concat_texts([pa.array(["a"]), pa.array(["b"], pa.large_string())])
    assert (wide.type, wide.to_pylist()) == (pa.large_string(), ["a", "b"])
    assert concat_values([pa.array([b"x"]), pa.array([b"y", b"y"]).dictionary_encode()]).to_pylist() == [
        b"x",
        b"y",
        b"y",
    ]
