"""Encodes pages of Parquet columns from rows at any position in memory. There is only compiled code.

If `serves_pages` says that compiled code does not run, callers pass their rows to Arrow's own writer instead (see
docs/decisions/0021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakebed.kernels.buffers import Int64s, require
from lakebed.kernels.choice import find_compiled, uses_compiled

TASK_FIELDS, FOUND_FIELDS = 10, 4


def serves_pages(rows: int) -> bool:
    """Whether pages of that many rows are encoded here."""
    return uses_compiled(rows) and find_compiled("parquet") is not None


def encode_pages(tasks: Int64s, memory: Callable[[int], memoryview]) -> tuple[Int64s, memoryview]:
    """Encode the pages of `tasks`, one row of numbers per page; gives facts of each page, and the memory of all pages.

    `memory` allocates the given number of bytes. The last number of each task is set to the start of its page there.
    The caller keeps the arrays alive to which the addresses in the tasks point.
    """
    require(tasks.ndim == 2 and tasks.shape[1] == TASK_FIELDS, "tasks are not whole")
    module = find_compiled("parquet")
    assert module is not None, "see `serves_pages`"
    sizes = np.empty(len(tasks), np.int64)
    module.measure_pages(tasks.reshape(-1), sizes)
    ends = np.cumsum(sizes)
    tasks[:, -1] = ends - sizes
    room = memory(int(ends[-1]) if len(ends) else 0)
    found = np.empty((len(tasks), FOUND_FIELDS), np.int64)
    address = int(np.frombuffer(room, np.uint8).ctypes.data) if len(room) else 0
    module.encode_pages(tasks.reshape(-1), address, found.reshape(-1))
    return found, room
