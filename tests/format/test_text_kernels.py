"""Texts picked from two arrays in compiled code are those that Arrow picks."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.hfile.order import binary_buffers
from lakebed.format.text_kernels import find_bounds, pick_offsets, pick_texts

TEXTS = st.lists(st.text(max_size=12), max_size=30)


@given(first=TEXTS, other=TEXTS, data=st.data())
def test_picked_texts_are_those_of_arrow(first: list[str], other: list[str], data: st.DataObject) -> None:
    every = [*range(len(first) + len(other))]
    chosen = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=60) if every else st.just([]))
    sources = np.array(data.draw(st.sampled_from([chosen, sorted(chosen), every])), np.int64)
    arrays = pa.array(first, pa.string()), pa.array(other, pa.string())
    (left, left_offsets), (right, right_offsets) = map(binary_buffers, arrays)
    picked = pick_offsets(left_offsets, right_offsets, sources)
    target = np.empty(picked[-1], np.uint8)
    pick_texts(left, left_offsets, right, right_offsets, sources, picked, target)
    texts = [target[start:end].tobytes().decode() for start, end in itertools.pairwise(picked)]
    assert texts == pa.concat_arrays(arrays).take(pa.array(sources)).to_pylist()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=40))
def test_bounds_are_least_and_greatest_by_bytes(texts: list[str]) -> None:
    low, high = find_bounds(*binary_buffers(pa.array(texts, pa.string())))
    assert (texts[low], texts[high]) == (min(texts, key=str.encode), max(texts, key=str.encode))
