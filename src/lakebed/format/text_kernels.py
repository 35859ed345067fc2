"""Many texts at once in compiled code: least and greatest, and texts picked from two arrays."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, Int64s, copy_bytes, kernel
from lakebed.format.hfile.order_kernels import compare_keys, has_more, key_word


@kernel
def find_bounds(data: Bytes, offsets: Int64s) -> tuple[int, int]:
    """The numbers of the least and the greatest text, by their bytes, of one or more between `offsets` in `data`."""
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


@kernel
def pick_offsets(offsets: Int64s, other_offsets: Int64s, sources: Int64s) -> Int64s:
    """The offsets of texts that are picked: number s is that of the first array, or of the other once those end."""
    count, at = len(offsets) - 1, 0
    picked = np.empty(len(sources) + 1, np.int64)
    picked[0] = 0
    for number in range(len(sources)):
        source = sources[number]
        if source < count:
            at += offsets[source + 1] - offsets[source]
        else:
            at += other_offsets[source - count + 1] - other_offsets[source - count]
        picked[number + 1] = at
    return picked


@kernel
def pick_texts(
    data: Bytes, offsets: Int64s, other: Bytes, other_offsets: Int64s, sources: Int64s, picked: Int64s, target: Bytes
) -> None:
    """Puts the texts where `pick_offsets` has them. What stands together is copied together."""
    count, first = len(offsets) - 1, 0
    while first < len(sources):
        source, end = sources[first], first + 1
        while end < len(sources) and sources[end] == sources[end - 1] + 1 and sources[end] != count:
            end += 1
        length = picked[end] - picked[first]
        if source < count:
            copy_bytes(target, picked[first], data, offsets[source], length)
        else:
            copy_bytes(target, picked[first], other, other_offsets[source - count], length)
        first = end
