"""`String.hashCode` of many strings, and keys sorted by shard, in compiled code.

Inner functions take addresses, because passing arrays costs reference counting.
"""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.compiled.jit import BYTES, INT, INT32S, INT64S, OUT_BYTES, OUT_INT32S, OUT_INT64S, Entry, kernel
from lakebed.kernels.compiled.memory import copy_bytes, load_byte, load_int, load_long, prefetch
from lakebed.kernels.compiled.ordering import compare_keys, merge_words, sort_groups, sort_ties

_BEYOND_ASCII = np.uint64(0x8080808080808080)
_ONES, _PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_BYTE, _PAIR, _HALF = np.uint64(8), np.uint64(16), np.uint64(32)
_31, _31_TWICE = np.uint64(31), np.uint64(31**2)
_31_FOUR_TIMES, _31_EIGHT_TIMES = np.uint32(31**4), np.uint32(31**8 & 0xFFFFFFFF)


@kernel
def _weighted(word: np.uint64) -> np.uint32:
    """The hash of eight ASCII characters in a word, the first one lowest.

    Neighbours are combined in parallel: eight characters, four pairs, two fours.
    """
    pairs = (word & _ONES) * _31 + (word >> _BYTE & _ONES)
    fours = (pairs & _PAIRS) * _31_TWICE + (pairs >> _PAIR & _PAIRS)
    return np.uint32(fours) * _31_FOUR_TIMES + np.uint32(fours >> _HALF)


@kernel
def hash_text(at: int, end: int) -> np.uint32:
    """The hash of the UTF-8 string between two addresses. A code point beyond 16 bits is two units in UTF-16."""
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
    """Fill `found` with the shard of each string."""
    first = data.ctypes.data
    for text in range(len(found)):
        value = np.int32(hash_text(first + offsets[text], first + offsets[text + 1]))
        # The absolute value of -2**31 is 2**31.
        found[text] = np.int32(np.uint32(abs(np.int64(value))) % np.uint32(shards))


find_shards = Entry(fill_shards, BYTES, INT64S, INT, OUT_INT32S)


_AHEAD = 32
"""Prefetch distance in keys, which are copied in random order."""
_SORTING = (merge_words, sort_ties)
"""Entries that `sort_groups` calls: named here so that they are loaded together with this module."""


def split_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, shards: int
) -> tuple[Bytes, Int64s, Int32s, Int64s] | None:
    """The keys sorted by shard, their offsets, their numbers, and the bounds of shards; None if a key occurs twice."""
    count = len(numbers)
    shard_of, bounds = np.empty(count, np.int32), np.zeros(shards + 1, np.int64)
    fill_shard_bounds(data, offsets, shard_of, bounds)
    order = sort_groups(data, offsets, shard_of, shards)
    taken, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(count + 1, np.int64)
    taken_numbers = np.empty(count, np.int32)
    are_distinct = take_keys(data, offsets, numbers, order, taken, ends, taken_numbers)
    return (taken, ends, taken_numbers, bounds) if are_distinct else None


@kernel
def _fill_shard_bounds(data: Bytes, offsets: Int64s, shard_of: Int32s, bounds: Int64s) -> None:
    """Fill `shard_of`, and `bounds`, which is all zeros, with the bounds of the keys of each shard."""
    shards = len(bounds) - 1
    fill_shards(data, offsets, shards, shard_of)
    for key in range(len(shard_of)):
        bounds[shard_of[key] + 1] += 1
    for shard in range(shards):
        bounds[shard + 1] += bounds[shard]


@kernel
def _take_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, order: Int64s, taken: Bytes, ends: Int64s, taken_numbers: Int32s
) -> bool:
    """Copy keys and numbers in `order`, where equal keys are neighbours; False if a key occurs twice.

    `taken` has room for all keys; `ends` gets their offsets in it.
    """
    at = np.int64(0)
    ends[0] = 0
    for place in range(len(order)):
        key = order[place]
        if place + _AHEAD < len(order):
            prefetch(data, offsets[order[place + _AHEAD]])
        if place > 0 and compare_keys(data, offsets, order[place - 1], key, 0) == 0:
            return False
        length = offsets[key + 1] - offsets[key]
        copy_bytes(taken, at, data, offsets[key], length)
        at += length
        ends[place + 1], taken_numbers[place] = at, numbers[key]
    return True


fill_shard_bounds = Entry(_fill_shard_bounds, BYTES, INT64S, OUT_INT32S, OUT_INT64S)
take_keys = Entry(_take_keys, BYTES, INT64S, INT32S, INT64S, OUT_BYTES, OUT_INT64S, OUT_INT32S)
