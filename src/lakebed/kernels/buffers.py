"""Types of buffers, and the checks that a call must pass: the loops themselves check no bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]
Words = npt.NDArray[np.uint64]


class BadBufferError(ValueError):
    """An inconsistent buffer: offsets out of bounds, in the wrong order, or of the wrong number."""


def require(holds: bool | np.bool_, what: str) -> None:
    """Raise BadBufferError with the text `what` unless the condition holds."""
    if not holds:
        raise BadBufferError(what)


def check_offsets(data: Bytes, offsets: Int64s) -> int:
    """The number of byte strings in `data`; BadBufferError unless offsets ascend and end in it."""
    require(len(offsets) > 0, "there are no offsets, not even the first")
    require(offsets[0] >= 0, "an offset is negative")
    require(not (offsets[1:] < offsets[:-1]).any(), "offsets descend")
    require(offsets[-1] <= len(data), "an offset lies beyond the buffer")
    return len(offsets) - 1


def check_numbers(numbers: npt.NDArray[Any], count: int, what: str) -> None:
    """BadBufferError unless every number is at least 0 and less than `count`."""
    if len(numbers):
        require(numbers.min() >= 0 and numbers.max() < count, f"the number of a {what} is out of range")


def check_length(array: npt.NDArray[Any], length: int, what: str) -> None:
    """BadBufferError unless the array has that many elements."""
    require(len(array) == length, f"{what}: {len(array)} elements instead of {length}")
