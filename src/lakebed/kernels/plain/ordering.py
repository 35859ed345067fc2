"""Sorting byte strings, and finding the least and greatest, with Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.plain.arrays import binaries
from lakebed.kernels.plain.grouping import group_rows


def sort_groups(data: Bytes, offsets: Int64s, groups: Int32s, group_count: int) -> Int64s:
    """Positions in ascending order of groups, then of bytes."""
    order: Int64s = pc.array_sort_indices(binaries(data, offsets)).to_numpy().astype(np.int64)
    return order if not len(groups) else order[group_rows(groups[order], group_count)[0]]


def find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The positions of a least and of a greatest byte string."""
    strings = binaries(data, offsets)
    ends = pc.min_max(strings)
    return pc.index(strings, ends["min"]).as_py(), pc.index(strings, ends["max"]).as_py()
