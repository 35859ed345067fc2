"""Arrow arrays from the streams that decoded datums left: gaps are put back where values are null."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.avro.decode_program import Plan
from lakebed.format.avro.schema import arrow_field, arrow_type
from lakebed.format.avro.types import Array, AvroType, Field, Map, Record, Scalar, Union, Wire, parts

_Bytes = npt.NDArray[np.uint8]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Slots:
    """Where the values of a stream go: `count` places, of which `used` says which hold a value (None: all do).

    `valid` is the validity of the array that is made of them; None where no place is null. Below a null parent a place
    is unused, but not null if its type has no null.
    """

    count: int
    used: _Mask | None = None
    valid: _Mask | None = None

    @property
    def used_count(self) -> int:
        """How many places hold a value."""
        return self.count if self.used is None else int(np.count_nonzero(self.used))

    def within(self, mask: _Mask) -> Slots:
        """The slots of nullable values, `mask` telling for each used place whether it is not null."""
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
    """Builds the arrays of plans from one arena; refuses to let nulls swell a small input into a huge batch."""

    def __init__(self, streams: list[_Bytes], *, bytes_max: int) -> None:
        self._streams = streams
        self._bytes_left = bytes_max

    def array(self, plan: Plan, slots: Slots) -> pa.Array:
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

    def _scalar(self, node: Scalar, plan: Plan, slots: Slots) -> pa.Array:
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

    def struct(self, fields: tuple[Field, ...], plans: tuple[Plan, ...], slots: Slots) -> pa.Array:
        """The struct of those fields."""
        arrays = [self.array(plan, slots.required()) for plan in plans]
        return _struct_array(arrays, [arrow_field(field.name, field.type) for field in fields], slots)

    def _list(self, plan: Plan, slots: Slots) -> pa.Array:
        offsets = self._offsets(plan.streams[0], slots)
        count = int(np.frombuffer(offsets, np.int32)[-1])
        items = [self.array(part, Slots(count)) for part in plan.parts]
        kind = arrow_type(plan.node)
        if len(items) == 2:
            entries = [pa.field("key", pa.string(), nullable=False), kind.item_field]
            items = [_struct_array(items, entries, Slots(count))]
        return _from_buffers(kind, slots, [offsets], items)

    def _union(self, node: Union, plan: Plan, slots: Slots) -> pa.Array:
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
        """Values of `width` bytes each, moved apart so that unused places have room."""
        if slots.used is None:
            return values
        self._spend(slots.count * width)
        spread = np.zeros((slots.count, width), np.uint8)
        kind = np.dtype(f"V{width}")
        spread.view(kind)[:, 0][slots.used] = values.view(kind)
        return spread.reshape(-1)

    def _offsets(self, stream: int, slots: Slots) -> pa.Buffer:
        """Offsets in which an unused place is of length zero."""
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
    """How many bytes the widest buffer takes for a null."""
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
