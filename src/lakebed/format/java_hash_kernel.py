"""`String.hashCode` of many strings in compiled code."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, Int32s, Int64s, kernel, load_word

_BEYOND_ASCII = np.uint64(0x8080808080808080)
_BYTES, _PAIRS, _HALF = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0xFFFFFFFF)
_EIGHT_ON = np.uint32(31**8 & 0xFFFFFFFF)


@kernel
def _weighted(word: np.uint64) -> np.uint32:
    """What eight units of one byte each add to the hash of the text that ends with them; the first is lowest.

    Neighbours are put together, then these with theirs, all of a word at once: no sum outgrows its share of the word.
    """
    pairs = (word & _BYTES) * np.uint64(31) + (word >> np.uint64(8) & _BYTES)
    fours = (pairs & _PAIRS) * np.uint64(31**2) + (pairs >> np.uint64(16) & _PAIRS)
    return np.uint32((fours & _HALF) * np.uint64(31**4) + (fours >> np.uint64(32)))


@kernel
def hash_texts(data: Bytes, offsets: Int64s, hashes: Int32s) -> None:
    """Fill `hashes` for strings in UTF-8, which a code point beyond 16 bits leaves as two units in UTF-16."""
    for text in range(len(hashes)):
        value, at, end = np.uint32(0), offsets[text], offsets[text + 1]
        while at < end:
            if end - at >= 8:
                word = load_word(data, at)
                if word & _BEYOND_ASCII == 0:
                    value = _EIGHT_ON * value + _weighted(word)
                    at += 8
                    continue
            lead = data[at]
            if lead < 0x80:
                value = np.uint32(31) * value + np.uint32(lead)
                at += 1
                continue
            width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            point = np.int64(lead) & (0x7F >> width)
            for follow in range(at + 1, min(at + width, end)):
                point = point << 6 | np.int64(data[follow]) & 0x3F
            at += width
            if width == 4:
                value = np.uint32(31) * value + np.uint32(0xD800 + ((point - 0x10000) >> 10))
                point = 0xDC00 + (point & 0x3FF)
            value = np.uint32(31) * value + np.uint32(point)
        hashes[text] = np.int32(value)
