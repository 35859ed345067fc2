from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.key_numbers import number_keys, place_keys
from lakebed.write.tag.files import find_places

pytestmark = pytest.mark.usefixtures("either_implementation")

KEYS = st.lists(st.text(max_size=3) | st.text(st.sampled_from("ab"), min_size=7, max_size=40), max_size=60)


def expected_places(stored: list[str], wanted: list[str]) -> list[int]:
    first: dict[str, int] = {}
    for place, key in enumerate(stored):
        first.setdefault(key, place)
    return [first.get(key, -1) if key not in wanted[:row] else -1 for row, key in enumerate(wanted)]


def place(stored: pa.Array, wanted: pa.Array) -> list[int]:
    return place_keys(*binary_buffers(stored), *binary_buffers(wanted)).tolist()


@given(KEYS, KEYS, st.integers(0, 5))
def test_places_of_keys(stored: list[str], wanted: list[str], cut: int) -> None:
    """Compiled or not, whole arrays or parts of them."""
    ours, theirs = pa.array(stored, pa.string())[cut:], pa.array(wanted, pa.string())[cut:]
    right = expected_places(stored[cut:], wanted[cut:])
    assert place(ours, theirs) == right
    assert find_places(ours, theirs).tolist() == right


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 11, 15, 16, 17, 31, 32, 33, 36, 100])
def test_places_of_many_keys(length: int) -> None:
    keys = [str(number).zfill(length)[-length:] for number in range(10_000)]
    wanted = [*keys[::7], "absent", *keys[::5]]
    assert find_places(pa.array(keys), pa.array(wanted)).tolist() == expected_places_of_many(keys, wanted)


def expected_places_of_many(stored: list[str], wanted: list[str]) -> list[int]:
    first = {key: place for place, key in reversed([*enumerate(stored)])}
    seen: set[str] = set()
    places = []
    for key in wanted:
        places.append(-1 if key in seen else first.get(key, -1))
        seen.add(key)
    return places


def test_a_stored_key_that_is_null_is_nobody_s() -> None:
    stored = pa.array([None, *(str(number) for number in range(5_000))])
    assert find_places(stored, pa.array(["0", "4999", "x"])).tolist() == [1, 5000, -1]


@given(KEYS, st.booleans())
def test_equal_keys_have_one_number(keys: list[str], by_path: bool) -> None:
    paths = np.array([len(key) % 2 for key in keys], np.int64) if by_path else np.empty(0, np.int64)
    pairs = [(key, len(key) % 2 if by_path else 0) for key in keys * 2]
    numbers: dict[tuple[str, int], int] = {}
    groups, count = number_keys(*binary_buffers(pa.array(keys * 2, pa.string())), np.tile(paths, 2))
    assert groups.tolist() == [numbers.setdefault(pair, len(numbers)) for pair in pairs]
    assert count == len(numbers)
