from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.arrow import texts_between
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.java import shard_of
from lakebed.kernels.sharding import SplitKeys
from lakebed.kernels.sharding import split_keys as split_buffers

pytestmark = pytest.mark.usefixtures("either_implementation")


def split_keys(keys: pa.Array, numbers: np.ndarray, shards: int) -> tuple[pa.Array, SplitKeys] | None:
    split = split_buffers(*binary_buffers(keys), numbers, shards)
    return None if split is None else (texts_between(split.data, split.offsets, keys.type), split)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=9) | st.text("ab", max_size=20), unique=True, max_size=60), st.integers(1, 9))
def test_keys_are_where_readers_look_and_in_order(keys: list[str], shards: int) -> None:
    found = split_keys(pa.array(keys, pa.string()), np.arange(len(keys), dtype=np.int32), shards)
    assert found is not None
    taken, split = found
    assert [keys[number] for number in split.numbers] == taken.to_pylist()
    for shard in range(shards):
        here = taken.to_pylist()[split.bounds[shard] : split.bounds[shard + 1]]
        assert here == sorted((key for key in keys if shard_of(key, shards) == shard), key=str.encode)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_keys(kind: pa.DataType) -> None:
    keys = pa.array([f"key {number}" for number in range(3000)], kind).slice(7, 2500)
    found = split_keys(keys, np.arange(2500, dtype=np.int32), 10)
    assert found is not None
    taken, split = found
    taken.validate(full=True)
    assert taken.equals(keys.take(pa.array(split.numbers)))


def test_equal_keys_are_told() -> None:
    keys = pa.array([f"key {number % 2999}" for number in range(3000)])
    assert split_keys(keys, np.zeros(3000, np.int32), 10) is None
