from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format.hfile import key_order
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.ordering import sort_groups

pytestmark = pytest.mark.usefixtures("either_implementation")


def sort_keys(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    return sort_groups(data, offsets, np.empty(0, np.int32), 1)


def sorted_by_kernel(keys: list[bytes]) -> list[bytes]:
    return [keys[at] for at in sort_keys(*binary_buffers(pa.array(keys, pa.binary())))]


PARTS = st.sampled_from([b"", b"\0", b"a", b"common prefix of some length/", b"\xff" * 9, b"\0" * 8])
KEYS = st.lists(st.binary(max_size=20) | st.lists(PARTS, max_size=6).map(b"".join), min_size=1, max_size=80)


@settings(max_examples=100, deadline=None)
@given(KEYS)
def test_kernel_sorts_as_python_does(keys: list[bytes]):
    assert sorted_by_kernel(keys) == sorted(keys)


@pytest.mark.parametrize("count", [10, 3000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_key_order(count: int, kind: pa.DataType):
    rng = np.random.default_rng(count)
    keys = pa.array([f"é/{number}" for number in rng.integers(0, 10**9, count)]).cast(kind)
    rows = keys.cast(pa.binary()).to_pylist()
    assert [rows[at] for at in key_order(keys)] == sorted(rows)


def test_long_common_prefixes_do_not_go_quadratic():
    """Every key ties on its first kilobyte, in groups that tie on more: insertion would take minutes."""
    rng = np.random.default_rng(4)
    groups = [b"x" * 1000 + rng.bytes(3) * 50 for _ in range(3)]
    keys = [groups[number % 3] + b"%020d" % number for number in rng.permutation(30_000)]
    assert sorted_by_kernel(keys) == sorted(keys)


@pytest.mark.parametrize("spread", [1, 30, 5000])
def test_keys_that_differ_where_words_hold_positions(spread: int):
    """With many keys the last of a word's seven bytes give way to the key's position: runs of them tie at first."""
    rng = np.random.default_rng(spread)
    heads = rng.integers(0, spread, 70_000)
    tails = rng.integers(0, 2**24, 70_000)
    keys = [b"%04d" % head + int(tail).to_bytes(3, "big") for head, tail in zip(heads, tails, strict=True)]
    assert sorted_by_kernel(keys) == sorted(keys)


def test_empty_keys_only():
    assert sort_keys(*binary_buffers(pa.array([b""] * 3000, pa.binary()))).tolist() != []


@settings(max_examples=100, deadline=None)
@given(KEYS, st.integers(1, 200), st.randoms(use_true_random=False))
def test_keys_of_groups_are_sorted_in_each(keys: list[bytes], count: int, random: Random):
    groups = [random.randrange(count) for _ in keys]
    order = sort_groups(*binary_buffers(pa.array(keys, pa.binary())), np.array(groups, np.int32), count)
    assert [(groups[at], keys[at]) for at in order] == sorted(zip(groups, keys, strict=True))


def test_many_groups_leave_little_of_a_word():
    rng = np.random.default_rng(6)
    keys = [b"same/" + rng.bytes(2) + b"/%04d" % number for number in rng.integers(0, 9999, 40_000)]
    groups = rng.integers(0, 9000, len(keys)).astype(np.int32)
    order = sort_groups(*binary_buffers(pa.array(keys, pa.binary())), groups, 9000)
    assert [(groups[at], keys[at]) for at in order] == sorted(zip(groups.tolist(), keys, strict=True))
