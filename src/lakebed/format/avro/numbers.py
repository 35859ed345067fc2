"""Avro's numbers one at a time, for the few that are read or written without compiled code."""

from __future__ import annotations

from functools import lru_cache

from lakebed.format.varint import encode_zigzag

_BITS_64 = (1 << 64) - 1


def decode_long(data: bytes, at: int) -> tuple[int, int]:
    """The zig-zag number of at most 64 bits that begins at an offset, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80 and value <= _BITS_64:
            return value >> 1 ^ -(value & 1), at
    raise ValueError("a number of more than 64 bits")


@lru_cache(maxsize=4096)
def encode_long(number: int) -> bytes:
    """An Avro int or long: zig-zag, then seven bits a byte, lowest first."""
    assert -(2**63) <= number < 2**63, number
    return encode_zigzag(number)
