"""Many records at once, in compiled code: data blocks to Arrow arrays, and Arrow arrays to data blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile import record_kernels as kernels
from lakebed.format.hfile.arrow import binary_array, value_array
from lakebed.format.hfile.deflate import deflate_blocks
from lakebed.format.hfile.layout import RECORD_BYTES, Packing
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


_RUN_BYTES = 1 << 20
_RUN_BLOCKS_MAX = 64
"""Blocks are framed and compressed so many at once: each call takes longer than it should look from outside."""


@dataclass(frozen=True, slots=True)
class FramedBlocks:
    """The content of some data blocks, one after the other, and where their records lie.

    `block_ends` and `record_ends` have, behind a zero, where each block ends in `data` and among the records. `starts`
    has one element more per block than it has records: where they start in their block, and where they end. `tails` are
    where their keys end in it.
    """

    data: Bytes
    block_ends: Int64s
    starts: Int64s
    tails: Int64s
    value_ids: Int32s
    record_ends: Int64s
    value_count: int

    def contents(self) -> list[memoryview]:
        """The content of each block."""
        return [self.data.data[start:end] for start, end in pairwise(self.block_ends.tolist())]

    def beginning(self) -> FramedBlocks:
        """Some records of the first block, enough to tell how all compress."""
        count = max(1, int(self.record_ends[1]) // _TRIAL_SHARE)
        size = int(self.starts[count])
        ends = np.array([0, size]), np.array([0, count])
        records = self.starts[: count + 1], self.tails[:count], self.value_ids[:count]
        return FramedBlocks(self.data[:size], ends[0], *records, ends[1], self.value_count)


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """Bytes of all rows and of all values, and of the longest."""

    rows: int
    values: int
    longest_row: int
    longest_value: int


_Item = TypeVar("_Item", bound=np.generic)
Compressor = Callable[[FramedBlocks], list[bytes]]


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


def measure_records(rows: Int64s, values: Int64s, value_ids: Int32s, order: Int64s) -> RecordSizes:
    """The sizes of the records taken in `order`, by the offsets of rows and of values."""
    sizes = RecordSizes(*kernels.measure_records(rows, order, values, value_ids))
    assert sizes.rows >= 0, f"row {-1 - sizes.rows} is not there, or its value is not"
    return sizes


def frame_blocks(
    rows: tuple[Bytes, Int64s],
    values: tuple[Bytes, Int64s],
    value_ids: Int32s,
    order: Int64s,
    sizes: RecordSizes,
    *,
    block_bytes_max: int,
) -> Iterator[tuple[Int64s, FramedBlocks]]:
    """Data blocks of the records taken in `order`, with these `sizes`, some at a time; and the row each starts with.

    A block ends before the record that would take it beyond `block_bytes_max`. Blocks are good until the next are made.
    """
    total = RECORD_BYTES * len(order) + sizes.rows + sizes.values
    room = max(block_bytes_max, RECORD_BYTES + sizes.longest_row + sizes.longest_value)
    out = np.empty(min(total, room + _RUN_BYTES), np.uint8)
    count_max, first = len(out) // RECORD_BYTES, 0
    starts, tails = np.empty(count_max + _RUN_BLOCKS_MAX, np.int64), np.empty(count_max, np.int64)
    ids = np.empty(count_max, np.int32)
    while first < len(order):
        ends, counts = np.zeros(_RUN_BLOCKS_MAX + 1, np.int64), np.zeros(_RUN_BLOCKS_MAX + 1, np.int64)
        blocks = kernels.frame_blocks(
            *rows, order, first, *values, value_ids, out, block_bytes_max, room, total, starts, tails, ids, ends, counts
        )
        assert blocks > 0, f"key {-1 - blocks} is not above the key before"
        ends, counts, count = ends[: blocks + 1], counts[: blocks + 1], int(counts[blocks])
        records = starts[: count + blocks], tails[:count], ids[:count]
        yield (
            order[first + counts[:-1]],
            FramedBlocks(out[: ends[-1]], ends, *records, counts, len(values[1]) - 1),
        )
        first += count
        total -= int(ends[-1])


def choose_packing(blocks: FramedBlocks) -> Packing:
    """What makes the beginning of the first block smallest; all blocks of a file are of the same kind."""
    if blocks.value_count > _DISTINCT_MAX:
        return "general"
    some = blocks.beginning()
    sizes = {packing: len(compress(some)[0]) for packing, compress in COMPRESSORS.items()}
    best: Packing = "searching" if sizes["searching"] < _SEARCH_GAIN * sizes["records"] else "records"
    return "general" if sizes["general"] < sizes[best] else best


def compress_records(blocks: FramedBlocks) -> list[bytes]:
    """A gzip member for each: values by their last occurrence, the rest of keys literally."""
    return _members(blocks, search_keys=False)


def compress_searching(blocks: FramedBlocks) -> list[bytes]:
    """A gzip member for each: as `compress_records`, with matches all through the keys."""
    return _members(blocks, search_keys=True)


def compress_general(blocks: FramedBlocks) -> list[bytes]:
    """A gzip member for each by a deflate that knows nothing of records."""
    return [bytes(isal_zlib.compress(content, _GENERAL_LEVEL, wbits=31)) for content in blocks.contents()]


def _members(blocks: FramedBlocks, *, search_keys: bool) -> list[bytes]:
    deflated = deflate_blocks(
        blocks.data,
        blocks.block_ends,
        blocks.starts,
        blocks.tails,
        blocks.value_ids,
        blocks.record_ends,
        blocks.value_count,
        search_keys=search_keys,
    )
    return [*map(gzip_member, deflated, blocks.contents())]


COMPRESSORS: Mapping[Packing, Compressor] = MappingProxyType(
    {"records": compress_records, "searching": compress_searching, "general": compress_general}
)
