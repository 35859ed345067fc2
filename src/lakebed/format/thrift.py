"""Thrift's compact protocol, the subset in Parquet footers and page headers.

A decoded struct is a dict from field numbers to values; `RAW` has the bytes that it was decoded from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from lakebed.format.varint import decode_varint, decode_zigzag, encode_varint, encode_zigzag

RAW = 0
"""Under this number, which no field has, a struct keeps its bytes."""

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
)
_DOUBLE_LAYOUT = struct.Struct("<d")
Struct = dict[int, Any]


def decode_struct(data: bytes | memoryview, at: int = 0) -> tuple[Struct, int]:
    """The struct at a position, and where it ends. Bad bytes raise IndexError, ValueError or struct.error."""
    fields: Struct = {}
    start, number = at, 0
    while data[at]:
        head = data[at]
        kind, at = head & 15, at + 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = decode_zigzag(data, at)
        if kind in (_TRUE, _FALSE):
            fields[number] = kind == _TRUE
        else:
            fields[number], at = _decode_value(data, at, kind)
    fields[RAW] = bytes(data[start : at + 1])
    return fields, at + 1


def encode_struct(fields: Mapping[int, bytes]) -> bytes:
    """A struct of encoded fields, as `integer`, `text` and the like give them, in ascending order of their numbers."""
    parts, last = [], 0
    for number, encoded in sorted(fields.items()):
        assert 0 < number - last < 16, "the short form of a field's head"
        parts.append(bytes([(number - last) << 4 | encoded[0]]) + encoded[1:])
        last = number
    return b"".join(parts) + b"\0"


def integer(value: int, *, wide: bool = True) -> bytes:
    """A field of type i64, or i32."""
    return bytes([_I64 if wide else _I32]) + encode_zigzag(value)


def struct_list(items: Iterable[bytes]) -> bytes:
    """A field that lists encoded structs."""
    return _list(_STRUCT, list(items))


def text_list(items: Iterable[bytes]) -> bytes:
    """A field that lists texts or bytes."""
    return _list(_BINARY, [encode_varint(len(item)) + item for item in items])


def integer_list(items: Iterable[int]) -> bytes:
    """A field that lists i32 numbers."""
    return _list(_I32, [encode_zigzag(item) for item in items])


def nested(encoded: bytes) -> bytes:
    """A field that is an encoded struct."""
    return bytes([_STRUCT]) + encoded


def text(value: bytes) -> bytes:
    """A field of type string or binary."""
    return bytes([_BINARY]) + encode_varint(len(value)) + value


def _list(kind: int, items: list[bytes]) -> bytes:
    count = len(items)
    head = bytes([_LIST, count << 4 | kind]) if count < 15 else bytes([_LIST, 0xF0 | kind]) + encode_varint(count)
    return head + b"".join(items)


def _decode_value(data: bytes | memoryview, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_I32, _I64, _I16):
        return decode_zigzag(data, at)
    if kind == _BINARY:
        length, at = decode_varint(data, at)
        if length > len(data) - at:
            raise IndexError(f"{length} bytes, {len(data) - at} are left")
        return bytes(data[at : at + length]), at + length
    if kind == _STRUCT:
        return decode_struct(data, at)
    if kind in (_LIST, _SET):
        return _decode_list(data, at)
    if kind == _DOUBLE:
        return _DOUBLE_LAYOUT.unpack_from(data, at)[0], at + 8
    if kind == _BYTE or kind in (_TRUE, _FALSE):
        return data[at], at + 1
    raise ValueError(f"thrift type {kind}")


def _decode_list(data: bytes | memoryview, at: int) -> tuple[list[Any], int]:
    count, kind, at = data[at] >> 4, data[at] & 15, at + 1
    if count == 15:
        count, at = decode_varint(data, at)
    items = []
    for _ in range(count):
        item, at = _decode_value(data, at, kind)
        items.append(item == 1 if kind in (_TRUE, _FALSE) else item)
    return items, at
