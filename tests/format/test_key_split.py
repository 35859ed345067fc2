from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.java_hash import shard_of
from lakebed.format.key_split import split_keys


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=9) | st.text("ab", max_size=20), unique=True, max_size=60), st.integers(1, 9))
def test_keys_are_where_readers_look_and_in_order(keys: list[str], shards: int) -> None:
    split = split_keys(pa.array(keys, pa.string()), np.arange(len(keys), dtype=np.int32), shards)
    assert split is not None
    assert [keys[number] for number in split.numbers] == split.keys.to_pylist()
    for shard in range(shards):
        found = split.keys.to_pylist()[split.bounds[shard] : split.bounds[shard + 1]]
        assert found == sorted((key for key in keys if shard_of(key, shards) == shard), key=str.encode)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_keys(kind: pa.DataType) -> None:
    keys = pa.array([f"key {number}" for number in range(3000)], kind).slice(7, 2500)
    split = split_keys(keys, np.arange(2500, dtype=np.int32), 10)
    assert split is not None
    split.keys.validate(full=True)
    assert split.keys.equals(keys.take(pa.array(split.numbers)))


def test_equal_keys_are_told() -> None:
    keys = pa.array([f"key {number % 2999}" for number in range(3000)])
    assert split_keys(keys, np.zeros(3000, np.int32), 10) is None
