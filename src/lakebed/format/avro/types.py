"""Avro schemas as a tree of values: names resolved, logical types turned into Arrow types.

A tree is finite. A schema that refers to itself has no Arrow equivalent and raises ValueError, and so does one whose
JSON is small but expands, by repeated use of names, into more nodes than any table has columns.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

NODES_MAX = 100_000
DEPTH_MAX = 64
_FIXED_BYTES_MAX = 2**31 - 1
_DECIMAL128_DIGITS, _DECIMAL256_DIGITS = 38, 76


class Wire(Enum):
    """The encoding of a scalar."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    FIXED = "fixed"
    ENUM = "enum"
    DECIMAL_BYTES = "decimal in bytes"
    DECIMAL_FIXED = "decimal in fixed"


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A value without parts. `name` is the Avro type's (short) name, `arrow` its Arrow type."""

    name: str
    wire: Wire
    arrow: pa.DataType
    size: int = 0
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A named part of a record."""

    name: str
    type: AvroType


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A record: named fields in order."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Any number of items."""

    item: AvroType
    name: str = "array"


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """Any number of entries; keys are strings."""

    value: AvroType
    name: str = "map"


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """One of several types. `labels` are the names of the branches: type names, full ones where short ones clash."""

    branches: tuple[AvroType, ...]
    labels: tuple[str, ...]
    name: str = "union"

    @property
    def null_branch(self) -> int | None:
        """The position of the null branch, if there is one."""
        return next((index for index, branch in enumerate(self.branches) if is_null(branch)), None)

    @property
    def value_branches(self) -> tuple[int, ...]:
        """The positions of the branches that are not null."""
        return tuple(index for index, branch in enumerate(self.branches) if not is_null(branch))


AvroType: TypeAlias = Scalar | Record | Array | Map | Union

STRING = Scalar("string", Wire.BYTES, pa.string())
_PRIMITIVES = {
    "null": Scalar("null", Wire.NULL, pa.null()),
    "boolean": Scalar("boolean", Wire.BOOLEAN, pa.bool_()),
    "int": Scalar("int", Wire.INT, pa.int32()),
    "long": Scalar("long", Wire.LONG, pa.int64()),
    "float": Scalar("float", Wire.FLOAT, pa.float32()),
    "double": Scalar("double", Wire.DOUBLE, pa.float64()),
    "bytes": Scalar("bytes", Wire.BYTES, pa.binary()),
    "string": STRING,
}
_LOGICAL = {
    (Wire.INT, "date"): pa.date32(),
    (Wire.INT, "time-millis"): pa.time32("ms"),
    (Wire.LONG, "time-micros"): pa.time64("us"),
    (Wire.LONG, "timestamp-millis"): pa.timestamp("ms", "UTC"),
    (Wire.LONG, "timestamp-micros"): pa.timestamp("us", "UTC"),
    (Wire.LONG, "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    (Wire.LONG, "local-timestamp-millis"): pa.timestamp("ms"),
    (Wire.LONG, "local-timestamp-micros"): pa.timestamp("us"),
    (Wire.LONG, "local-timestamp-nanos"): pa.timestamp("ns"),
}


def is_null(node: AvroType) -> bool:
    """Whether the type has the null value alone."""
    return isinstance(node, Scalar) and node.wire is Wire.NULL


@lru_cache(maxsize=64)
def parse_record(avro_json: str) -> Record:
    """The tree of a record schema; anything else raises ValueError, LookupError or TypeError."""
    node = _Parser().parse(json.loads(avro_json), namespace="")
    if not isinstance(node, Record):
        raise ValueError(f"a record is expected, the schema is of type {node.name}")
    _check_extent(node, {})
    return node


class _Parser:
    """Collects named types while it walks the JSON; a name cannot be used before its definition ends."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._open: set[str] = set()

    def parse(self, spec: Any, *, namespace: str) -> AvroType:
        if isinstance(spec, str):
            return self._resolve(spec, namespace)
        if isinstance(spec, list):
            return self._union(spec, namespace)
        kind = spec["type"]
        match kind:
            case "record" | "error":
                return self._record(spec, namespace)
            case "enum" | "fixed":
                return self._leaf(spec, namespace)
            case "array":
                return Array(self.parse(spec["items"], namespace=namespace))
            case "map":
                return Map(self.parse(spec["values"], namespace=namespace))
        inner = self.parse(kind, namespace=namespace)
        return _with_logical_type(inner, spec) if isinstance(inner, Scalar) else inner

    def _resolve(self, name: str, namespace: str) -> AvroType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        for full in (_full_name(name, namespace), name):
            if full in self._open:
                raise ValueError(f"type {full} contains itself")
            if full in self._named:
                return self._named[full]
        raise ValueError(f"type {name!r} is not defined")

    def _union(self, specs: list[Any], namespace: str) -> Union:
        branches = tuple(self.parse(spec, namespace=namespace) for spec in specs)
        if not branches or any(isinstance(branch, Union) for branch in branches):
            raise ValueError("a union has at least one branch, and none that is a union")
        labels = tuple(branch.name for branch in branches)
        if len(set(labels)) < len(labels):
            full_names = {id(node): name for name, node in self._named.items()}
            labels = tuple(full_names.get(id(branch), branch.name) for branch in branches)
        if len(set(labels)) < len(labels):
            raise ValueError(f"a union has two branches of one type: {', '.join(labels)}")
        return Union(branches, labels)

    def _record(self, spec: dict[str, Any], namespace: str) -> Record:
        full, inner = self._declare(spec, namespace)
        fields = tuple(
            Field(_text(field["name"]), self.parse(field["type"], namespace=inner)) for field in spec["fields"]
        )
        if len({field.name for field in fields}) < len(fields):
            raise ValueError(f"record {full} has two fields of one name")
        record = Record(full.rpartition(".")[2], fields)
        self._define(full, record)
        return record

    def _leaf(self, spec: dict[str, Any], namespace: str) -> Scalar:
        full, _ = self._declare(spec, namespace)
        name = full.rpartition(".")[2]
        if spec["type"] == "enum":
            symbols = tuple(_text(symbol) for symbol in spec["symbols"])
            if not symbols:
                raise ValueError(f"enum {full} has no symbols")
            leaf = Scalar(name, Wire.ENUM, pa.string(), symbols=symbols)
        else:
            size = spec["size"]
            if not isinstance(size, int) or not 0 < size <= _FIXED_BYTES_MAX:
                raise ValueError(f"fixed {full} is {size} bytes long")
            leaf = _with_logical_type(Scalar(name, Wire.FIXED, pa.binary(size), size), spec)
        self._define(full, leaf)
        return leaf

    def _declare(self, spec: dict[str, Any], namespace: str) -> tuple[str, str]:
        """The full name of a type whose definition begins, and the namespace within it."""
        full = _full_name(_text(spec["name"]), _text(spec.get("namespace", namespace)))
        if full in self._open or full in self._named:
            raise ValueError(f"type {full} is defined twice")
        self._open.add(full)
        return full, full.rpartition(".")[0]

    def _define(self, full: str, node: AvroType) -> None:
        self._open.discard(full)
        self._named[full] = node


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is expected, not {value!r}")
    return value


def _with_logical_type(leaf: Scalar, spec: dict[str, Any]) -> Scalar:
    """`leaf` with its logical type; an unknown or unsuitable one is ignored, as the Avro spec requires."""
    logical = spec.get("logicalType")
    if logical == "decimal" and leaf.wire in (Wire.BYTES, Wire.FIXED) and leaf is not STRING:
        return _decimal(leaf, spec)
    arrow = _LOGICAL.get((leaf.wire, logical)) if isinstance(logical, str) else None
    return leaf if arrow is None else Scalar(leaf.name, leaf.wire, arrow)


def _decimal(leaf: Scalar, spec: dict[str, Any]) -> Scalar:
    precision, scale = spec.get("precision"), spec.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return leaf
    if not 0 < precision <= _DECIMAL256_DIGITS or not 0 <= scale <= precision:
        return leaf
    narrow = precision <= _DECIMAL128_DIGITS
    arrow = pa.decimal128(precision, scale) if narrow else pa.decimal256(precision, scale)
    wire = Wire.DECIMAL_FIXED if leaf.wire is Wire.FIXED else Wire.DECIMAL_BYTES
    return Scalar(leaf.name, wire, arrow, leaf.size)


def parts(node: AvroType) -> tuple[AvroType, ...]:
    """The types directly inside `node`."""
    match node:
        case Record(fields=fields):
            return tuple(field.type for field in fields)
        case Array(item=inner) | Map(value=inner):
            return (inner,)
        case Union(branches=branches):
            return branches
    return ()


def _check_extent(node: AvroType, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The number of nodes and the depth of the tree; shared subtrees are walked once and counted each time."""
    if id(node) not in known:
        extents = [_check_extent(part, known) for part in parts(node)]
        nodes = 1 + sum(extent[0] for extent in extents)
        depth = 1 + max((extent[1] for extent in extents), default=0)
        if nodes > NODES_MAX or depth > DEPTH_MAX:
            raise ValueError(f"the schema has more than {NODES_MAX} parts or is nested deeper than {DEPTH_MAX}")
        known[id(node)] = nodes, depth
    return known[id(node)]
