"""Merging ranges and cutting them out again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lakebed.storage.ranged import cut_ranges, merge_ranges

RANGES = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 100)), max_size=30)


@given(RANGES, st.integers(0, 200))
def test_what_is_cut_out_of_merged_spans_is_what_was_asked(ranges: list[tuple[int, int]], gap: int) -> None:
    data = bytes(number % 251 for number in range(1000))
    spans = merge_ranges(ranges, gap=gap)
    assert all(later[0] - earlier[1] > gap for earlier, later in pairwise(spans))
    pieces = [data[start:end] for start, end in spans]
    expected = [data[offset : offset + length] for offset, length in ranges]
    assert cut_ranges(ranges, spans, pieces) == expected


def test_far_ranges_stay_apart() -> None:
    assert merge_ranges([(100, 5), (0, 10), (5, 20)], gap=10) == ((0, 25), (100, 105))
