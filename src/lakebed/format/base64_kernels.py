"""Base64 of many bytes in compiled code, which lets other threads run: the library's takes four times as long."""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.native import Bytes, kernel

DIGITS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
NO_DIGIT = 64
VALUES = np.full(256, NO_DIGIT, np.uint8)
"""What each byte stands for as a digit."""
VALUES[DIGITS] = np.arange(64)


@kernel
def encode_threes(data: Bytes, digits: Bytes, text: Bytes) -> None:
    """Fill `text` with the four digits of every three bytes; `data` has a multiple of three."""
    at = 0
    for first in range(0, len(data), 3):
        word = np.uint32(data[first]) << 16 | np.uint32(data[first + 1]) << 8 | np.uint32(data[first + 2])
        text[at] = digits[word >> 18]
        text[at + 1] = digits[word >> 12 & 63]
        text[at + 2] = digits[word >> 6 & 63]
        text[at + 3] = digits[word & 63]
        at += 4


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
    return bad < 64
