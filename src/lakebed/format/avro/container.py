"""Avro container files with one record, the format of timeline files.

    "Obj" 0x01 | metadata map with avro.schema | sync marker | record count = 1 | byte size | record | sync marker

A file contains the schema it was written with. Like any input the schema may be hostile, so it is checked before use:
its nesting is bounded, and each value takes at least one byte, so that a few bytes cannot decode to a huge value.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from lakebed.format.guard import decoding
from lakebed.format.varint import encode_long

AVRO_MAGIC = b"Obj\x01"
_SYNC_SIZE = 16
_DEPTH_MAX = 32
_LONG_BYTES_MAX = 10
_ONE_BYTE_AT_LEAST = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A checked record schema, ready for decoding. `name` is without its namespace."""

    name: str
    parsed: Any


def decode_container(data: bytes, *, path: str) -> tuple[str, dict[str, Any]]:
    """The name of the schema, without namespace, and the one record of an Avro container file."""
    with decoding(path, "Avro container"):
        file = _Bytes(data)
        if file.take(len(AVRO_MAGIC)) != AVRO_MAGIC:
            raise ValueError("the magic bytes are missing")
        metadata = _decode_metadata(file)
        if metadata.get("avro.codec", b"null") != b"null":
            raise ValueError(f"codec {metadata['avro.codec']!r} is not used on timelines")
        sync = file.take(_SYNC_SIZE)
        if file.long() != 1:
            raise ValueError("exactly one record is expected")
        size, start = file.long(), file.at
        record = file.take(size)
        if file.take(_SYNC_SIZE) != sync or file.at != len(data):
            raise ValueError("the record does not end where the file says")
        schema_text = metadata["avro.schema"].decode()
    schema = decode_writer_schema(schema_text, path=path)
    return schema.name, decode_nested_record(record, schema, path=path, offset=start)


def encode_container(record: Mapping[str, Any], schema_text: str) -> bytes:
    """An Avro container file with one record; equal records give equal bytes."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _parse(schema_text), record)
    content = body.getvalue()
    sync = hashlib.blake2b(content, digest_size=_SYNC_SIZE).digest()
    metadata = encode_long(1) + _encode_bytes(b"avro.schema") + _encode_bytes(schema_text.encode()) + encode_long(0)
    return b"".join((AVRO_MAGIC, metadata, sync, encode_long(1), _encode_bytes(content), sync))


def decode_writer_schema(text: str, *, path: str) -> WriterSchema:
    """The record schema of a JSON text; CorruptTableError if it is not safe to decode with."""
    with decoding(path, "Avro schema"):
        return _writer_schema(text)


def decode_nested_record(data: bytes, schema: WriterSchema, *, path: str, offset: int) -> dict[str, Any]:
    """The one record in `data`, which is at `offset` of the file."""
    with decoding(path, f"{schema.name} record", offset=offset):
        source = io.BytesIO(data)
        record = fastavro.schemaless_reader(source, schema.parsed, None)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over")
        assert isinstance(record, dict), "record schemas give dictionaries"
        return record


@lru_cache(maxsize=64)
def _writer_schema(text: str) -> WriterSchema:
    """Cached: a table's files repeat a handful of schemas."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("type") != "record":
        raise ValueError("a record is expected")
    if _depth(content, {}) > _DEPTH_MAX:
        raise ValueError(f"it nests deeper than {_DEPTH_MAX} levels")
    return WriterSchema(_simple_name(content["name"]), _parse(text))


@lru_cache(maxsize=64)
def _parse(text: str) -> Any:
    try:
        return fastavro.parse_schema(json.loads(text))
    except fastavro.schema.SchemaParseException as error:
        raise ValueError(str(error)) from error


def _depth(schema: Any, known: dict[str, int]) -> int:
    """How deep values of `schema` nest; ValueError for types whose values may be empty or endless.

    `known` holds the depths of the records defined so far. A record enters it when it is complete,
    so that it cannot refer to itself.
    """
    match schema:
        case str() if schema in _ONE_BYTE_AT_LEAST:
            return 1
        case str() if _simple_name(schema) in known:
            return known[_simple_name(schema)]
        case [_, *_]:
            return 1 + max((_depth(branch, known) for branch in schema if branch != "null"), default=0)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            return 1 + _depth(inner, known)
        case {"type": "record", "name": str(name), "fields": [_, *_] as fields}:
            depth = 1 + max(_depth(field["type"], known) for field in fields)
            if _simple_name(name) in known:
                raise ValueError(f"{name} is defined twice")
            known[_simple_name(name)] = depth
            return depth
        case {"type": str() | list() | dict() as inner} if inner not in ("record", "array", "map"):
            return 1 + _depth(inner, known)
    raise ValueError(f"type {schema!r:.60} is not used on timelines")


def _simple_name(name: str) -> str:
    return name.rpartition(".")[2]


class _Bytes:
    """Reads a container's framing in sequence; a read beyond the file raises EOFError."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        if length < 0 or length > len(self.data) - self.at:
            raise EOFError(f"{length} bytes expected at byte {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]

    def long(self) -> int:
        """The next variable-length zigzag integer."""
        value = 0
        for shift in range(0, 7 * _LONG_BYTES_MAX, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError(f"integer at byte {self.at} is too long")


def _decode_metadata(file: _Bytes) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    while count := file.long():
        if count < 0:
            file.long()  # The block's size in bytes, for skipping it.
        for _ in range(abs(count)):
            key = file.take(file.long()).decode()
            entries[key] = file.take(file.long())
    return entries


def _encode_bytes(value: bytes) -> bytes:
    return encode_long(len(value)) + value
