"""Length-prefixed records in compiled code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.compiled.jit import BYTES, INT, INT64S, OUT_BYTES, OUT_INT64S, Entry, kernel
from lakebed.kernels.compiled.memory import copy


def walk_lengths(
    data: npt.NDArray[np.uint8], start: int, count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Where each record begins and ends; None if they do not fill `data` to its end."""
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    return (starts, ends) if fill_record_bounds(data, start, starts, ends) == len(data) else None


@kernel
def _walk_lengths(
    data: npt.NDArray[np.uint8], start: int, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> int:
    """Fill in the bounds of each length-prefixed record from `start` on; returns the end of the last.

    Returns -1 if a record exceeds `data`; then the bounds are not valid.
    """
    at = start
    for record in range(len(starts)):
        if len(data) - at < 4:
            return -1
        length = (
            np.int64(data[at]) << 24
            | np.int64(data[at + 1]) << 16
            | np.int64(data[at + 2]) << 8
            | np.int64(data[at + 3])
        )
        at += 4
        if length > len(data) - at:  # Also if the length is negative: it is read as unsigned.
            return -1
        starts[record] = at
        at += length
        ends[record] = at
    return at


@kernel
def _put_records(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: npt.NDArray[np.uint8], start: int
) -> None:
    """Write each record, data[offsets[i]:offsets[i + 1]], after its length into `out`, from `start` on.

    `out` must have room for all: nothing is checked.
    """
    source, target, at = data.ctypes.data, out.ctypes.data, start
    for record in range(len(offsets) - 1):
        length = offsets[record + 1] - offsets[record]
        for byte in range(4):
            out[at + byte] = np.uint8(length >> (24 - 8 * byte))
        copy(target + at + 4, source + offsets[record], length)
        at += 4 + length


fill_record_bounds = Entry(_walk_lengths, BYTES, INT, OUT_INT64S, OUT_INT64S)
put_records = Entry(_put_records, BYTES, INT64S, OUT_BYTES, INT)
