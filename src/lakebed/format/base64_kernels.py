"""Reading long base64 text in compiled code, which lets other threads run: the library takes three times as long."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, kernel

_NO_DIGIT = 64
VALUES = np.full(256, _NO_DIGIT, np.uint8)
"""What each byte stands for as a digit."""
VALUES[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)] = np.arange(64)


@kernel
def decode_fours(text: Bytes, values: Bytes, data: Bytes) -> bool:
    """Fill `data` with the three bytes of every four digits; false if something else is among them."""
    at, bad = 0, np.uint8(0)
    for first in range(0, len(text), 4):
        a, b = values[text[first]], values[text[first + 1]]
        c, d = values[text[first + 2]], values[text[first + 3]]
        bad |= a | b | c | d
        word = np.uint32(a) << 18 | np.uint32(b) << 12 | np.uint32(c) << 6 | np.uint32(d)
        data[at] = word >> 16
        data[at + 1] = word >> 8 & 255
        data[at + 2] = word & 255
        at += 3
    return bad < _NO_DIGIT
