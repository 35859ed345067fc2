"""Groups rows and sorts byte strings in compiled code, seven bytes at a time.

A word holds seven bytes of a key and, lowest, how many bytes of the key were left (8: more than seven). So words
compare as the keys do up to there, and equal words with more bytes to come are the only ties. Each round on a run of
ties looks at the next seven bytes: long common prefixes cost their length, not its square.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, Words
from lakebed.kernels.compiled.jit import BYTES, INT, INT32S, INT64S, OUT_INT64S, OUT_WORDS, WORD, WORDS, Entry, kernel
from lakebed.kernels.compiled.memory import load_word, swap_bytes


def group_rows(groups: npt.NDArray[np.integer], count: int) -> tuple[Int64s, Int64s]:
    """Row numbers by group, and where each group begins among them and the last ends."""
    order, bounds = np.empty(len(groups), np.int64), np.zeros(count + 1, np.int64)
    fill_order(groups.astype(np.int32, copy=False), bounds, order)
    return order, bounds


@kernel
def _fill_order(groups: Int32s, bounds: Int64s, order: Int64s) -> None:
    """Fill `order` with row numbers sorted by group, and `bounds` with the bounds of the groups.

    `bounds` is all zeros, with one element more than there are groups; the numbers of groups are in range.
    """
    for row in range(len(groups)):
        bounds[groups[row] + 1] += 1
    for group in range(len(bounds) - 1):
        bounds[group + 1] += bounds[group]
    free = bounds.copy()
    for row in range(len(groups)):
        group = groups[row]
        order[free[group]] = row
        free[group] += 1


fill_order = Entry(_fill_order, INT32S, OUT_INT64S, OUT_INT64S)


_STEP = 7
_MORE = np.uint64(8)
_LOW_BYTE = np.uint64(0xFF)
_INSERTION_MAX = 16


def sort_groups(data: Bytes, offsets: Int64s, groups: Int32s, group_count: int) -> Int64s:
    """Positions of the keys, sorted by group, then by key.

    `groups` has a number below `group_count` per key, or is empty if there is one group.
    """
    count = len(offsets) - 1
    words, merged, order = np.empty(count, np.uint64), np.empty(count, np.uint64), np.empty(count, np.int64)
    # Sorting words is several times faster than sorting positions by words, so the low bits hold the position.
    low_bits, group_bits = np.uint64((1 << max(count - 1, 0).bit_length()) - 1), (group_count - 1).bit_length()
    depth = merge_words(data, offsets, groups, group_bits, low_bits, words, merged)
    merged.sort()
    sort_ties(data, offsets, words, merged, order, low_bits, depth)
    return order


def find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The positions of a least and of a greatest byte string."""
    low, high = bounds_of(data, offsets)
    return low, high


@kernel
def _merge_words(
    data: Bytes, offsets: Int64s, groups: Int32s, group_bits: int, low_bits: np.uint64, words: Words, merged: Words
) -> int:
    """Fill `words`, and `merged` with group, the bits of the word that fit, and position; returns the words' depth."""
    depth = _common_prefix(data, offsets)
    for key in range(len(words)):
        words[key] = key_word(data, offsets[key] + depth, offsets[key + 1])
        merged[key] = words[key] >> np.uint64(group_bits) & ~low_bits | np.uint64(key)
        if group_bits > 0:
            merged[key] |= np.uint64(groups[key]) << np.uint64(64 - group_bits)
    return depth


@kernel
def _common_prefix(data: Bytes, offsets: Int64s) -> int:
    """How many bytes all keys start with."""
    first = offsets[0]
    common = offsets[1] - first if len(offsets) > 1 else 0
    for key in range(1, len(offsets) - 1):
        start = offsets[key]
        common = min(common, offsets[key + 1] - start)
        at = 0
        while at + 8 <= common and load_word(data, first + at) == load_word(data, start + at):
            at += 8
        while at < common and data[first + at] == data[start + at]:
            at += 1
        common = at
    return common


@kernel
def key_word(data: Bytes, start: int, end: int) -> np.uint64:
    """The word of the bytes of a key from `start` on."""
    left = end - start
    if left > _STEP:
        return swap_bytes(load_word(data, start)) & ~_LOW_BYTE | _MORE
    word = np.uint64(left)
    for at in range(left):
        word |= np.uint64(data[start + at]) << np.uint64(56 - 8 * at)
    return word


@kernel
def has_more(word: np.uint64) -> bool:
    """Whether keys with this word may differ after it."""
    return word & _LOW_BYTE == _MORE


@kernel
def _fill_words(data: Bytes, offsets: Int64s, order: Int64s, low: int, high: int, depth: int, words: Words) -> None:
    for at in range(low, high):
        key = order[at]
        words[at] = key_word(data, offsets[key] + depth, offsets[key + 1])


@kernel
def compare_keys(data: Bytes, offsets: Int64s, left: int, right: int, depth: int) -> int:
    """Negative, zero or positive as key `left` is below, equal to or above key `right`; both agree up to `depth`."""
    at, other = offsets[left] + depth, offsets[right] + depth
    end, other_end = offsets[left + 1], offsets[right + 1]
    while at + 8 <= end and other + 8 <= other_end:
        word, other_word = load_word(data, at), load_word(data, other)
        if word != other_word:
            return -1 if swap_bytes(word) < swap_bytes(other_word) else 1
        at += 8
        other += 8
    while at < end and other < other_end:
        if data[at] != data[other]:
            return -1 if data[at] < data[other] else 1
        at += 1
        other += 1
    return (end - at) - (other_end - other)


@kernel
def _sort_ties(
    data: Bytes, offsets: Int64s, words_of: Words, merged: Words, order: Int64s, low_bits: np.uint64, depth: int
) -> None:
    """Fill `order` with the positions in the `low_bits` of `merged`, and sort each run that is equal in the other bits.

    `words_of` has the word of each key. Three-way quicksort on words; keys with equal words continue with their next
    seven bytes. Ranges still to be sorted are on a stack. They are disjoint and have at least two keys each, so its
    size suffices.
    """
    stack, height = np.empty((len(order) // 2 + 3, 3), np.int64), np.int64(0)
    words = np.empty_like(words_of)
    for at in range(len(order)):
        order[at] = np.int64(merged[at] & low_bits)
        words[at] = words_of[order[at]]
    start = 0
    for at in range(1, len(order) + 1):
        if at == len(order) or merged[at] ^ merged[start] > low_bits:
            if at - start > 1:
                stack[height, 0], stack[height, 1], stack[height, 2] = start, at, depth
                height += 1
            start = at
    while height > 0:
        height -= 1
        low, high, depth = stack[height, 0], stack[height, 1], stack[height, 2]
        if high - low <= _INSERTION_MAX:
            _insertion_sort(data, offsets, words, order, low, high, depth)
            continue
        below, above = _partition(words, order, low, high)
        for start, end in ((low, below), (above, high)):
            if end - start > 1:
                stack[height, 0], stack[height, 1], stack[height, 2] = start, end, depth
                height += 1
        height = _push_ties(data, offsets, words, order, below, above, depth, stack, height)


@kernel
def _push_ties(
    data: Bytes,
    offsets: Int64s,
    words: Words,
    order: Int64s,
    low: int,
    high: int,
    depth: int,
    stack: Int64s,
    height: int,
) -> int:
    """Push each run of equal words with more bytes to come, with its next words; returns the stack's new height."""
    start = low
    for at in range(low + 1, high + 1):
        if at == high or words[at] != words[start]:
            if at - start > 1 and words[start] & _LOW_BYTE == _MORE:
                _fill_words(data, offsets, order, start, at, depth + _STEP, words)
                stack[height, 0], stack[height, 1], stack[height, 2] = start, at, depth + _STEP
                height += 1
            start = at
    return height


@kernel
def _partition(words: Words, order: Int64s, low: int, high: int) -> tuple[int, int]:
    """Partition keys by their words around a pivot; returns where the keys equal to it start and end."""
    first, middle, last = words[low], words[(low + high) // 2], words[high - 1]
    pivot = max(min(first, middle), min(max(first, middle), last))
    at, below, above = low, low, high
    while at < above:
        word = words[at]
        if word < pivot:
            words[at], words[below] = words[below], word
            order[at], order[below] = order[below], order[at]
            below += 1
            at += 1
        elif word > pivot:
            above -= 1
            words[at], words[above] = words[above], word
            order[at], order[above] = order[above], order[at]
        else:
            at += 1
    return below, above


@kernel
def _insertion_sort(data: Bytes, offsets: Int64s, words: Words, order: Int64s, low: int, high: int, depth: int) -> None:
    for at in range(low + 1, high):
        key, word, hole = order[at], words[at], at
        while hole > low and (
            words[hole - 1] > word
            or (words[hole - 1] == word and compare_keys(data, offsets, order[hole - 1], key, depth) > 0)
        ):
            order[hole], words[hole] = order[hole - 1], words[hole - 1]
            hole -= 1
        order[hole], words[hole] = key, word


@kernel
def _find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The positions of the least and the greatest byte string; there must be at least one."""
    low, high = 0, 0
    least = greatest = key_word(data, offsets[0], offsets[1])
    for text in range(1, len(offsets) - 1):
        word = key_word(data, offsets[text], offsets[text + 1])
        may_differ = has_more(word)
        if word < least or (word == least and may_differ and compare_keys(data, offsets, text, low, 0) < 0):
            low, least = text, word
        elif word > greatest or (word == greatest and may_differ and compare_keys(data, offsets, text, high, 0) > 0):
            high, greatest = text, word
    return low, high


merge_words = Entry(_merge_words, BYTES, INT64S, INT32S, INT, WORD, OUT_WORDS, OUT_WORDS)
sort_ties = Entry(_sort_ties, BYTES, INT64S, WORDS, WORDS, OUT_INT64S, WORD, INT)
bounds_of = Entry(_find_bounds, BYTES, INT64S)
