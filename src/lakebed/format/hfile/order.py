"""The order of keys in an HFile: ascending by their bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray
from lakebed.kernels.buffers import Bytes, Int64s
from lakebed.kernels.ordering import sort_groups

SMALL_COUNT = 2048
"""Up to so many records a file is written byte for byte as Apache Hudi does."""


def key_order(keys: ArrowArray) -> npt.NDArray[np.int64]:
    """The positions of `keys` (strings or binaries, without nulls) in ascending order of their bytes."""
    if len(keys) <= SMALL_COUNT:
        rows = row_bytes(keys)
        return np.array(sorted(range(len(rows)), key=rows.__getitem__), np.int64)
    return sort_groups(*binary_buffers(keys), np.empty(0, np.int32), 1)


def row_bytes(keys: ArrowArray) -> list[bytes]:
    """A few keys or values as Python bytes."""
    assert keys.null_count == 0
    return [item.encode() if isinstance(item, str) else item for item in keys.to_pylist()]


def binary_buffers(array: ArrowArray) -> tuple[Bytes, Int64s]:
    """The bytes of all strings or binaries of an array, and the offsets (one more than elements) into them."""
    assert array.null_count == 0
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    every = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content, every[array.offset : array.offset + len(array) + 1].astype(np.int64)
