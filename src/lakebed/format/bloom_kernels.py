"""Bulk insertion into and probing of bloom filters. Loading this module compiles or loads machine code."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]

_M = np.uint32(0x5BD1E995)


@njit(cache=True, nogil=True, inline="always")
def _murmur2(data: _Bytes, start: int, end: int, seed: np.uint32) -> np.uint32:
    mixed: np.uint32 = seed ^ np.uint32(end - start)
    at = start
    while end - at >= 4:
        word = np.uint32(data[at]) | np.uint32(data[at + 1]) << 8 | np.uint32(data[at + 2]) << 16
        word = np.uint32((np.uint32(word) | np.uint32(data[at + 3]) << 24) * _M)
        word = np.uint32((word ^ word >> 24) * _M)
        mixed = np.uint32(np.uint32(mixed * _M) ^ word)
        at += 4
    if at < end:
        for place in range(end - at):
            mixed ^= np.uint32(np.int64(np.int8(data[end - 1 - place])) << 8 * place)
        mixed = np.uint32(mixed * _M)
    mixed = np.uint32((mixed ^ mixed >> 13) * _M)
    mixed ^= mixed >> 15
    return mixed


@njit(cache=True, nogil=True, inline="always")
def _bit(hashed: np.uint32, bit_count: int) -> int:
    bit: int = abs(np.int64(np.int32(hashed))) % bit_count
    return bit


@njit(cache=True, nogil=True)
def insert(data: _Bytes, offsets: _Longs, row_of: _Longs, rows: _Bytes, hash_count: int, bit_count: int) -> None:
    """Set the bits of each key in its row."""
    for key in range(len(offsets) - 1):
        hashed = np.uint32(0)
        for _ in range(hash_count):
            hashed = _murmur2(data, offsets[key], offsets[key + 1], hashed)
            bit = _bit(hashed, bit_count)
            rows[row_of[key], bit >> 3] |= np.uint8(1 << (bit & 7))


@njit(cache=True, nogil=True)
def probe(data: _Bytes, offsets: _Longs, rows: _Bytes, hash_count: int, bit_count: int) -> npt.NDArray[np.bool_]:
    """Whether all bits of a key are set in some row, per key."""
    found = np.zeros(len(offsets) - 1, dtype=np.bool_)
    alive = np.empty(len(rows), dtype=np.bool_)
    for key in range(len(found)):
        alive[:] = True
        left = len(rows)
        hashed = np.uint32(0)
        for _ in range(hash_count):
            hashed = _murmur2(data, offsets[key], offsets[key + 1], hashed)
            bit = _bit(hashed, bit_count)
            for row in range(len(rows)):
                if alive[row] and not rows[row, bit >> 3] >> (bit & 7) & 1:
                    alive[row] = False
                    left -= 1
            if left == 0:
                break
        found[key] = left > 0
    return found
