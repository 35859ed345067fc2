"""Many records at once, in compiled code: data blocks to Arrow arrays, and Arrow arrays to data blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile import record_kernels as kernels
from lakebed.format.hfile.arrow import binary_array, value_array
from lakebed.format.hfile.deflate import deflate_records
from lakebed.format.hfile.layout import RECORD_BYTES
from lakebed.format.hfile.native import Bytes, Int32s, Int64s, Words
from lakebed.format.hfile.payload import gzip_member
from lakebed.format.hfile.reader import HFile

_DISTINCT_MAX = 4096
"""With more distinct values too few of them recur within deflate's reach of 32 KiB."""
_SEARCH_GAIN = 0.98
"""Searching keys takes half as long again: it must save this much."""
_GENERAL_LEVEL = 3


@dataclass(frozen=True, slots=True)
class FramedBlock:
    """The content of a data block, and where its records lie in it."""

    data: Bytes
    starts: Int64s
    tails: Int64s
    value_ids: Int32s
    value_count: int


_Item = TypeVar("_Item", bound=np.generic)
Compressor = Callable[[FramedBlock], bytes]


def decode_records(file: HFile) -> tuple[ArrowArray, ArrowArray]:
    """Keys and values of a file, block by block: only the keys and the distinct values are kept."""
    values = _DistinctValues()
    rows, lengths, ids, plain_bytes = [np.empty(0, np.uint8)], [np.zeros(1, np.int64)], [np.empty(0, np.int32)], 0
    for offset, size in file.data_blocks():
        block = np.frombuffer(file.read_data_block(offset, size), np.uint8)
        spans = _find_records(block, file.path, offset)
        lengths.append(spans[:, 1].astype(np.int64))
        rows.append(np.empty(lengths[-1].sum(), np.uint8))
        kernels.copy_rows(block, spans, rows[-1])
        ids.append(values.number(block, spans))
        plain_bytes += int(spans[:, 3].sum(dtype=np.int64))
    offsets = np.cumsum(np.concatenate(lengths))
    file.check_count(len(offsets) - 1)
    return (
        binary_array(np.concatenate(rows), offsets),
        value_array(values.array(), np.concatenate(ids), plain_bytes),
    )


def _find_records(block: Bytes, path: str, offset: int) -> Int32s:
    spans = np.empty((len(block) // kernels.SPAN_BYTES_MIN + 1, 4), np.int32)
    count = kernels.find_records(block, spans)
    if count < 0:
        raise CorruptTableError(f"broken record at byte {-1 - count} of the block", path=path, offset=offset)
    return spans[:count]


class _DistinctValues:
    """Numbers equal values equally, over all blocks of a file."""

    def __init__(self) -> None:
        self._count = 0
        self._slots: Int32s = np.zeros(1024, np.int32)
        self._hashes: Words = np.empty(512, np.uint64)
        self._offsets: Int64s = np.zeros(513, np.int64)
        self._data: Bytes = np.empty(65536, np.uint8)

    def number(self, block: Bytes, spans: Int32s) -> Int32s:
        """The number of each span's value."""
        self._reserve(self._count + len(spans), int(self._offsets[self._count] + spans[:, 3].sum(dtype=np.int64)))
        ids = np.empty(len(spans), np.int32)
        self._count = kernels.number_values(
            block, spans, ids, self._slots, self._hashes, self._offsets, self._data, self._count
        )
        return ids

    def array(self) -> ArrowArray:
        """Values by number."""
        offsets = self._offsets[: self._count + 1].copy()
        return binary_array(self._data[: offsets[-1]].copy(), offsets)

    def _reserve(self, count: int, size: int) -> None:
        """Room for `count` values of `size` bytes together, whatever the block brings."""
        if count > len(self._hashes):
            room = 1 << count.bit_length()
            self._hashes = _grown(self._hashes, room)
            self._offsets = _grown(self._offsets, room + 1)
            self._slots = np.zeros(2 * room, np.int32)
            kernels.fill_slots(self._hashes[: self._count], self._slots)
        if size > len(self._data):
            self._data = _grown(self._data, max(size, 2 * len(self._data)))


def _grown(array: npt.NDArray[_Item], length: int) -> npt.NDArray[_Item]:
    grown = np.empty(length, array.dtype)
    grown[: len(array)] = array
    return grown


def frame_blocks(
    rows: tuple[Bytes, Int64s],
    values: tuple[Bytes, Int64s],
    value_ids: Int32s,
    order: Int64s,
    *,
    block_bytes_max: int,
) -> Iterator[tuple[int, FramedBlock]]:
    """Data blocks of the records taken in `order`, each with the row it starts with.

    A block ends before the record that would take it beyond `block_bytes_max`. It is good until the next one is made.
    """
    value_lengths = np.diff(values[1])
    assert len(value_ids) == 0 or 0 <= value_ids.min() <= value_ids.max() < len(value_lengths)
    ordered_ids = value_ids[order]
    ends = np.cumsum(np.diff(rows[1])[order] + value_lengths[ordered_ids] + RECORD_BYTES)
    out = np.empty(0, np.uint8)
    first = before = 0
    while first < len(order):
        last = max(int(np.searchsorted(ends, before + block_bytes_max, side="right")), first + 1)
        starts = np.concatenate(((before,), ends[first:last])) - before
        tails = np.empty(last - first, np.int64)
        if starts[-1] > len(out):
            out = np.empty(max(starts[-1], min(block_bytes_max, ends[-1])), np.uint8)
        data, ids = out[: starts[-1]], ordered_ids[first:last]
        is_ascending = kernels.frame_records(*rows, order, first, last, *values, ids, data, starts, tails)
        assert is_ascending, "keys are not in ascending order, or not unique"
        yield int(order[first]), FramedBlock(data, starts, tails, ids, len(value_lengths))
        first, before = last, ends[last - 1]


def choose_compressor(block: FramedBlock) -> Compressor:
    """What makes the first block of a file smallest; further blocks are of the same kind."""
    if block.value_count > _DISTINCT_MAX:
        return compress_general
    plain, searching = len(compress_records(block)), len(compress_searching(block))
    best: tuple[int, Compressor] = (plain, compress_records)
    if searching < _SEARCH_GAIN * plain:
        best = (searching, compress_searching)
    return compress_general if len(compress_general(block)) < best[0] else best[1]


def compress_records(block: FramedBlock) -> bytes:
    """A gzip member: values by their last occurrence, the rest of keys literally."""
    return _member(block, search_keys=False)


def compress_searching(block: FramedBlock) -> bytes:
    """A gzip member: as `compress_records`, with matches all through the keys."""
    return _member(block, search_keys=True)


def compress_general(block: FramedBlock) -> bytes:
    """A gzip member by a deflate that knows nothing of records."""
    return bytes(isal_zlib.compress(block.data, _GENERAL_LEVEL, wbits=31))


def _member(block: FramedBlock, *, search_keys: bool) -> bytes:
    deflated = deflate_records(
        block.data, block.starts, block.tails, block.value_ids, block.value_count, search_keys=search_keys
    )
    return gzip_member(deflated, block.data.data)
