"""Numbering equal keys in compiled code."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, Int64s, kernel, load_word

_MIX = np.uint64(0xC6A4A7935BD1E995)
_SHIFT = np.uint64(47)
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


@kernel
def number_keys(data: Bytes, offsets: Int64s, paths: Int64s, groups: Int64s) -> int:
    """Number the distinct pairs of key and path in order of appearance, and say how many there are.

    Key `i` is `data[offsets[i]:offsets[i + 1]]`; `paths` has a number per key, or is empty. Fills `groups`,
    which is shorter than 2³² - 1.
    """
    count = len(groups)
    slots = 16
    while slots < 2 * count:
        slots *= 2
    table = np.zeros(slots, np.uint64)  # Half of the hash above the number of a row, from 1: one load per look.
    found = 0
    for row in range(count):
        start, end = offsets[row], offsets[row + 1]
        path = paths[row] if len(paths) else 0
        value = _hash(data, start, end, path)
        slot = np.int64(value & np.uint64(slots - 1))
        while True:
            entry = table[slot]
            if entry == 0:
                table[slot] = (value & _UPPER) | np.uint64(row + 1)
                groups[row] = found
                found += 1
                break
            other = np.int64(entry & _LOWER) - 1
            is_like = (entry ^ value) & _UPPER == 0 and (len(paths) == 0 or paths[other] == path)
            if is_like and _equal(data, start, end, offsets[other], offsets[other + 1]):
                groups[row] = groups[other]
                break
            slot = (slot + 1) & (slots - 1)
    return found


@kernel
def _hash(data: Bytes, start: int, end: int, seed: int) -> np.uint64:
    """MurmurHash64A."""
    value = np.uint64(seed) ^ (np.uint64(end - start) * _MIX)
    at = start
    while at + 8 <= end:
        word = load_word(data, at) * _MIX
        value = (value ^ ((word ^ (word >> _SHIFT)) * _MIX)) * _MIX
        at += 8
    if at < end:
        word = np.uint64(0)
        for place in range(end - 1, at - 1, -1):
            word = (word << np.uint64(8)) | np.uint64(data[place])
        value = (value ^ word) * _MIX
    value = (value ^ (value >> _SHIFT)) * _MIX
    return value ^ (value >> _SHIFT)


@kernel
def _equal(data: Bytes, start: int, end: int, other: int, other_end: int) -> bool:
    if end - start != other_end - other:
        return False
    at = start
    while at + 8 <= end:
        if load_word(data, at) != load_word(data, other + at - start):
            return False
        at += 8
    while at < end:
        if data[at] != data[other + at - start]:
            return False
        at += 1
    return True
