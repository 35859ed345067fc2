"""Bringing rows into the order of their groups by sorting group numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Int64s

_SHORT_MAX = 2**15 - 1


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row numbers by group, and where each group begins among them and the last ends."""
    bounds = np.zeros(count + 1, np.int64)
    # Short numbers are sorted five times as fast.
    order = np.argsort(groups.astype(np.int16) if count <= _SHORT_MAX else groups, kind="stable")
    np.cumsum(np.bincount(groups, minlength=count), out=bounds[1:])
    return order, bounds
