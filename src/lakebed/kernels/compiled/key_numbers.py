"""Finds equal keys in compiled code.

Inner functions take addresses: passing arrays costs reference counting, which takes longer than the work on a key.
"""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, Words
from lakebed.kernels.compiled.jit import BYTES, INT64S, OUT_INT32S, OUT_INT64S, Entry, kernel
from lakebed.kernels.compiled.memory import fold_product, load_byte, load_int, load_long

_SEED, _SALT = np.uint64(0xA0761D6478BD642F), np.uint64(0xE7037ED1A0B428DB)
_HALF = np.uint64(32)
_FLAGS_PER_SLOT = 4
_UPPER, _LOWER = np.uint64(0xFFFFFFFF00000000), np.uint64(0xFFFFFFFF)


def number_keys(data: Bytes, offsets: Int64s, paths: Int64s) -> tuple[Int64s, int]:
    """The number of each pair of key and path in order of appearance, and how many pairs there are."""
    groups = np.empty(len(offsets) - 1, np.int64)
    return groups, fill_numbers(data, offsets, paths, groups)


def number_few(data: Bytes, offsets: Int64s, few_max: int) -> tuple[Int32s, Int64s] | None:
    """The number of each text in order of appearance, and the first row of each; None if they are too many."""
    numbers, firsts = np.empty(len(offsets) - 1, np.int32), np.empty(few_max, np.int64)
    count = fill_few(data, offsets, numbers, firsts)
    return None if count < 0 else (numbers, firsts[:count])


def place_keys(data: Bytes, offsets: Int64s, wanted: Bytes, wanted_offsets: Int64s) -> Int64s:
    """The first row of each wanted key, -1 if there is none."""
    places = np.empty(len(wanted_offsets) - 1, np.int64)
    fill_places(data, offsets, wanted, wanted_offsets, places)
    return places


@kernel
def _number_keys(data: Bytes, offsets: Int64s, paths: Int64s, groups: Int64s) -> int:
    """Number the distinct pairs of key and path by first appearance; returns how many there are.

    Key `i` is `data[offsets[i]:offsets[i + 1]]`; `paths` has a number per key, or is empty. Fills `groups`,
    which is shorter than 2³² - 1.
    """
    table, keys = _new_table(len(groups)), data.ctypes.data
    last, found = len(table) - 1, 0
    for row in range(len(groups)):
        key, length = keys + offsets[row], offsets[row + 1] - offsets[row]
        path = paths[row] if len(paths) else 0
        value = _hash(key, length, path)
        slot = np.int64(value & np.uint64(last))
        while True:
            entry = table[slot]
            if entry == 0:
                table[slot] = (value & _UPPER) | np.uint64(row + 1)
                groups[row] = found
                found += 1
                break
            if (entry ^ value) & _UPPER == 0:
                other = np.int64(entry & _LOWER) - 1
                is_like = offsets[other + 1] - offsets[other] == length and (len(paths) == 0 or paths[other] == path)
                if is_like and _equal(key, keys + offsets[other], length):
                    groups[row] = groups[other]
                    break
            slot = (slot + 1) & last
    return found


@kernel
def _number_few(data: Bytes, offsets: Int64s, numbers: Int32s, firsts: Int64s) -> int:
    """Number the distinct texts by first appearance; returns how many there are, or -1 if `firsts` is too short.

    Text `i` is `data[offsets[i]:offsets[i + 1]]`. Fills `numbers`, and `firsts` with the first row that has each.
    """
    table, texts = _new_table(len(firsts)), data.ctypes.data
    last, found = len(table) - 1, 0
    for row in range(len(numbers)):
        text, length = texts + offsets[row], offsets[row + 1] - offsets[row]
        value = _hash(text, length, 0)
        slot = np.int64(value & np.uint64(last))
        while True:
            entry = table[slot]
            if entry == 0:
                if found == len(firsts):
                    return -1
                firsts[found] = row
                found += 1
                table[slot] = (value & _UPPER) | np.uint64(found)
                numbers[row] = found - 1
                break
            if (entry ^ value) & _UPPER == 0:
                number = np.int64(entry & _LOWER) - 1
                start, end = offsets[firsts[number]], offsets[firsts[number] + 1]
                if end - start == length and _equal(text, texts + start, length):
                    numbers[row] = number
                    break
            slot = (slot + 1) & last
    return found


@kernel
def _place_keys(data: Bytes, offsets: Int64s, wanted: Bytes, wanted_offsets: Int64s, places: Int64s) -> None:
    """Fill `places` with the first row of `data` that has each wanted key, or -1.

    If several wanted keys are equal, only the first of them gets a row. There are fewer than 2³² - 1 of them.
    """
    table, keys = _new_table(len(places)), wanted.ctypes.data
    last, stored = len(table) - 1, data.ctypes.data
    flags = np.zeros(
        _FLAGS_PER_SLOT * len(table), np.bool_
    )  # Set for hashes of wanted keys: most stored keys are not wanted.
    for row in range(len(places)):
        places[row] = -1
        value = _hash(keys + wanted_offsets[row], wanted_offsets[row + 1] - wanted_offsets[row], 0)
        flags[np.int64(value >> _HALF) & (len(flags) - 1)] = True
        slot = np.int64(value & np.uint64(last))
        while table[slot] != 0:
            slot = (slot + 1) & last
        table[slot] = (value & _UPPER) | np.uint64(row + 1)
    for row in range(len(offsets) - 1):
        key, length = stored + offsets[row], offsets[row + 1] - offsets[row]
        value = _hash(key, length, 0)
        if not flags[np.int64(value >> _HALF) & (len(flags) - 1)]:
            continue
        slot = np.int64(value & np.uint64(last))
        while table[slot] != 0:
            entry = table[slot]
            if (entry ^ value) & _UPPER == 0:
                other = np.int64(entry & _LOWER) - 1
                start, end = wanted_offsets[other], wanted_offsets[other + 1]
                if end - start == length and _equal(key, keys + start, length):
                    if places[other] < 0:
                        places[other] = row
                    break
            slot = (slot + 1) & last


@kernel
def _new_table(count: int) -> Words:
    """Slots for `count` keys, half of them free. A slot packs half of a hash and a row number: one load per probe."""
    slots = 16
    while slots < 2 * count:
        slots *= 2
    return np.zeros(slots, np.uint64)


@kernel
def _hash(key: int, length: int, seed: int) -> np.uint64:
    """A seeded hash of the bytes of a key by folded products, like wyhash."""
    value, at = np.uint64(seed) ^ _SEED, 0
    while at + 16 < length:
        first, second = np.uint64(load_long(key + at)), np.uint64(load_long(key + at + 8))
        value = fold_product(first ^ _SALT, second ^ value)
        at += 16
    first, second = np.uint64(0), np.uint64(0)
    if length >= 16:
        first, second = np.uint64(load_long(key + length - 16)), np.uint64(load_long(key + length - 8))
    elif length >= 8:
        first, second = np.uint64(load_long(key)), np.uint64(load_long(key + length - 8))
    elif length >= 4:
        first, second = np.uint64(load_int(key)), np.uint64(load_int(key + length - 4))
    else:
        for place in range(length):
            first = first << np.uint64(8) | np.uint64(load_byte(key + place))
    return fold_product(np.uint64(length) ^ _SALT, fold_product(first ^ _SALT, second ^ value))


@kernel
def _equal(key: int, other: int, length: int) -> bool:
    """Whether the bytes of two keys of one length are the same."""
    at = 0
    while at + 8 <= length:
        if load_long(key + at) != load_long(other + at):
            return False
        at += 8
    while at < length:
        if load_byte(key + at) != load_byte(other + at):
            return False
        at += 1
    return True


fill_numbers = Entry(_number_keys, BYTES, INT64S, INT64S, OUT_INT64S)
fill_few = Entry(_number_few, BYTES, INT64S, OUT_INT32S, OUT_INT64S)
fill_places = Entry(_place_keys, BYTES, INT64S, BYTES, INT64S, OUT_INT64S)
