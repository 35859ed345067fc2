"""Bringing rows into the order of their groups in compiled code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Int32s, Int64s
from lakebed.kernels.compiled.jit import INT32S, OUT_INT64S, Entry, kernel


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row numbers by group, and where each group begins among them and the last ends."""
    order, bounds = np.empty(len(groups), np.int64), np.zeros(count + 1, np.int64)
    order_rows(groups.astype(np.int32, copy=False), bounds, order)
    return order, bounds


@kernel
def _order_rows(groups: Int32s, bounds: Int64s, order: Int64s) -> None:
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


order_rows = Entry(_order_rows, INT32S, OUT_INT64S, OUT_INT64S)
