"""Sorts byte strings, finds the least and greatest, and groups rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_numbers, check_offsets, require
from lakebed.kernels.choice import choose

_GROUP_BITS_MAX = 31


def sort_groups(data: Bytes, offsets: Int64s, groups: Int32s, group_count: int) -> Int64s:
    """Positions of the byte strings, sorted by group, then by their bytes.

    `groups` has a number below `group_count` per string, or is empty if there is one group. The sort is not stable.
    """
    count = check_offsets(data, offsets)
    require(0 < group_count < 1 << _GROUP_BITS_MAX, f"{group_count} groups")
    if len(groups) or group_count > 1:
        check_length(groups, count, "groups")
        check_numbers(groups, group_count, "group")
    order: Int64s = choose("ordering", count).sort_groups(data, offsets, groups, group_count)
    return order


def find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The positions of a least and of a greatest byte string; there must be at least one."""
    count = check_offsets(data, offsets)
    require(count > 0, "there are no byte strings")
    low, high = choose("ordering", count).find_bounds(data, offsets)
    return int(low), int(high)


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row numbers sorted by group, ascending in each, and `count` + 1 bounds of the groups among them."""
    check_numbers(groups, count, "group")
    order, bounds = choose("ordering", len(groups)).group_rows(groups, count)
    return order, bounds
