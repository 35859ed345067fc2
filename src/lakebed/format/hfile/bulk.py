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
_TRIAL_SHARE = 4
"""One in so many records of a block is compressed in every way, to find the best."""


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
    rows, values = _Rows(), _Values()
    for offset, size in file.data_blocks():
        block = np.frombuffer(file.read_data_block(offset, size), np.uint8)
        spans = _find_records(block, file.path, offset)
        rows.append(block, spans)
        values.append(block, spans)
    file.check_count(rows.count)
    return rows.array(), values.array()


def _find_records(block: Bytes, path: str, offset: int) -> Int32s:
    spans = np.empty((len(block) // kernels.SPAN_BYTES_MIN + 1, 4), np.int32)
    count = kernels.find_records(block, spans)
    if count < 0:
        raise CorruptTableError(f"broken record at byte {-1 - count} of the block", path=path, offset=offset)
    return spans[:count]


class _Rows:
    """The rows of all blocks of a file, one after the other."""

    def __init__(self) -> None:
        self.count = 0
        self._ends: Int64s = np.zeros(1, np.int64)
        self._data: Bytes = np.empty(0, np.uint8)

    def append(self, block: Bytes, spans: Int32s) -> None:
        """Keep the row of each span."""
        first, self.count = self.count, self.count + len(spans)
        self._data = _grown(self._data, int(self._ends[first]) + len(block))
        self._ends = _grown(self._ends, self.count + 1)
        kernels.copy_rows(block, spans, self._data, self._ends[first : self.count + 1])

    def array(self) -> ArrowArray:
        """Rows in their order."""
        ends = self._ends[: self.count + 1]
        return binary_array(self._data[: ends[-1]], ends)


class _Values:
    """The values of all blocks of a file: equal ones are kept once, under one number."""

    def __init__(self) -> None:
        self._count = self._distinct = 0
        self._ids: Int32s = np.empty(0, np.int32)
        self._slots: Int32s = np.zeros(1024, np.int32)
        self._hashes: Words = np.empty(512, np.uint64)
        self._offsets: Int64s = np.zeros(513, np.int64)
        self._data: Bytes = np.empty(0, np.uint8)

    def append(self, block: Bytes, spans: Int32s) -> None:
        """Number the value of each span."""
        self._reserve(self._distinct + len(spans), int(self._offsets[self._distinct]) + len(block))
        first, self._count = self._count, self._count + len(spans)
        self._ids = _grown(self._ids, self._count)
        ids = self._ids[first : self._count]
        self._distinct = kernels.number_values(
            block, spans, ids, self._slots, self._hashes, self._offsets, self._data, self._distinct
        )

    def array(self) -> ArrowArray:
        """Values in their order."""
        offsets = self._offsets[: self._distinct + 1]
        return value_array(binary_array(self._data[: offsets[-1]].copy(), offsets), self._ids[: self._count])

    def _reserve(self, count: int, size: int) -> None:
        """Room for `count` distinct values of `size` bytes together, whatever the block brings."""
        self._data = _grown(self._data, size)
        if count > len(self._hashes):
            self._hashes = _grown(self._hashes, count)
            self._offsets = _grown(self._offsets, len(self._hashes) + 1)
            self._slots = np.zeros(2 << len(self._hashes).bit_length(), np.int32)
            kernels.fill_slots(self._hashes[: self._distinct], self._slots)


def _grown(array: npt.NDArray[_Item], length: int) -> npt.NDArray[_Item]:
    """The array itself if it has the length, else a copy with room for as much again."""
    if len(array) >= length:
        return array
    grown = np.empty(2 * length, array.dtype)
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
    row_lengths, value_lengths = np.diff(rows[1]), np.diff(values[1])
    assert len(value_ids) == 0 or 0 <= value_ids.min() <= value_ids.max() < len(value_lengths)
    largest = RECORD_BYTES + int(row_lengths.max(initial=0) + value_lengths.max(initial=0))
    out = np.empty(max(largest, min(block_bytes_max, largest * len(order))), np.uint8)
    count_max, first = 1 + min(block_bytes_max // RECORD_BYTES, len(order)), 0
    while first < len(order):
        starts, tails = np.empty(count_max + 1, np.int64), np.empty(count_max, np.int64)
        ids = np.empty(count_max, np.int32)
        count = kernels.frame_records(*rows, order, first, *values, value_ids, out, block_bytes_max, starts, tails, ids)
        assert count > 0, f"key {-1 - count} is not above the key before"
        data = out[: starts[count]]
        yield int(order[first]), FramedBlock(data, starts[: count + 1], tails[:count], ids[:count], len(value_lengths))
        first += count


def choose_compressor(block: FramedBlock) -> Compressor:
    """What makes the beginning of a file's first block smallest; all its blocks are of the same kind."""
    if block.value_count > _DISTINCT_MAX:
        return compress_general
    block = _beginning(block)
    plain, searching = len(compress_records(block)), len(compress_searching(block))
    best: tuple[int, Compressor] = (plain, compress_records)
    if searching < _SEARCH_GAIN * plain:
        best = (searching, compress_searching)
    return compress_general if len(compress_general(block)) < best[0] else best[1]


def _beginning(block: FramedBlock) -> FramedBlock:
    """Some of a block's records, enough to tell how they compress."""
    count = max(1, len(block.tails) // _TRIAL_SHARE)
    starts = block.starts[: count + 1]
    return FramedBlock(
        block.data[: starts[-1]], starts, block.tails[:count], block.value_ids[:count], block.value_count
    )


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
