from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format import java as module
from lakebed.format.java import java_hash, shard_of, shards_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("ké5", 31 * (31 * 107 + 0xE9) + 53),
        ("😀", 31 * 0xD83D + 0xDE00),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_java_hash(text: str, value: int):
    assert java_hash(text) == value


@pytest.mark.parametrize(
    ("key", "groups"),
    [
        ("k000", {1: 0, 2: 1, 4: 1, 10: 1}),
        ("k001", {1: 0, 2: 0, 4: 2, 10: 2}),
        ("k003", {1: 0, 2: 0, 4: 0, 10: 4}),
        ("k008", {1: 0, 2: 1, 4: 1, 10: 9}),
        ("k009", {1: 0, 2: 0, 4: 2, 10: 0}),
        ("k010", {1: 0, 2: 0, 4: 0, 10: 2}),
        ("k011", {1: 0, 2: 1, 4: 1, 10: 3}),
        ("ké5", {10: 3}),
        ("k$1", {10: 2}),
        ("k\\2", {10: 9}),
        ("n0$", {10: 4}),
        ("\0$", {10: 6}),
        ("2.0$", {10: 0}),
        ("rider-J$c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", {10: 0}),
        ("rider-I$3eeb61f7-c2b0-4636-99bd-5d7a5a1d2c04", {10: 2}),
        ("polygenelubricants", {10: 8}),
    ],
)
def test_shards_of_keys_in_real_tables(key: str, groups: dict[int, int]):
    assert {count: shard_of(key, count) for count in groups} == groups


TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=30)
WORDS = st.lists(st.text(st.characters(codec="ascii"), min_size=1, max_size=20), max_size=30)


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(TEXTS, WORDS), st.integers(1, 2**31 - 1), st.sampled_from([pa.string(), pa.large_string(), pa.binary()])
)
def test_arrays_hash_as_single_keys(texts: list[str], shards: int, kind: pa.DataType):
    expected = [shard_of(text, shards) for text in texts]
    keys = pa.array(["x", *texts]).cast(kind)[1:]
    assert shards_of(keys, shards).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FEW_COUNT", -1)
        assert shards_of(keys, shards).tolist() == expected


def test_the_least_hash_in_bulk():
    keys = pa.array(["polygenelubricants"] * 1000)
    assert set(shards_of(keys, 10).tolist()) == {8}
