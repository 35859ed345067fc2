"""Least and greatest of many texts in compiled code."""

from __future__ import annotations

from lakebed.format.hfile.native import Bytes, Int64s, kernel
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
