"""`String.hashCode` of many strings in compiled code.

Functions that look at a text are told where it lies in memory: those that are handed arrays count references to them.
"""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.compiled.jit import BYTES, INT, INT64S, OUT_INT32S, Entry, kernel
from lakebed.kernels.compiled.memory import load_byte, load_int, load_long

_BEYOND_ASCII = np.uint64(0x8080808080808080)
_ONES, _PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BYTE, _PAIR, _HALF = np.uint64(8), np.uint64(16), np.uint64(32)
_31, _31_TWICE = np.uint64(31), np.uint64(31**2)
_31_FOUR_TIMES, _31_EIGHT_TIMES = np.uint32(31**4), np.uint32(31**8 & 0xFFFFFFFF)


@kernel
def _weighted(word: np.uint64) -> np.uint32:
    """What eight units below 128, the first one lowest, add to the hash of the text that ends with them.

    Neighbours become one, side by side: eight units, four pairs, two fours.
    """
    pairs = (word & _ONES) * _31 + (word >> _BYTE & _ONES)
    fours = (pairs & _PAIRS) * _31_TWICE + (pairs >> _PAIR & _PAIRS)
    return np.uint32(fours) * _31_FOUR_TIMES + np.uint32(fours >> _HALF)


@kernel
def hash_text(at: int, end: int) -> np.uint32:
    """The hash of a string in UTF-8 between two addresses.

    A code point beyond 16 bits is two units in UTF-16.
    """
    value = np.uint32(0)
    while at < end:
        if end - at >= 8:
            word = np.uint64(load_long(at))
            if word & _BEYOND_ASCII == 0:
                value = _31_EIGHT_TIMES * value + _weighted(word)
                at += 8
                continue
        elif end - at >= 4:
            word = np.uint64(np.uint32(load_int(at)))
            if word & _BEYOND_ASCII == 0:
                value = _31_FOUR_TIMES * value + _weighted(word << _HALF)
                at += 4
                continue
        lead = np.int64(load_byte(at))
        if lead < 0x80:
            value = np.uint32(31) * value + np.uint32(lead)
            at += 1
            continue
        width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        point = lead & (0x7F >> width)
        for follow in range(at + 1, min(at + width, end)):
            point = point << 6 | np.int64(load_byte(follow)) & 0x3F
        at += width
        if width == 4:
            value = np.uint32(31) * value + np.uint32(0xD800 + ((point - 0x10000) >> 10))
            point = 0xDC00 + (point & 0x3FF)
        value = np.uint32(31) * value + np.uint32(point)
    return value


@kernel
def fill_shards(data: Bytes, offsets: Int64s, shards: int, found: Int32s) -> None:
    """Fill `found` with the shard of each of the strings that lie in `data` between `offsets`."""
    first = data.ctypes.data
    for text in range(len(found)):
        value = np.int32(hash_text(first + offsets[text], first + offsets[text + 1]))
        # The absolute value of -2**31 is 2**31.
        found[text] = np.int32(np.uint32(abs(np.int64(value))) % np.uint32(shards))


find_shards = Entry(fill_shards, BYTES, INT64S, INT, OUT_INT32S)
