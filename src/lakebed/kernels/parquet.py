"""Pages of Parquet columns, encoded from rows that lie anywhere. This is compiled code alone.

There is no plain implementation of these pages: where compiled code does not serve, callers hand their rows to Arrow's
own writer (see `serves_pages` and docs/decisions/0021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakebed.kernels.buffers import Int64s, require
from lakebed.kernels.choice import find_compiled, serves_large

TASK_FIELDS, FOUND_FIELDS = 10, 4


def serves_pages(rows: int) -> bool:
    """Whether pages of so many rows are encoded here."""
    return serves_large(rows) and find_compiled("parquet") is not None


def encode_pages(tasks: Int64s, memory: Callable[[int], memoryview]) -> tuple[Int64s, memoryview]:
    """Encode the pages of `tasks`, a row of numbers each, into memory that is asked for; what was found of each page.

    The last number of each task is set to where its page begins in the memory. Addresses are those of arrays that the
    caller holds.
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
