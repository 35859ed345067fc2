"""Arrow arrays and kernels for the type checker, and arrays made without pandas.

Arrow's stubs know neither kernels on plain Python operands nor the attributes of the arrays that kernels give, so both
are left unchecked here, once, under names that still say what they are.

`pa.array`, `pa.scalar` and `to_numpy` import pandas where it is installed, to recognise its values. That takes longer
than a key lookup may, so what a lookup runs through turns values into arrays, and back, here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

ArrowArray: TypeAlias = Any
"""A `pyarrow.Array`."""

pc: Any = pyarrow.compute
_SOME_ROWS = 4096
"""Enough to see most often that every value of a dictionary is used."""


def text_array(texts: Sequence[str | None]) -> ArrowArray:
    """An array of strings."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(item) for item in encoded], out=offsets[1:])
    is_valid = None if all(text is not None for text in texts) else _bits([text is not None for text in texts])
    buffers = [is_valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def texts_between(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: pa.DataType) -> ArrowArray:
    """The strings of `kind` that lie in `data` between `offsets`."""
    width = np.int64 if kind == pa.large_string() else np.int32
    buffers = [None, pa.py_buffer(offsets.astype(width, copy=False)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def number_array(values: npt.NDArray[Any], kind: pa.DataType) -> ArrowArray:
    """An array over numbers as they lie in memory, without nulls; `kind` has their width."""
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


def position_array(positions: npt.NDArray[np.int64]) -> ArrowArray:
    """Positions for `take`."""
    return number_array(positions.astype(np.int64, copy=False), pa.int64())


def flag_array(flags: npt.NDArray[np.bool_]) -> ArrowArray:
    """Flags for `filter`."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def ints_of(values: ArrowArray) -> npt.NDArray[np.int64]:
    """Integers without nulls, of whatever width, as 64-bit ones."""
    return _numbers(values, pa.int64(), np.dtype(np.int64)).copy()


def flags_of(values: ArrowArray) -> npt.NDArray[np.bool_]:
    """Flags without nulls."""
    flags: npt.NDArray[np.bool_] = _numbers(values, pa.uint8(), np.dtype(np.uint8)) != 0
    return flags


def without_unused(values: ArrowArray) -> ArrowArray:
    """The same values, of a dictionary, with a dictionary of these alone."""
    is_used = np.zeros(len(values.dictionary), bool)
    indices = values.indices.drop_null().to_numpy()
    is_used[indices[:: len(indices) // _SOME_ROWS + 1]] = True
    if is_used.all():
        return values
    is_used[indices] = True
    used = np.flatnonzero(is_used)
    if len(used) == len(values.dictionary):
        return values
    numbers = np.zeros(len(values.dictionary), np.int32)
    numbers[used] = np.arange(len(used))
    return pa.DictionaryArray.from_arrays(
        pa.array(numbers).take(values.indices), values.dictionary.take(pa.array(used))
    )


def _numbers(values: ArrowArray, kind: pa.DataType, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    assert values.null_count == 0
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    plain = whole.cast(kind, safe=False)
    if not len(plain):
        return np.empty(0, dtype)
    return np.frombuffer(plain.buffers()[1], dtype, len(plain), plain.offset * dtype.itemsize)


def _bits(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(np.asarray(flags, bool), bitorder="little"))


def identity(column: pa.ChunkedArray) -> Hashable:
    """What is equal for columns that are the same values in the same memory; of nested ones each is its own."""
    if pa.types.is_nested(column.type):
        return object()
    return str(column.type), *(_place(chunk) for chunk in column.chunks)


def _place(array: pa.Array) -> Hashable:
    nested = _place(array.dictionary) if pa.types.is_dictionary(array.type) else None
    buffers = tuple(b if b is None else (b.address, b.size) for b in array.buffers())
    return len(array), array.offset, buffers, nested
