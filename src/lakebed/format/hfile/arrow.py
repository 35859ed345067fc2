"""HFiles and Arrow: whole files decoded, keys sorted, and blocks of many records compressed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal import isal_zlib

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.layout import Packing, gzip_member
from lakebed.format.hfile.reader import HFile
from lakebed.kernels import hfile_records as kernels
from lakebed.kernels.buffers import Bytes, Int64s
from lakebed.kernels.choice import uses_compiled
from lakebed.kernels.hfile_records import BrokenRecordError, FramedBlocks
from lakebed.kernels.ordering import sort_groups
from lakebed.model.source import ByteSource, BytesSource

SMALL_COUNT = 2048
"""Maximum number of records of a file that is written byte for byte as Apache Hudi does."""
_DISTINCT_MAX = 4096
"""Maximum number of distinct values for which packing `records` may pay; more recur too rarely within 32 KiB."""
_SEARCH_GAIN = 0.98
"""Maximum ratio of sizes at which searching keys pays; it takes half as long again."""
_GENERAL_LEVEL = 3
_OFFSET_MAX = 2**31 - 1
Compressor = Callable[[FramedBlocks, int], list[bytes]]


def key_order(keys: ArrowArray) -> npt.NDArray[np.int64]:
    """The positions of `keys` (strings or binaries, without nulls), sorted by their bytes."""
    if len(keys) <= SMALL_COUNT:
        rows = row_bytes(keys)
        return np.array(sorted(range(len(rows)), key=rows.__getitem__), np.int64)
    return sort_groups(*binary_buffers(keys), np.empty(0, np.int32), 1)


def row_bytes(keys: ArrowArray) -> list[bytes]:
    """A few keys or values as Python bytes."""
    assert keys.null_count == 0
    return [item.encode() if isinstance(item, str) else item for item in keys.to_pylist()]


def binary_buffers(array: ArrowArray) -> tuple[Bytes, Int64s]:
    """The bytes and the offsets of an array of strings or binaries."""
    assert array.null_count == 0
    is_large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if len(array) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    every = np.frombuffer(offsets, np.int64 if is_large else np.int32)
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content, every[array.offset : array.offset + len(array) + 1].astype(np.int64)


def decode_blocks(file: HFile) -> tuple[ArrowArray, ArrowArray]:
    """Keys and values of a file, decoded block by block; only keys and distinct values are kept in memory."""
    places = [*file.data_blocks()]
    blocks = (np.frombuffer(file.read_data_block(offset, size), np.uint8) for offset, size in places)
    try:
        found = kernels.decode_records(blocks, file.entry_count)
    except BrokenRecordError as error:
        raise CorruptTableError(str(error), path=file.path, offset=places[error.block][0]) from error
    file.check_count(len(found.row_offsets) - 1)
    values = value_array(binary_array(found.values, found.value_offsets), found.value_ids)
    return binary_array(found.rows, found.row_offsets), values


def choose_packing(blocks: FramedBlocks, count: int) -> Packing:
    """The packing that compresses the beginning of the first block best; it is used for all blocks of a file."""
    if blocks.value_count > _DISTINCT_MAX or not uses_compiled(count):
        return "general"
    some = blocks.beginning()
    sizes = {packing: len(compress(some, count)[0]) for packing, compress in COMPRESSORS.items()}
    best: Packing = "searching" if sizes["searching"] < _SEARCH_GAIN * sizes["records"] else "records"
    return "general" if sizes["general"] < sizes[best] else best


def compress_records(blocks: FramedBlocks, count: int) -> list[bytes]:
    """A gzip member per block: values as references to their last occurrence, the rest of keys as literals."""
    return _members(blocks, count, search_keys=False)


def compress_searching(blocks: FramedBlocks, count: int) -> list[bytes]:
    """A gzip member per block, as `compress_records`, with matches in all parts of keys."""
    return _members(blocks, count, search_keys=True)


def compress_general(blocks: FramedBlocks, count: int) -> list[bytes]:  # noqa: ARG001
    """A gzip member per block by a general-purpose deflate."""
    return [bytes(isal_zlib.compress(content, _GENERAL_LEVEL, wbits=31)) for content in blocks.contents()]


def _members(blocks: FramedBlocks, count: int, *, search_keys: bool) -> list[bytes]:
    deflated = kernels.deflate_blocks(blocks, count, search_keys=search_keys)
    return [*map(gzip_member, deflated, blocks.contents())]


COMPRESSORS: Mapping[Packing, Compressor] = MappingProxyType(
    {"records": compress_records, "searching": compress_searching, "general": compress_general}
)


def decode_hfile(source: ByteSource) -> pa.RecordBatch:
    """All records in key order: `key` binary, `value` a dictionary of binary, or binary if most values differ.

    Keys or values of more than 2 GiB together come as large_binary. Reads the file at once.
    """
    return all_records(HFile.open(BytesSource(source.read(0, source.size), source.path)))


def all_records(file: HFile) -> pa.RecordBatch:
    """Like `decode_hfile`, for an open file; its data blocks are read one by one."""
    if file.entry_count <= SMALL_COUNT:
        keys, values = _decode_small(file)
    else:
        keys, values = decode_blocks(file)
    return pa.record_batch([keys, values], names=["key", "value"])


def binary_array(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> ArrowArray:
    """A binary array of bytes and 64-bit offsets, converted to 32-bit offsets if they suffice."""
    is_large = offsets[-1] > _OFFSET_MAX
    kind, width = (pa.large_binary(), np.int64) if is_large else (pa.binary(), np.int32)
    buffers = [None, pa.py_buffer(offsets.astype(width, copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def value_array(distinct: ArrowArray, ids: npt.NDArray[np.int32] | list[int]) -> ArrowArray:
    """Values as a dictionary array, or as a plain one if most values are distinct."""
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
