"""Avro for tests: random schemas, values for them, and a plain encoder to compare with.

A value is written as Avro sees it, except that a union is a pair (branch, value) and a logical type is Python's own.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Context, Decimal
from itertools import count
from typing import Any

from hypothesis import strategies as st

_CONTEXT = Context(prec=100)
_EPOCH = dt.datetime(1970, 1, 1)
_TICKS = {"millis": dt.timedelta(milliseconds=1), "micros": dt.timedelta(microseconds=1)}
_MICROS_MAX = 4 * 10**15
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
_DECIMAL = {"logicalType": "decimal", "precision": 12, "scale": 3}
_WIDE_DECIMAL = {"logicalType": "decimal", "precision": 50, "scale": 10}
_LEAVES: list[Any] = [
    *PRIMITIVES,
    {"type": "string", "avro.java.string": "String"},
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", **_DECIMAL},
    {"type": "bytes", **_WIDE_DECIMAL},
    {"type": "fixed", "size": 6, **_DECIMAL},
    {"type": "fixed", "size": 30, **_WIDE_DECIMAL},
    {"type": "fixed", "size": 3},
    {"type": "enum", "symbols": ["RED", "GREEN", "BLUE"]},
]


def records(*, depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Record schemas with up to `depth` levels below the top."""
    return st.builds(count, st.just(0)).flatmap(lambda names: _record(names, depth))


def _record(names: Iterator[int], depth: int) -> st.SearchStrategy[dict[str, Any]]:
    def build(types: list[Any]) -> dict[str, Any]:
        fields = [{"name": f"f{index}", "type": kind} for index, kind in enumerate(types)]
        return {"type": "record", "name": f"R{next(names)}", "fields": fields}

    return st.lists(_type(names, depth), max_size=4).map(build)


def _type(names: Iterator[int], depth: int) -> st.SearchStrategy[Any]:
    leaf = st.sampled_from(_LEAVES).map(lambda spec: _named(spec, names))
    if depth == 0:
        return leaf
    inner = st.deferred(lambda: _type(names, depth - 1))
    union = st.lists(inner, min_size=1, max_size=3).map(_distinct_branches)
    return st.one_of(
        leaf,
        leaf.filter(lambda spec: spec != "null").map(lambda spec: ["null", spec]),
        leaf.filter(lambda spec: spec != "null").map(lambda spec: [spec, "null"]),
        inner.map(lambda spec: {"type": "array", "items": spec}),
        inner.map(lambda spec: {"type": "map", "values": spec}),
        _record(names, depth - 1),
        union,
    )


def _named(spec: Any, names: Iterator[int]) -> Any:
    if isinstance(spec, dict) and spec["type"] in ("fixed", "enum"):
        return spec | {"name": f"N{next(names)}"}
    return spec


def label(spec: Any) -> str:
    """What a branch of that type is called."""
    return spec if isinstance(spec, str) else spec.get("name", spec["type"])


def _distinct_branches(specs: list[Any]) -> Any:
    flat = [branch for spec in specs for branch in (spec if isinstance(spec, list) else [spec])]
    return list({label(branch): branch for branch in flat}.values())


def values(spec: Any) -> st.SearchStrategy[Any]:
    """Values of a schema."""
    if isinstance(spec, list):
        return st.one_of([st.tuples(st.just(index), values(branch)) for index, branch in enumerate(spec)])
    if isinstance(spec, str):
        return PRIMITIVES[spec]
    if "logicalType" in spec:
        return _logical_values(spec)
    match spec["type"]:
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in spec["fields"]})
        case "array":
            return st.lists(values(spec["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(spec["values"]), max_size=3)
        case "enum":
            return st.sampled_from(spec["symbols"])
        case "fixed":
            return st.binary(min_size=spec["size"], max_size=spec["size"])
        case kind:
            return PRIMITIVES[kind]


def _logical_values(spec: dict[str, Any]) -> st.SearchStrategy[Any]:
    match spec["logicalType"].split("-"):
        case ["decimal"]:
            largest = 10 ** spec["precision"] - 1
            return st.integers(-largest, largest).map(
                lambda number: Decimal((number < 0, _digits(number), -spec["scale"]))
            )
        case ["date"]:
            return st.integers(-100_000, 100_000).map(lambda days: (_EPOCH + dt.timedelta(days)).date())
        case ["time", unit]:
            ticks = st.integers(0, dt.timedelta(days=1) // _TICKS[unit] - 1)
            return ticks.map(lambda tick: (_EPOCH + tick * _TICKS[unit]).time())
        case [*local, "timestamp", unit]:
            limit = _MICROS_MAX // (_TICKS[unit] // _TICKS["micros"])
            zone = None if local else dt.timezone.utc
            return st.integers(-limit, limit).map(lambda tick: (_EPOCH + tick * _TICKS[unit]).replace(tzinfo=zone))
    raise AssertionError(spec)


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def encode(spec: Any, value: Any, *, block_items: int | None = None) -> bytes:
    """The datum of a value. With `block_items`, arrays and maps come in blocks of so many items with sizes stated."""
    if isinstance(spec, list):
        branch, inner = value
        return varint(branch) + encode(spec[branch], inner, block_items=block_items)
    if isinstance(spec, dict) and spec["type"] in ("record", "array", "map"):
        return _encode_parts(spec, value, block_items)
    if isinstance(spec, dict) and spec["type"] == "enum":
        return varint(spec["symbols"].index(value))
    raw = _physical(spec, value) if isinstance(spec, dict) and "logicalType" in spec else value
    match spec if isinstance(spec, str) else spec["type"]:
        case "null":
            return b""
        case "boolean":
            return bytes([raw])
        case "int" | "long":
            return varint(raw)
        case "float":
            return struct.pack("<f", raw)
        case "double":
            return struct.pack("<d", raw)
        case "fixed":
            return raw
        case kind:
            data = raw.encode() if kind == "string" else raw
            return varint(len(data)) + data


def _encode_parts(spec: dict[str, Any], value: Any, block_items: int | None) -> bytes:
    if spec["type"] == "record":
        fields = spec["fields"]
        return b"".join(encode(field["type"], value[field["name"]], block_items=block_items) for field in fields)
    if spec["type"] == "array":
        items = [encode(spec["items"], item, block_items=block_items) for item in value]
    else:
        entries = value.items()
        items = [encode("string", key) + encode(spec["values"], item, block_items=block_items) for key, item in entries]
    if block_items is None:
        return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
    blocks = [items[start : start + block_items] for start in range(0, len(items), block_items)]
    joined = [(len(block), b"".join(block)) for block in blocks]
    return b"".join(varint(-length) + varint(len(data)) + data for length, data in joined) + b"\0"


def _physical(spec: dict[str, Any], value: Any) -> Any:
    match spec["logicalType"].split("-"):
        case ["decimal"]:
            number = int(value.scaleb(spec["scale"], _CONTEXT))
            length = spec.get("size") or (number if number >= 0 else ~number).bit_length() // 8 + 1
            return number.to_bytes(length, "big", signed=True)
        case ["date"]:
            return (value - _EPOCH.date()).days
        case ["time", unit]:
            return (dt.datetime.combine(_EPOCH, value) - _EPOCH) // _TICKS[unit]
        case [*_, unit]:
            return (value.replace(tzinfo=None) - _EPOCH) // _TICKS[unit]
    raise AssertionError(spec)


def varint(number: int) -> bytes:
    """A zig-zag integer."""
    raw, out = (number << 1) ^ (number >> 63), bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes([*out, raw])


def plain(spec: Any, value: Any) -> Any:
    """The value as fastavro gives it: unions without their branch."""
    return _walk(spec, value, lambda _, __, inner: inner, dict)


def as_arrow(spec: Any, value: Any) -> Any:
    """The value as Arrow gives it: a union of several types is a struct, a map a list of pairs."""

    def struct_of(union: list[Any], branch: int, inner: Any) -> Any:
        named = [index for index, kind in enumerate(union) if kind != "null"]
        if len(named) <= 1 or union[branch] == "null":
            return inner
        return {label(union[index]): inner if index == branch else None for index in named}

    return _walk(spec, value, struct_of, lambda entries: list(entries.items()))


def _walk(spec: Any, value: Any, on_union: Any, on_map: Any) -> Any:
    if isinstance(spec, list):
        return on_union(spec, value[0], _walk(spec[value[0]], value[1], on_union, on_map))
    match spec if isinstance(spec, str) else spec["type"]:
        case "record":
            return {f["name"]: _walk(f["type"], value[f["name"]], on_union, on_map) for f in spec["fields"]}
        case "array":
            return [_walk(spec["items"], item, on_union, on_map) for item in value]
        case "map":
            return on_map({key: _walk(spec["values"], item, on_union, on_map) for key, item in value.items()})
    return value
