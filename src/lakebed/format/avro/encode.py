"""Compiles Arrow columns and a writer schema to the program that encodes them, with the addresses of their buffers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.format.avro.schema import is_nullable
from lakebed.format.avro.types import STRING, Array, AvroType, Field, Map, Record, Scalar, Union, Wire, is_null
from lakebed.kernels import avro_encode as ops

_OPERANDS = 5
_PLAIN = {Wire.BOOLEAN: ops.BOOLEAN, Wire.INT: ops.INT, Wire.LONG: ops.LONG, Wire.ENUM: ops.INT}


@dataclass(frozen=True, slots=True)
class Binding:
    """The program, the field of each instruction, and the arrays that must be kept alive while it runs."""

    code: npt.NDArray[np.int64]
    wheres: tuple[str, ...]
    loop_depth: int
    arrays: tuple[pa.Array, ...]

    @property
    def memory(self) -> list[ops.Memory]:
        """The buffers of the arrays."""
        buffers = {buffer.address: buffer for array in self.arrays for buffer in array.buffers() if buffer is not None}
        return [ops.Memory(address, memoryview(buffer)) for address, buffer in sorted(buffers.items())]


def bind(batch: pa.RecordBatch, record: Record) -> Binding:
    """The program that writes the batch's rows as datums of `record`.

    Columns are found by name and cast to the schema's types. A missing column is null if it is nullable; a column that
    the schema lacks, or that cannot be cast, raises InvalidInputError.
    """
    binder = _Binder()
    binder.fields(record.fields, batch.schema.names, batch.columns, "")
    return binder.finish()


class _Binder:
    """Appends instructions; targets of forward jumps are filled in later."""

    def __init__(self) -> None:
        self._code: list[list[int]] = []
        self._wheres: list[str] = []
        self._arrays: list[pa.Array] = []
        self._depth = 0
        self._depth_max = 0

    def finish(self) -> Binding:
        self._emit("", ops.END)
        code = np.array([row + [0] * (1 + _OPERANDS - len(row)) for row in self._code], dtype=np.int64)
        return Binding(code, tuple(self._wheres), self._depth_max, tuple(self._arrays))

    def fields(self, fields: Sequence[Field], names: Sequence[str], arrays: Sequence[pa.Array], where: str) -> None:
        schema_names = {field.name for field in fields}
        for name, times in Counter(names).items():
            if name not in schema_names:
                raise _refused(where + name, "is not in the Avro schema")
            if times > 1:
                raise _refused(where + name, "is given twice")
        known = dict(zip(names, arrays, strict=True))
        for field in fields:
            self._any(field.type, known.get(field.name), where + field.name)

    def _emit(self, where: str, *row: int) -> int:
        self._code.append(list(row))
        self._wheres.append(where)
        return len(self._code) - 1

    def _any(self, node: AvroType, array: pa.Array | None, where: str) -> None:
        """The value of a field, item or entry, null or not; without an array it is null."""
        if array is None or (pat.is_null(array.type) and is_nullable(node)):
            self._missing(node, where)
            return
        array = _plain(array)
        if isinstance(node, Union):
            self._union(node, array, where)
        else:
            if array.null_count and not is_null(node):
                self._emit(where, ops.PRESENT, *self._validity(array))
            self._value(node, array, where)

    def _missing(self, node: AvroType, where: str) -> None:
        if isinstance(node, Union) and node.null_branch is not None:
            self._emit(where, ops.CONSTANT, node.null_branch)
        elif not is_null(node):
            raise _refused(where, "is missing, though the Avro schema has no null there")

    def _value(self, node: AvroType, array: pa.Array, where: str) -> None:
        match node:
            case Scalar():
                self._scalar(node, array, where)
            case Record(fields=fields):
                self._struct(fields, array, where)
            case Array(item=item):
                lists = self._lists(array, where)
                self._blocks(lists, [(item, lists.values)], where)
            case Map(value=value):
                if not pat.is_map(array.type):
                    raise _refused(where, f"is of type {array.type}, a map in the Avro schema")
                self._blocks(array, [(STRING, array.keys), (value, array.items)], where)
            case Union():
                raise AssertionError("a union is never directly in a union")

    def _struct(self, fields: Sequence[Field], array: pa.Array, where: str) -> None:
        names, children = _children(array, where)
        self.fields(fields, names, children, f"{where}.")

    def _lists(self, array: pa.Array, where: str) -> pa.Array:
        if pat.is_list(array.type):
            return array
        if not (pat.is_large_list(array.type) or pat.is_fixed_size_list(array.type)):
            raise _refused(where, f"is of type {array.type}, an array in the Avro schema")
        return _cast(array, pa.list_(array.type.value_field), where)

    def _blocks(self, array: pa.Array, parts: list[tuple[AvroType, pa.Array]], where: str) -> None:
        self._depth += 1
        self._depth_max = max(self._depth_max, self._depth)
        at = self._emit(where, ops.BLOCKS, self._address(array, 1, 4))
        for node, part in parts:
            self._any(node, part, f"{where}[]")
        self._code[at].append(len(self._code))
        self._emit(where, ops.NEXT, at + 1)
        self._depth -= 1

    def _union(self, node: Union, array: pa.Array, where: str) -> None:
        values = node.value_branches
        if len(values) > 1:
            self._branches(node, array, where)
        elif len(node.branches) == 2 and node.null_branch is not None:
            at = self._emit(where, ops.NULLABLE, *self._validity(array), node.null_branch)
            self._value(node.branches[values[0]], array, where)
            self._code[at].append(len(self._code))
        else:
            self._emit(where, ops.CONSTANT, 0)
            self._any(node.branches[0], array, where)

    def _branches(self, node: Union, array: pa.Array, where: str) -> None:
        names, children = _children(array, where)
        unknown = set(names) - {node.labels[index] for index in node.value_branches}
        if unknown:
            raise _refused(f"{where}.{min(unknown)}", "is no branch of the union in the Avro schema")
        known = {name: _plain(child) for name, child in zip(names, children, strict=True) if child.type != pa.null()}
        branches = [index for index in node.value_branches if node.labels[index] in known]
        null_branch = -1 if node.null_branch is None else node.null_branch
        at = self._emit(where, ops.UNION, *self._validity(array), null_branch)
        rows = [self._emit(where, ops.BRANCH, *self._validity(known[node.labels[index]]), index) for index in branches]
        exits = []
        for row, index in zip(rows, branches, strict=True):
            self._code[row].append(len(self._code))
            self._value(node.branches[index], known[node.labels[index]], f"{where}.{node.labels[index]}")
            exits.append(self._emit(where, ops.JUMP))
        self._code[at] += [len(self._code), len(rows)]
        for leave in exits:
            self._code[leave].append(len(self._code))

    def _scalar(self, node: Scalar, array: pa.Array, where: str) -> None:
        if node.wire is Wire.NULL:
            if array.null_count < len(array):
                raise _refused(where, "has values, though the Avro schema has only null there")
            return
        array = _symbols(array, node, where) if node.wire is Wire.ENUM else _cast(array, node.arrow, where)
        match node.wire:
            case Wire.BYTES:
                self._emit(where, ops.BYTES, self._address(array, 1, 4), self._address(array, 2, 0))
            case Wire.DECIMAL_BYTES | Wire.DECIMAL_FIXED:
                width = node.arrow.byte_width
                self._emit(where, ops.DECIMAL, self._address(array, 1, width), width, node.size or -1)
            case Wire.FIXED | Wire.FLOAT | Wire.DOUBLE:
                width = node.arrow.byte_width
                self._emit(where, ops.FIXED, self._address(array, 1, width), width)
            case Wire.BOOLEAN:
                self._emit(where, ops.BOOLEAN, self._address(array, 1, 0), array.offset)
            case wire:
                self._emit(where, _PLAIN[wire], self._address(array, 1, array.type.byte_width))

    def _address(self, array: pa.Array, buffer: int, width: int) -> int:
        """The address of the array's first item in a buffer."""
        self._arrays.append(array)
        found = array.buffers()[buffer]
        return 0 if found is None else int(found.address) + array.offset * width

    def _validity(self, array: pa.Array) -> tuple[int, int]:
        """The bitmap of an array and its first bit."""
        self._arrays.append(array)
        bitmap = array.buffers()[0]
        return (0, 0) if bitmap is None else (int(bitmap.address), array.offset)


def _plain(array: pa.Array) -> pa.Array:
    """The array without a dictionary, whose values may be null, too."""
    return array.dictionary_decode() if pat.is_dictionary(array.type) else array


def _children(array: pa.Array, where: str) -> tuple[list[str], list[pa.Array]]:
    if not pat.is_struct(array.type):
        raise _refused(where, f"is of type {array.type}, a record or union in the Avro schema")
    return [field.name for field in array.type.fields], [array.field(index) for index in range(array.type.num_fields)]


def _cast(array: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowException as error:
        raise _refused(where, f"cannot be written as {kind} ({error})") from error


def _symbols(array: pa.Array, node: Scalar, where: str) -> pa.Array:
    index = pc.index_in(_cast(array, pa.string(), where), pa.array(node.symbols, pa.string()))
    if index.null_count > array.null_count:
        raise _refused(where, f"has values that enum {node.name} does not")
    return index


def _refused(where: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"column {where} {what}", hint="make the rows fit the table's schema")
