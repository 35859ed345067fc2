"""Rows by the group that they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_SHORT_MAX = 2**15 - 1


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers by group, ascending in each, and where each of `count` groups begins among them and the last ends."""
    # Short numbers are sorted five times as fast.
    order = np.argsort(groups.astype(np.int16) if count <= _SHORT_MAX else groups, kind="stable")
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=count), out=bounds[1:])
    return order, bounds
