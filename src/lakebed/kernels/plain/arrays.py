"""Byte strings between offsets as Arrow arrays, and back; nothing is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.kernels.buffers import Bytes, Int64s


def binaries(data: Bytes, offsets: Int64s) -> Any:
    """The Arrow array of the byte strings."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def buffers(array: Any) -> tuple[Bytes, Int64s]:
    """The bytes of an array of large binaries that begins at its first element, and the offsets into them."""
    assert array.offset == 0
    _, offsets, data = array.buffers()
    bounds = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)[: len(array) + 1]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[: bounds[-1]], bounds
