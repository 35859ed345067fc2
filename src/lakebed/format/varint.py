"""Whole numbers of seven bits a byte, the lowest first: as Avro, Thrift and Protocol Buffers have them."""

from __future__ import annotations

_BYTES = tuple(bytes((value,)) for value in range(0x80))


def encode_varint(value: int) -> bytes:
    """A number that is not negative."""
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80)) + encode_varint(value >> 14)


def encode_zigzag(value: int) -> bytes:
    """A number of up to 64 bits: small ones take few bytes, also negative ones."""
    return encode_varint(value << 1 ^ value >> 63)
