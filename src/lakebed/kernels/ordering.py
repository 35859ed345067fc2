"""The order of byte strings."""

from __future__ import annotations

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_numbers, check_offsets, require
from lakebed.kernels.choice import choose

_GROUP_BITS_MAX = 31


def sort_groups(data: Bytes, offsets: Int64s, groups: Int32s, group_count: int) -> Int64s:
    """Positions of the byte strings in ascending order of their groups, then of their bytes.

    `groups` has a number below `group_count` per string, or is empty: all are of one group. The order of equal ones is
    not defined.
    """
    count = check_offsets(data, offsets)
    require(0 < group_count < 1 << _GROUP_BITS_MAX, f"{group_count} groups")
    if len(groups) or group_count > 1:
        check_length(groups, count, "groups")
        check_numbers(groups, group_count, "group")
    order: Int64s = choose("ordering", count).sort_groups(data, offsets, groups, group_count)
    return order


def find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The positions of a least and of a greatest byte string, of one or more."""
    count = check_offsets(data, offsets)
    require(count > 0, "nothing has no bounds")
    low, high = choose("ordering", count).find_bounds(data, offsets)
    return int(low), int(high)
