"""Variable-length integers of seven bits per byte, as in Avro, Thrift and Protocol Buffers; signed ones are zig-zag."""

from __future__ import annotations

from functools import lru_cache

_BYTES = tuple(bytes((value,)) for value in range(0x80))
_UNSIGNED_MAX = (1 << 64) - 1


def encode_varint(value: int) -> bytes:
    """A non-negative number."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + encode_varint(value >> 14)


def decode_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The non-negative number of at most ten bytes at a position, and the position after it."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
    raise ValueError("a number of more than ten bytes")


def encode_zigzag(value: int) -> bytes:
    """A signed number of up to 64 bits."""
    return encode_varint(value << 1 ^ value >> 63)


def decode_zigzag(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The signed number at a position, and the position after it."""
    value, at = decode_varint(data, at)
    return value >> 1 ^ -(value & 1), at


@lru_cache(maxsize=4096)
def encode_long(number: int) -> bytes:
    """An Avro int or long. Cached: few numbers occur often."""
    assert -(2**63) <= number < 2**63, number
    return encode_zigzag(number)


def decode_long(data: bytes, at: int) -> tuple[int, int]:
    """The Avro int or long at a position, and the position after it; ValueError if it has more than 64 bits."""
    value, at = decode_varint(data, at)
    if value > _UNSIGNED_MAX:
        raise ValueError("a number of more than 64 bits")
    return value >> 1 ^ -(value & 1), at
