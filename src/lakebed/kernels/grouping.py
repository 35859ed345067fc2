"""Rows by the group that they belong to."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Int64s, check_numbers
from lakebed.kernels.choice import choose


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row numbers by group, ascending in each, and where each of `count` groups begins among them and the last ends."""
    check_numbers(groups, count, "group")
    order, bounds = choose("grouping", len(groups)).group_rows(groups, count)
    return order, bounds
