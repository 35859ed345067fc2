"""Encoding the records of timeline files: an encoder is made of a schema once, and then has no schema to look at.

Of unions their schemas have those of null and one other type alone, and no logical types. Others are refused.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from lakebed.format.avro.numbers import encode_long

Encoder: TypeAlias = Callable[[Any], bytes]

_END = b"\x00"
"""Of the blocks of an array or a map."""
_DOUBLE = struct.Struct("<d")


@lru_cache(maxsize=64)
def record_encoder(schema_text: str) -> Encoder:
    """What encodes records, as dictionaries, of a schema; fields that a record lacks get the schema's defaults."""
    return _encoder(json.loads(schema_text), {})


def _encoder(schema: Any, named: dict[str, Encoder]) -> Encoder:
    """The encoder of a type; `named` has those of the records that were defined before it, and gets this one."""
    match schema:
        case str() if schema in _SCALARS:
            return _SCALARS[schema]
        case str() if _simple_name(schema) in named:
            return named[_simple_name(schema)]
        case ["null", other]:
            return _optional(_encoder(other, named), null=b"\x00", branch=b"\x02")
        case [other, "null"]:
            return _optional(_encoder(other, named), null=b"\x02", branch=b"\x00")
        case {"type": "array", "items": inner}:
            return _array(_encoder(inner, named))
        case {"type": "map", "values": inner}:
            return _map(_encoder(inner, named))
        case {"type": "record", "name": str(name), "fields": [*fields]}:
            parts = [(field["name"], field.get("default"), _encoder(field["type"], named)) for field in fields]
            named[_simple_name(name)] = encode = _record(parts)
            return encode
        case {"type": str(name)} if name in _SCALARS and "logicalType" not in schema:
            return _SCALARS[name]
    raise ValueError(f"type {schema!r:.60} is not used on timelines")


def _simple_name(name: str) -> str:
    return name.rpartition(".")[2]


def _record(fields: Sequence[tuple[str, Any, Encoder]]) -> Encoder:
    def encode(value: Any) -> bytes:
        get = value.get
        return b"".join([encode_field(get(name, default)) for name, default, encode_field in fields])

    return encode


def _optional(encode_other: Encoder, *, null: bytes, branch: bytes) -> Encoder:
    def encode(value: Any) -> bytes:
        return null if value is None else branch + encode_other(value)

    return encode


def _array(encode_item: Encoder) -> Encoder:
    def encode(value: Any) -> bytes:
        return encode_long(len(value)) + b"".join(map(encode_item, value)) + _END if value else _END

    return encode


def _map(encode_value: Encoder) -> Encoder:
    def encode(value: Any) -> bytes:
        items = b"".join([_encode_text(key) + encode_value(inner) for key, inner in value.items()])
        return encode_long(len(value)) + items + _END if value else _END

    return encode


def _encode_bytes(value: bytes) -> bytes:
    return encode_long(len(value)) + value


def _encode_text(value: str) -> bytes:
    return _encode_bytes(value.encode())


def _encode_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


_SCALARS: dict[str, Encoder] = {
    "boolean": _encode_boolean,
    "int": encode_long,
    "long": encode_long,
    "double": _DOUBLE.pack,
    "bytes": _encode_bytes,
    "string": _encode_text,
}
