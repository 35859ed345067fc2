"""Sorting byte strings in compiled code, seven bytes at a time.

A word holds seven bytes of a key and, lowest, how many bytes of the key were left (8: more than seven). So words
compare as the keys do up to there, and equal words with more to come are the only ties. Each round on a tied run
looks at the next seven bytes: long common prefixes cost their length, not its square.
"""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, Int64s, Words, kernel, load_word, swap_bytes

_STEP = 7
_MORE = np.uint64(8)
_LOW_BYTE = np.uint64(0xFF)
_INSERTION_MAX = 16


def sort_keys(data: Bytes, offsets: Int64s) -> Int64s:
    """Positions of the keys in ascending order."""
    depth = _common_prefix(data, offsets)
    words = np.empty(len(offsets) - 1, np.uint64)
    _fill_words(data, offsets, np.arange(len(words)), 0, len(words), depth, words)
    # Whole words sort several times faster than positions by their words, so positions take the words' low bits.
    low_bits = np.uint64((1 << (len(words) - 1).bit_length()) - 1)
    merged = np.sort(words & ~low_bits | np.arange(len(words), dtype=np.uint64))
    order: Int64s = (merged & low_bits).astype(np.int64)
    _sort_ties(data, offsets, words[order], order, low_bits, depth)
    return order


@kernel
def _common_prefix(data: Bytes, offsets: Int64s) -> int:
    """How many bytes all keys start with."""
    first = offsets[0]
    common = offsets[1] - first
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
    """Whether keys that have the word in common may differ behind it."""
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
def _sort_ties(data: Bytes, offsets: Int64s, words: Words, order: Int64s, low_bits: np.uint64, depth: int) -> None:
    """Sort each run of `order` whose words, sorted already but for `low_bits`, tie.

    Quicksort on words in three parts: below, above, and equal, whose words then become their next seven bytes. The
    ranges still to be sorted stand on a stack. They do not overlap and have two keys at least, so its size suffices.
    """
    stack, height = np.empty((len(order) // 2 + 3, 3), np.int64), np.int64(0)
    start = 0
    for at in range(1, len(order) + 1):
        if at == len(order) or words[at] ^ words[start] > low_bits:
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
    """Push each run of equal words with more to come, its words advanced; the stack's new height."""
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
    """Move keys by their words: those below a pivot first, those above it last; where the equal ones start and end."""
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
