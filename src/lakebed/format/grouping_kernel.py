"""Bringing rows into the order of their groups in compiled code."""

from __future__ import annotations

from lakebed.format.hfile.native import Int32s, Int64s, kernel


@kernel
def order_rows(groups: Int32s, bounds: Int64s, order: Int64s) -> None:
    """Fill `order` with row numbers by group, ascending in each, and `bounds` with where each group begins and ends.

    `bounds` is zero, and longer by one than there are groups; every row is in one of them.
    """
    for row in range(len(groups)):
        bounds[groups[row] + 1] += 1
    for group in range(len(bounds) - 1):
        bounds[group + 1] += bounds[group]
    free = bounds.copy()
    for row in range(len(groups)):
        group = groups[row]
        order[free[group]] = row
        free[group] += 1
