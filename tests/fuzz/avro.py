"""Avro datums of random schemas: every length, count and branch may be wrong."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from lakebed.format.avro.columns import decode_datums
from lakebed.format.avro.types import Array, AvroType, Map, Record, Scalar, Union, Wire, parse_record
from lakebed.format.varint import encode_varint

from .codec import PATH, Codec
from .mutate import damaged, maybe, strange

_SCHEMAS = 16
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: tuple[dict[str, Any], ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 5},
)


@dataclass(frozen=True, slots=True)
class Datums:
    """Datums, the schema they claim to be of, and the columns that are wanted of them."""

    data: bytes
    starts: list[int]
    ends: list[int]
    schema: str
    columns: tuple[str, ...] | None


def make(rng: random.Random) -> Datums:
    """Some datums, most of them damaged."""
    schema = rng.choice(schemas())
    datums = [datum(schema, rng) for _ in range(rng.choice((0, 1, 1, 2, 5)))]
    data, starts, ends = b"", [], []
    for each in datums:
        starts.append(len(data))
        data += each
        ends.append(len(data))
    for bounds in (starts, ends):
        if bounds and rng.random() < 0.02:
            bounds[rng.randrange(len(bounds))] = rng.choice((-1, 0, len(data), len(data) + 1, 1 << 40))
    names = [field.name for field in parse_record(schema).fields]
    return Datums(data, starts, ends, schema, rng.choice((None, None, tuple(names[::2]), tuple(names[-1:]))))


def decode(case: Datums) -> list[Any]:
    """The columns of the datums."""
    starts, ends = np.array(case.starts, np.int64), np.array(case.ends, np.int64)
    return [decode_datums(case.data, starts, ends, case.schema, path=PATH, columns=case.columns)]


CODEC = Codec(make, decode)


def datum(schema: str, rng: random.Random) -> bytes:
    """A datum of the schema, sound or not."""
    writer = _Writer(rng, rng.choice((0.0, 0.0, 0.02, 0.1, 0.4)))
    writer.put(parse_record(schema))
    return maybe(0.2, rng, lambda data: damaged(data, rng), bytes(writer.out))


@cache
def schemas() -> tuple[str, ...]:
    """Record schemas of all types that there are."""
    return tuple(json.dumps(_record(random.Random(seed), 3, f"r{seed}")) for seed in range(_SCHEMAS))


def _record(rng: random.Random, depth: int, name: str) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": _type(rng, depth - 1, f"{name}_{at}")} for at in range(rng.randint(1, 5))]
    return {"type": "record", "name": name, "fields": fields}


def _type(rng: random.Random, depth: int, name: str) -> Any:
    kind = rng.randrange(9 if depth > 0 else 4)
    if kind < 2:
        return rng.choice(_PRIMITIVES)
    if kind == 2:
        return rng.choice(_LOGICAL)
    if kind == 3:
        fixed = {"type": "fixed", "name": name, "size": rng.choice((1, 8, 12))}
        decimal = {**fixed, "logicalType": "decimal", "precision": 2, "scale": 1}
        return rng.choice((fixed, decimal, {"type": "enum", "name": name, "symbols": ["a", "b", "c"]}))
    inner = _type(rng, depth - 1, f"{name}i")
    if kind == 4:
        return {"type": "array", "items": rng.choice((inner, inner, "null"))}
    if kind == 5:
        return {"type": "map", "values": inner}
    if kind == 6:
        return _record(rng, depth, name)
    if kind == 7 or isinstance(inner, list):
        return rng.choice((["null", "string"], ["long", "null"]))
    others = [each for each in ("null", "boolean", "string", "double") if each != inner]
    return rng.choice((["null", inner] if inner != "null" else ["null"], [*others, inner]))


class _Writer:
    """Writes values that fit a type; each number that it writes is a wrong one with some probability."""

    def __init__(self, rng: random.Random, share: float) -> None:
        self.rng, self.share, self.out = rng, share, bytearray()

    def long(self, number: int) -> None:
        if self.rng.random() < self.share:
            number = strange(self.rng, number)
        encoded = encode_varint(number << 1 if number >= 0 else (-number << 1) - 1)
        if self.rng.random() < self.share / 4:  # Longer than it needs to be, or without an end.
            encoded = bytes(byte | 0x80 for byte in encoded) + self.rng.choice((b"\0", b"\x80\0", b"\x80" * 9, b"\1"))
        self.out += encoded

    def bytes(self, content: bytes) -> None:
        self.long(len(content))
        self.out += content

    def put(self, node: AvroType) -> None:
        match node:
            case Record(fields=fields):
                for field in fields:
                    self.put(field.type)
            case Union(branches=branches):
                branch = self.rng.randrange(len(branches))
                self.long(branch)
                self.put(branches[branch])
            case Array(item=item):
                self.blocks(lambda: self.put(item))
            case Map(value=value):
                self.blocks(lambda: (self.bytes(self.text()), self.put(value)))
            case Scalar():
                self.scalar(node)

    def blocks(self, put: Any) -> None:
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            count, before = self.rng.randint(1, 3), self.out
            self.out = bytearray()
            for _ in range(count):
                put()
            content, self.out = self.out, before
            if self.rng.random() < 0.3:
                self.long(-count)
                self.long(len(content))
            else:
                self.long(count)
            self.out += content
        self.long(0)

    def text(self) -> bytes:
        return self.rng.choice((b"", b"a", "dé€😀".encode(), b"x" * 70, b"\xff" if self.rng.random() < 0.1 else b"b"))

    def scalar(self, node: Scalar) -> None:
        rng = self.rng
        match node.wire:
            case Wire.NULL:
                pass
            case Wire.BOOLEAN:
                self.out.append(rng.choice((0, 1)) if rng.random() >= self.share else rng.randrange(256))
            case Wire.INT:
                self.long(rng.choice((0, -1, 5, (1 << 31) - 1, -(1 << 31))))
            case Wire.LONG:
                self.long(rng.choice((0, -1, 5, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63))))
            case Wire.ENUM:
                self.long(rng.randrange(len(node.symbols)))
            case Wire.BYTES:
                self.bytes(self.text())
            case Wire.DECIMAL_BYTES:
                self.bytes(rng.randbytes(rng.choice((1, 2, 4))) if rng.random() >= self.share else rng.randbytes(40))
            case _:
                self.out += rng.randbytes({Wire.FLOAT: 4, Wire.DOUBLE: 8}.get(node.wire, node.size))
