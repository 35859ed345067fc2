"""Decodes Avro datums to Arrow: compiles a writer schema to a program, and assembles its streams to arrays.

`kernels.avro_decode` runs the program for every datum and appends the values that are present to streams without gaps,
so it need not know how Arrow pads nulls. A `ColumnPlan` says which streams make up which column; the `Assembler` adds
the gaps for nulls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.schema import arrow_field, arrow_type
from lakebed.format.avro.types import (
    STRING,
    Array,
    AvroType,
    Field,
    Map,
    Record,
    Scalar,
    Union,
    Wire,
    parse_record,
    parts,
)
from lakebed.kernels import avro_decode as ops

_BRANCHES_MAX = 255
_DROP = -1
_OFFSET_BYTES = 4
_SIMPLE = {Wire.BOOLEAN: ops.BOOLEAN, Wire.INT: ops.INT, Wire.LONG: ops.LONG}
_FLOAT_BYTES = {Wire.FLOAT: 4, Wire.DOUBLE: 8}

_Where: TypeAlias = tuple[str, ...]
"""The parts of a field's path. Joined only for messages: a hostile schema could make the texts huge."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The streams of the values of `node`, the plans of its parts, and the minimum size of a value in bytes."""

    node: AvroType
    least_bytes: int
    streams: tuple[int, ...] = ()
    parts: tuple[ColumnPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions, the number of zero bytes before the first value of each stream, and the columns.

    `wheres` has the field of each instruction; `fields` and `plans` describe the columns.
    """

    code: npt.NDArray[np.int64]
    prefixes: npt.NDArray[np.int64]
    tally_count: int
    loop_depth: int
    wheres: tuple[_Where, ...]
    fields: tuple[Field, ...]
    plans: tuple[ColumnPlan, ...]


@lru_cache(maxsize=64)
def compile_record(avro_json: str, columns: tuple[str, ...] | None) -> Program:
    """The program that decodes datums of the schema into `columns`, its top-level fields in the order of the schema."""
    compiler = _Compiler()
    kept = {}
    for field in parse_record(avro_json).fields:
        keep = columns is None or field.name in columns
        plan = compiler.compile(field.type, (field.name,), keep=keep)
        if keep:
            kept[field] = plan
    return compiler.finish(kept)


class _Compiler:
    """Appends instructions; targets of forward jumps are filled in later."""

    def __init__(self) -> None:
        self._code: list[list[int]] = []
        self._wheres: list[_Where] = []
        self._prefixes: list[int] = []
        self._tallies = 0
        self._depth = 0
        self._depth_max = 0

    def finish(self, columns: dict[Field, ColumnPlan]) -> Program:
        self._emit(("its end",), ops.END)
        code = np.array([row + [0] * (5 - len(row)) for row in self._code], dtype=np.int64)
        prefixes = np.array(self._prefixes, dtype=np.int64)
        return Program(
            code, prefixes, self._tallies, self._depth_max, tuple(self._wheres), tuple(columns), tuple(columns.values())
        )

    def compile(self, node: AvroType, where: _Where, *, keep: bool) -> ColumnPlan:
        match node:
            case Scalar():
                return self._scalar(node, where, keep)
            case Record(fields=fields):
                parts = [self.compile(field.type, (*where, f".{field.name}"), keep=keep) for field in fields]
                return ColumnPlan(node, sum(part.least_bytes for part in parts), (), tuple(parts))
            case Array(item=item):
                return self._blocks(node, (item,), where, keep)
            case Map(value=value):
                return self._blocks(node, (STRING, value), where, keep)
            case Union():
                nullable = len(node.branches) == 2 and node.null_branch is not None
                return self._nullable(node, where, keep) if nullable else self._union(node, where, keep)

    def _emit(self, where: _Where, *row: int) -> int:
        self._code.append(list(row))
        self._wheres.append(where)
        return len(self._code) - 1

    def _stream(self, keep: bool, prefix: int = 0) -> int:
        if not keep:
            return _DROP
        self._prefixes.append(prefix)
        return len(self._prefixes) - 1

    def _tally(self) -> int:
        self._tallies += 1
        return self._tallies - 1

    def _scalar(self, node: Scalar, where: _Where, keep: bool) -> ColumnPlan:
        if node.wire is Wire.NULL:
            return ColumnPlan(node, 0)
        if node.wire is Wire.BYTES:
            streams = self._stream(keep, _OFFSET_BYTES), self._stream(keep)
            self._emit(where, ops.BYTES, *streams, self._tally())
            return ColumnPlan(node, 1, streams)
        stream = self._stream(keep)
        match node.wire:
            case Wire.ENUM:
                self._emit(where, ops.ENUM, stream, len(node.symbols))
            case Wire.DECIMAL_BYTES:
                self._emit(where, ops.DECIMAL, stream, node.arrow.byte_width, -1)
            case Wire.DECIMAL_FIXED:
                self._emit(where, ops.DECIMAL, stream, node.arrow.byte_width, node.size)
            case Wire.FIXED | Wire.FLOAT | Wire.DOUBLE:
                self._emit(where, ops.FIXED, stream, _fixed_bytes(node))
            case wire:
                self._emit(where, _SIMPLE[wire], stream)
        return ColumnPlan(node, _fixed_bytes(node) or 1, (stream,))

    def _nullable(self, node: Union, where: _Where, keep: bool) -> ColumnPlan:
        stream = self._stream(keep)
        null_branch = node.null_branch or 0
        at = self._emit(where, ops.NULLABLE, stream, null_branch)
        value = self.compile(node.branches[1 - null_branch], where, keep=keep)
        self._code[at].append(len(self._code))
        return ColumnPlan(node, 1, (stream,), (value,))

    def _union(self, node: Union, where: _Where, keep: bool) -> ColumnPlan:
        if len(node.branches) > _BRANCHES_MAX:
            raise ValueError(f"a union of {len(node.branches)} types")
        stream = self._stream(keep)
        self._emit(where, ops.UNION, stream, len(node.branches))
        entries = [self._emit(where, ops.JUMP) for _ in node.branches]
        exits, parts = [], []
        for entry, branch in zip(entries, node.branches, strict=True):
            self._code[entry].append(len(self._code))
            parts.append(self.compile(branch, where, keep=keep))
            exits.append(self._emit(where, ops.JUMP))
        for leave in exits:
            self._code[leave].append(len(self._code))
        return ColumnPlan(node, 1 + min(part.least_bytes for part in parts), (stream,), tuple(parts))

    def _blocks(self, node: AvroType, item: tuple[AvroType, ...], where: _Where, keep: bool) -> ColumnPlan:
        offsets, tally = self._stream(keep, _OFFSET_BYTES), self._tally()
        self._depth += 1
        self._depth_max = max(self._depth_max, self._depth)
        at = self._emit(where, ops.BLOCKS)
        parts = tuple(self.compile(part, (*where, "[]"), keep=keep) for part in item)
        self._code[at].append(len(self._code))
        self._emit(where, ops.NEXT, offsets, tally, at + 1, sum(part.least_bytes for part in parts))
        self._depth -= 1
        return ColumnPlan(node, 1, (offsets,), parts)


def _fixed_bytes(node: Scalar) -> int:
    """The size in bytes of a value of a fixed-size type, else 0."""
    return node.size or _FLOAT_BYTES.get(node.wire, 0)


_Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of an array for the values of a stream: `count` slots; `used` marks those with a value (None: all).

    `valid` is the validity of the array; None if no slot is null. Below a null parent a slot is unused, but not null if
    its type has no null.
    """

    count: int
    used: _Mask | None = None
    valid: _Mask | None = None

    @property
    def used_count(self) -> int:
        """Number of slots with a value."""
        return self.count if self.used is None else int(np.count_nonzero(self.used))

    def within(self, mask: _Mask) -> Slots:
        """The slots of nullable values; `mask` tells for each used slot whether it is not null."""
        if self.used is None:
            used = mask
        else:
            used = np.zeros(self.count, np.bool_)
            used[self.used] = mask
        return Slots(self.count) if used.all() else Slots(self.count, used, used)

    def required(self) -> Slots:
        """The slots of a part that has no null of its own."""
        return Slots(self.count, self.used)


class Assembler:
    """Builds the arrays of plans from streams; bounds the memory that nulls of a small input can take."""

    def __init__(self, streams: list[_Bytes], *, bytes_max: int) -> None:
        self._streams = streams
        self._bytes_left = bytes_max

    def array(self, plan: ColumnPlan, slots: Slots) -> pa.Array:
        """The array of `plan`: one element per slot."""
        if slots.valid is not None and slots.used_count == 0:
            self._spend(slots.count * _widest_bytes(plan.node))
            return pa.nulls(slots.count, arrow_type(plan.node))
        match plan.node:
            case Scalar() as scalar:
                return self._scalar(scalar, plan, slots)
            case Record(fields=fields):
                return self.struct(fields, plan.parts, slots)
            case Array() | Map():
                return self._list(plan, slots)
            case Union() as union:
                return self._union(union, plan, slots)

    def _scalar(self, node: Scalar, plan: ColumnPlan, slots: Slots) -> pa.Array:
        if node.wire is Wire.NULL:
            return pa.nulls(slots.count)
        if node.wire is Wire.BYTES:
            buffers = [self._offsets(plan.streams[0], slots), pa.py_buffer(self._streams[plan.streams[1]])]
            return _from_buffers(node.arrow, slots, buffers)
        stream = self._streams[plan.streams[0]]
        if node.wire is Wire.BOOLEAN:
            bits = np.packbits(self._spread(stream, slots, 1), bitorder="little")
            return _from_buffers(node.arrow, slots, [pa.py_buffer(bits)])
        if node.wire is Wire.ENUM:
            index = _from_buffers(pa.int32(), slots, [pa.py_buffer(self._spread(stream, slots, 4))])
            return pa.array(node.symbols, pa.string()).take(index)
        width = node.arrow.byte_width
        return _from_buffers(node.arrow, slots, [pa.py_buffer(self._spread(stream, slots, width))])

    def struct(self, fields: tuple[Field, ...], plans: tuple[ColumnPlan, ...], slots: Slots) -> pa.Array:
        """The struct of those fields."""
        arrays = [self.array(plan, slots.required()) for plan in plans]
        return _struct_array(arrays, [arrow_field(field.name, field.type) for field in fields], slots)

    def _list(self, plan: ColumnPlan, slots: Slots) -> pa.Array:
        offsets = self._offsets(plan.streams[0], slots)
        count = int(np.frombuffer(offsets, np.int32)[-1])
        items = [self.array(part, Slots(count)) for part in plan.parts]
        kind = arrow_type(plan.node)
        if len(items) == 2:
            entries = [pa.field("key", pa.string(), nullable=False), kind.item_field]
            items = [_struct_array(items, entries, Slots(count))]
        return _from_buffers(kind, slots, [offsets], items)

    def _union(self, node: Union, plan: ColumnPlan, slots: Slots) -> pa.Array:
        """One branch and null: the branch. Several: a struct of which one child is set."""
        stream = self._streams[plan.streams[0]]
        self._spend(slots.count * len(node.branches))
        if len(node.branches) == 1:
            return self.array(plan.parts[0], slots)
        if len(plan.parts) == 1:
            return self.array(plan.parts[0], slots.within(stream.view(np.bool_)))
        values = node.value_branches
        arrays = [self.array(plan.parts[index], slots.within(stream == index)) for index in values]
        arrow = [pa.field(node.labels[index], array.type) for index, array in zip(values, arrays, strict=True)]
        null_branch = node.null_branch
        return _struct_array(arrays, arrow, slots if null_branch is None else slots.within(stream != null_branch))

    def _spread(self, values: _Bytes, slots: Slots, width: int) -> _Bytes:
        """Values of `width` bytes each, spread so that unused slots have room."""
        if slots.used is None:
            return values
        self._spend(slots.count * width)
        spread = np.zeros((slots.count, width), np.uint8)
        kind = np.dtype(f"V{width}")
        spread.view(kind)[:, 0][slots.used] = values.view(kind)
        return spread.reshape(-1)

    def _offsets(self, stream: int, slots: Slots) -> pa.Buffer:
        """Offsets in which unused slots have length zero."""
        offsets = self._streams[stream].view(np.int32)
        if slots.used is not None:
            self._spend(slots.count * 4)
            ranks = np.zeros(slots.count + 1, np.int32)
            np.cumsum(slots.used, out=ranks[1:])
            offsets = offsets[ranks]
        return pa.py_buffer(offsets)

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise ValueError("its nulls would take far more memory than its values")


def _widest_bytes(node: AvroType) -> int:
    """The size of a null in bytes, in the widest buffer."""
    match node:
        case Scalar(wire=Wire.NULL):
            return 0
        case Scalar(wire=Wire.BOOLEAN):
            return 1
        case Scalar(wire=Wire.BYTES | Wire.ENUM) | Array() | Map():
            return 4
        case Scalar(arrow=arrow):
            return int(arrow.byte_width)
    return max((_widest_bytes(part) for part in parts(node)), default=0) + 1


def _struct_array(arrays: list[pa.Array], fields: list[pa.Field], slots: Slots) -> pa.Array:
    return _from_buffers(pa.struct(fields), slots, [], arrays)


def _from_buffers(
    kind: pa.DataType, slots: Slots, buffers: list[pa.Buffer], children: list[pa.Array] | None = None
) -> pa.Array:
    bitmap = None if slots.valid is None else pa.py_buffer(np.packbits(slots.valid, bitorder="little"))
    return pa.Array.from_buffers(kind, slots.count, [bitmap, *buffers], children=children)
