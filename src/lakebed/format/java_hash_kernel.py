"""`String.hashCode` of many strings in compiled code."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, Int32s, Int64s, kernel


@kernel
def hash_texts(data: Bytes, offsets: Int64s, hashes: Int32s) -> None:
    """Fill `hashes` for strings in UTF-8, which a code point beyond 16 bits leaves as two units in UTF-16."""
    for text in range(len(hashes)):
        value, at, end = np.uint32(0), offsets[text], offsets[text + 1]
        while at < end:
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
