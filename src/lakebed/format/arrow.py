"""Types of Arrow arrays and kernels, and conversions that do not import pandas.

Arrow's stubs lack kernels on plain Python operands and the attributes of arrays that kernels return. So both are `Any`
here, in one place, under names that tell what they are.

`pa.array`, `pa.scalar` and `to_numpy` import pandas if it is installed, which takes longer than a key lookup. So code
on the path of a lookup converts values to arrays and back with the functions of this module.
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
"""Sample size in rows; mostly enough to see that every value of a dictionary is used."""


def text_array(texts: Sequence[str | None]) -> ArrowArray:
    """An array of strings."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(item) for item in encoded], out=offsets[1:])
    is_valid = None if all(text is not None for text in texts) else _bits([text is not None for text in texts])
    buffers = [is_valid, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def texts_between(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], kind: pa.DataType) -> ArrowArray:
    """An array of type `kind` from the bytes of strings and their offsets."""
    width = np.int64 if kind == pa.large_string() else np.int32
    buffers = [None, pa.py_buffer(offsets.astype(width, copy=False)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def number_array(values: npt.NDArray[Any], kind: pa.DataType) -> ArrowArray:
    """An array of numbers without nulls, without a copy; `kind` has their width."""
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(data), [None, pa.py_buffer(data)])


def position_array(positions: npt.NDArray[np.int64]) -> ArrowArray:
    """An array of positions for `take`."""
    return number_array(positions.astype(np.int64, copy=False), pa.int64())


def flag_array(flags: npt.NDArray[np.bool_]) -> ArrowArray:
    """A boolean array for `filter`."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, _bits(flags)])


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def ints_of(values: ArrowArray) -> npt.NDArray[np.int64]:
    """Integers of any width, without nulls, as 64-bit numbers."""
    return _numbers(values, pa.int64(), np.dtype(np.int64)).copy()


def flags_of(values: ArrowArray) -> npt.NDArray[np.bool_]:
    """Booleans without nulls, as numpy has them."""
    flags: npt.NDArray[np.bool_] = _numbers(values, pa.uint8(), np.dtype(np.uint8)) != 0
    return flags


def without_unused(values: ArrowArray) -> ArrowArray:
    """A dictionary array without the values of its dictionary that no row uses."""
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
    """A key that is equal for columns over the same memory; a nested column equals only itself."""
    if pa.types.is_nested(column.type):
        return object()
    return str(column.type), *(_place(chunk) for chunk in column.chunks)


def _place(array: pa.Array) -> Hashable:
    nested = _place(array.dictionary) if pa.types.is_dictionary(array.type) else None
    buffers = tuple(b if b is None else (b.address, b.size) for b in array.buffers())
    return len(array), array.offset, buffers, nested
