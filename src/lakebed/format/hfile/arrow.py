"""A whole HFile as Arrow arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.order import SMALL_COUNT
from lakebed.format.hfile.reader import HFile
from lakebed.model.source import ByteSource, BytesSource

_OFFSET_MAX = 2**31 - 1


def decode_hfile(source: ByteSource) -> pa.RecordBatch:
    """All records in key order: `key` binary, `value` a dictionary of binary, or binary if most values differ.

    Keys or values of more than 2 GiB together come as large_binary. Reads the file at once.
    """
    return all_records(HFile.open(BytesSource(source.read(0, source.size), source.path)))


def all_records(file: HFile) -> pa.RecordBatch:
    """What `decode_hfile` gives, of a file that is open already; its data blocks are read one by one."""
    if file.entry_count <= SMALL_COUNT:
        keys, values = _decode_small(file)
    else:
        from lakebed.format.hfile.bulk import decode_records

        keys, values = decode_records(file)
    return pa.record_batch([keys, values], names=["key", "value"])


def binary_array(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> ArrowArray:
    """The binary array of bytes and 64-bit offsets, with 32-bit offsets where they suffice."""
    is_large = offsets[-1] > _OFFSET_MAX
    kind, width = (pa.large_binary(), np.int64) if is_large else (pa.binary(), np.int32)
    buffers = [None, pa.py_buffer(offsets.astype(width, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def value_array(distinct: ArrowArray, ids: npt.NDArray[np.int32] | list[int]) -> ArrowArray:
    """Values from the distinct ones: as a dictionary, unless that would hold most of them once."""
    indices = pa.array(ids, pa.int32())
    if len(distinct) <= len(ids) // 2:
        return pa.DictionaryArray.from_arrays(indices, distinct)
    if pc.sum(pc.binary_length(distinct).take(indices)).as_py() > _OFFSET_MAX:
        distinct = distinct.cast(pa.large_binary())
    return distinct.take(indices)


def _decode_small(file: HFile) -> tuple[ArrowArray, ArrowArray]:
    numbers: dict[bytes, int] = {}
    rows: list[bytes] = []
    ids: list[int] = []
    for row, value in file.items():
        rows.append(row)
        ids.append(numbers.setdefault(value, len(numbers)))
    return pa.array(rows, pa.binary()), value_array(pa.array(list(numbers), pa.binary()), ids)
