"""Decodes and encodes records of HFile data blocks in compiled code. `kernels.hfile_records` shows their layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, Words, require
from lakebed.kernels.compiled.jit import (
    BYTES,
    INT,
    INT32S,
    INT64S,
    OUT_BYTES,
    OUT_INT32S,
    OUT_INT64S,
    OUT_TABLE_OF_INT32S,
    OUT_WORDS,
    TABLE_OF_INT32S,
    WORDS,
    Entry,
    kernel,
)
from lakebed.kernels.compiled.memory import copy_bytes, fold_product, load_word, prefetch, store_word, swap_bytes
from lakebed.kernels.compiled.ordering import compare_keys
from lakebed.kernels.hfile_records import (
    KEY_SUFFIX,
    RECORD_BYTES,
    RECORD_BYTES_MIN,
    RECORD_HEADER_BYTES,
    ROW_BYTES_MAX,
    BrokenRecordError,
    FramedBlocks,
    MeasuredRecords,
    Records,
)

_SUFFIX_BYTES = len(KEY_SUFFIX)
_SUFFIX_START = np.uint64(0xFFFFFFFFFFFF7F00)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_PROBES_MAX = 32
_AHEAD = 32
"""Prefetch distance of a row in records; its offset is prefetched twice as early.

Rows are in random order, and a cache miss takes as long as writing a record.
"""
_PAIR_BYTES = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


_RUN_BYTES = 1 << 20
_RUN_BLOCKS_MAX = 64
"""Maximum number of blocks encoded per call."""
_Item = TypeVar("_Item", bound=np.generic)


def decode_records(blocks: Iterable[Bytes]) -> tuple[Bytes, Int64s, Int32s, Bytes, Int64s]:
    """Rows and their offsets, the number of each value, distinct values and their offsets.

    Block by block: only the rows and the distinct values are kept.
    """
    rows, values = _Rows(), _Values()
    for number, block in enumerate(blocks):
        spans = np.empty((len(block) // RECORD_BYTES_MIN + 1, 4), np.int32)
        count = find_records(block, spans)
        if count < 0:
            raise BrokenRecordError(number, -1 - count)
        rows.append(block, spans[:count])
        values.append(block, spans[:count])
    return *rows.buffers(), *values.buffers()


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
        copy_rows(block, spans, self._data, self._ends[first : self.count + 1])

    def buffers(self) -> tuple[Bytes, Int64s]:
        """Rows in their order, and their offsets."""
        ends = self._ends[: self.count + 1]
        return self._data[: ends[-1]], ends


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
        self._distinct = number_values(
            block, spans, ids, self._slots, self._hashes, self._offsets, self._data, self._distinct
        )

    def buffers(self) -> tuple[Int32s, Bytes, Int64s]:
        """The number of each value, the distinct values, and their offsets."""
        offsets = self._offsets[: self._distinct + 1]
        return self._ids[: self._count], self._data[: offsets[-1]].copy(), offsets

    def _reserve(self, count: int, size: int) -> None:
        """Reserve memory for `count` more distinct values of `size` bytes in total."""
        self._data = _grown(self._data, size)
        if count > len(self._hashes):
            self._hashes = _grown(self._hashes, count)
            self._offsets = _grown(self._offsets, len(self._hashes) + 1)
            self._slots = np.zeros(2 << len(self._hashes).bit_length(), np.int32)
            fill_slots(self._hashes[: self._distinct], self._slots)


def _grown(array: npt.NDArray[_Item], length: int) -> npt.NDArray[_Item]:
    """The array itself if it is long enough, else a copy of twice the length."""
    if len(array) >= length:
        return array
    grown = np.empty(2 * length, array.dtype)
    grown[: len(array)] = array
    return grown


def measure_records(records: Records) -> tuple[int, int, int, int] | None:
    """Bytes of all rows and values, and of the longest; None if one of them is not there."""
    sizes: tuple[int, int, int, int] = sizes_of(
        records.row_offsets, records.order, records.value_offsets, records.value_ids
    )
    return None if sizes[0] < 0 else sizes


def frame_blocks(sizes: MeasuredRecords, block_bytes_max: int) -> Iterator[tuple[Int64s, FramedBlocks]]:
    """Encodes several blocks per call."""
    records = sizes.content
    rows, values = (records.rows, records.row_offsets), (records.values, records.value_offsets)
    value_ids, order = records.value_ids, records.order
    total = RECORD_BYTES * len(order) + sizes.rows + sizes.values
    room = max(block_bytes_max, RECORD_BYTES + sizes.longest_row + sizes.longest_value)
    out = np.empty(min(total, room + _RUN_BYTES), np.uint8)
    count_max, first = len(out) // RECORD_BYTES, 0
    starts, tails = np.empty(count_max + _RUN_BLOCKS_MAX, np.int64), np.empty(count_max, np.int64)
    ids = np.empty(count_max, np.int32)
    while first < len(order):
        ends, counts = np.zeros(_RUN_BLOCKS_MAX + 1, np.int64), np.zeros(_RUN_BLOCKS_MAX + 1, np.int64)
        blocks = fill_blocks(
            *rows, order, first, *values, value_ids, out, block_bytes_max, room, total, starts, tails, ids, ends, counts
        )
        require(blocks > 0, f"rows do not ascend: key {-1 - blocks} is not above the key before")
        ends, counts, count = ends[: blocks + 1], counts[: blocks + 1], int(counts[blocks])
        lie = starts[: count + blocks], tails[:count], ids[:count]
        yield (
            order[first + counts[:-1]],
            FramedBlocks(out[: ends[-1]], ends, *lie, counts, len(values[1]) - 1),
        )
        first += count
        total -= int(ends[-1])


@kernel
def _find_records(block: Bytes, spans: Int32s) -> int:
    """Fill `spans` with (row start, row length, value start, value length) of each record; their number.

    Negative, -1 - position, if the record at that position is broken. After this every span lies in the block.
    """
    at, count, end = 0, 0, len(block)
    while at < end:
        if end - at < RECORD_BYTES_MIN:
            return -1 - at
        lengths = swap_bytes(load_word(block, at))
        key_length, value_length = np.int64(lengths >> np.uint64(32)), np.int64(lengths & _LOW_HALF)
        row_length = np.int64(block[at + 8]) << 8 | np.int64(block[at + 9])
        value_at = at + 8 + key_length
        following = value_at + value_length + 1
        if row_length > min(key_length - 2, ROW_BYTES_MAX) or following > end or block[following - 1] != 0:
            return -1 - at
        spans[count, 0], spans[count, 1] = at + RECORD_HEADER_BYTES, row_length
        spans[count, 2], spans[count, 3] = value_at, value_length
        count, at = count + 1, following
    return count


@kernel
def _copy_rows(block: Bytes, spans: Int32s, rows: Bytes, ends: Int64s) -> None:
    """Append the rows of all spans to `rows`, from `ends[0]` on, and fill the rest of `ends` with where each ends.

    `rows` has room for them, `ends` one element more than there are spans.
    """
    at = ends[0]
    for span in range(len(spans)):
        copy_bytes(rows, at, block, np.int64(spans[span, 0]), np.int64(spans[span, 1]))
        at += spans[span, 1]
        ends[span + 1] = at


@kernel
def _number_values(
    block: Bytes, spans: Int32s, ids: Int32s, slots: Int32s, hashes: Words, offsets: Int64s, data: Bytes, known: int
) -> int:
    """Give equal values equal numbers; how many values are known then.

    Value i is `data[offsets[i]:offsets[i + 1]]`, its hash `hashes[i]`; `slots` (a power of two, at least twice the
    number of values) is an open hash table of i + 1. After some probes a value counts as new, so that hashes made to
    collide cost memory, not time.
    """
    mask = np.uint64(len(slots) - 1)
    for span in range(len(spans)):
        start, length = np.int64(spans[span, 2]), np.int64(spans[span, 3])
        mixed = _hash(block, start, length)
        number = -1
        for probe in range(_PROBES_MAX):
            slot = np.int64((mixed + np.uint64(probe)) & mask)
            if slots[slot] == 0:
                slots[slot] = known + 1
                break
            other = slots[slot] - 1
            if hashes[other] == mixed and _equals(block, start, length, data, offsets[other], offsets[other + 1]):
                number = other
                break
        if number < 0:
            number = known
            hashes[known], offsets[known + 1] = mixed, offsets[known] + length
            copy_bytes(data, offsets[known], block, start, length)
            known += 1
        ids[span] = number
    return known


@kernel
def _fill_slots(hashes: Words, slots: Int32s) -> None:
    """Enter values, by their hashes, into an empty and larger hash table."""
    mask = np.uint64(len(slots) - 1)
    for number in range(len(hashes)):
        for probe in range(_PROBES_MAX):
            slot = np.int64((hashes[number] + np.uint64(probe)) & mask)
            if slots[slot] == 0:
                slots[slot] = number + 1
                break


@kernel
def _hash(data: Bytes, start: int, length: int) -> np.uint64:
    """A sum of independent terms, one per pair of words; the last pair may overlap another."""
    mixed = salt = np.uint64(length) * _MIX
    if length < _PAIR_BYTES:
        for at in range(start, start + length):
            mixed = fold_product(mixed ^ np.uint64(data[at]), _MIX)
        return mixed
    at, last = start, start + length - _PAIR_BYTES
    while at < last:
        salt += _MIX
        mixed += fold_product(load_word(data, at) ^ salt, load_word(data, at + 8) ^ _MIX)
        at += _PAIR_BYTES
    return mixed + fold_product(load_word(data, last) ^ ~salt, load_word(data, last + 8) ^ _MIX)


@kernel
def _equals(block: Bytes, start: int, length: int, data: Bytes, other: int, other_end: int) -> bool:
    if other_end - other != length:
        return False
    at, last = 0, length - _PAIR_BYTES
    if last < 0:
        while at < length and block[start + at] == data[other + at]:
            at += 1
        return at == length
    differ = _pair_difference(block, start + last, data, other + last)
    while at < last:
        differ |= _pair_difference(block, start + at, data, other + at)
        at += _PAIR_BYTES
    return differ == 0


@kernel
def _pair_difference(block: Bytes, at: int, data: Bytes, other: int) -> np.uint64:
    """Zero if the 16 bytes at the two places are equal."""
    return load_word(block, at) ^ load_word(data, other) | load_word(block, at + 8) ^ load_word(data, other + 8)


@kernel
def _measure_records(
    row_offsets: Int64s, order: Int64s, value_offsets: Int64s, row_values: Int32s
) -> tuple[int, int, int, int]:
    """Bytes of the rows taken in `order` and of their values, of the longest row and of the longest value.

    The first is negative, -1 - row, if there is no such row, or none of the value that it has.
    """
    rows, values, longest_row, longest_value = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for row in order:
        if not 0 <= row < len(row_values) or not 0 <= row_values[row] < len(value_offsets) - 1:
            return -1 - row, values, longest_row, longest_value
        length = row_offsets[row + 1] - row_offsets[row]
        value_length = value_offsets[row_values[row] + 1] - value_offsets[row_values[row]]
        rows, values = rows + length, values + value_length
        longest_row, longest_value = max(longest_row, length), max(longest_value, value_length)
    return rows, values, longest_row, longest_value


@kernel
def _frame_blocks(
    row_data: Bytes,
    row_offsets: Int64s,
    order: Int64s,
    first: int,
    value_data: Bytes,
    value_offsets: Int64s,
    row_values: Int32s,
    out: Bytes,
    block_bytes_max: int,
    room: int,
    left: int,
    starts: Int64s,
    tails: Int64s,
    value_ids: Int32s,
    block_ends: Int64s,
    record_ends: Int64s,
) -> int:
    """Write blocks of the rows `order[first:]` until `out` or the arrays of ends are full; returns their number.

    `starts` gets, per block, the start of each record in the block and the end of the last. The last two arrays begin
    with a zero and get the ends of the blocks in `out` and among the records. A block takes at most `room` bytes, all
    remaining records take `left`. For the other arguments see `frame_records`.
    """
    blocks, at, record = 0, np.int64(0), np.int64(0)
    while blocks + 1 < len(block_ends) and first + record < len(order) and len(out) - at >= min(room, left - at):
        count = frame_records(
            row_data,
            row_offsets,
            order,
            first + record,
            value_data,
            value_offsets,
            row_values,
            out[at:],
            block_bytes_max,
            starts[record + blocks :],
            tails[record:],
            value_ids[record:],
        )
        if count < 0:
            return count
        at, record, blocks = at + starts[record + blocks + count], record + count, blocks + 1
        block_ends[blocks], record_ends[blocks] = at, record
    return blocks


@kernel
def frame_records(
    row_data: Bytes,
    row_offsets: Int64s,
    order: Int64s,
    first: int,
    value_data: Bytes,
    value_offsets: Int64s,
    row_values: Int32s,
    out: Bytes,
    bytes_max: int,
    starts: Int64s,
    tails: Int64s,
    value_ids: Int32s,
) -> int:
    """Write records of the rows `order[first:]`, at least one, up to `bytes_max` in total; returns their number.

    `row_values` has the number of each row's value. `starts` gets the start of each record and the end of the last,
    `tails` the end of each row, `value_ids` the number of each value. `out` has room for any one record, and for
    `bytes_max` or all records. Returns -1 - position in `order` if the row there does not ascend.
    """
    count, at = 0, np.int64(0)
    while first + count < len(order):
        row = order[first + count]
        value = row_values[row]
        row_start, value_start = row_offsets[row], value_offsets[value]
        row_length, value_length = row_offsets[row + 1] - row_start, value_offsets[value + 1] - value_start
        if count > 0 and at + RECORD_BYTES + row_length + value_length > bytes_max:
            break
        if first + count + 2 * _AHEAD < len(order):
            _fetch_ahead(order[first + count :], row_data, row_offsets, row_values)
        if first + count > 0 and compare_keys(row_data, row_offsets, order[first + count - 1], row, 0) >= 0:
            return -1 - (first + count)
        starts[count], tails[count], value_ids[count] = at, at + RECORD_HEADER_BYTES + row_length, value
        at = _put_record(out, at, row_data, row_start, row_length, value_data, value_start, value_length)
        count += 1
    starts[count] = at
    return count


@kernel
def _fetch_ahead(order: Int64s, row_data: Bytes, row_offsets: Int64s, row_values: Int32s) -> None:
    row, later = order[_AHEAD], order[2 * _AHEAD]
    prefetch(row_data, row_offsets[row])
    prefetch(row_data, row_offsets[row + 1] - 1)
    prefetch(row_offsets, later)
    prefetch(row_values, later)


@kernel
def _put_record(
    out: Bytes,
    at: int,
    row_data: Bytes,
    row_start: int,
    row_length: int,
    value_data: Bytes,
    value_start: int,
    value_length: int,
) -> int:
    """Write one record at `at`; returns its end."""
    lengths = np.uint64(row_length + 2 + _SUFFIX_BYTES) << np.uint64(32) | np.uint64(value_length)
    store_word(out, at, swap_bytes(lengths))
    out[at + 8], out[at + 9] = row_length >> 8, row_length & 0xFF
    copy_bytes(out, at + RECORD_HEADER_BYTES, row_data, row_start, row_length)
    at += RECORD_HEADER_BYTES + row_length
    store_word(out, at, _SUFFIX_START)
    out[at + 8], out[at + 9] = 0xFF, 0x04
    copy_bytes(out, at + _SUFFIX_BYTES, value_data, value_start, value_length)
    at += _SUFFIX_BYTES + value_length
    out[at] = 0
    return at + 1


find_records = Entry(_find_records, BYTES, OUT_TABLE_OF_INT32S)
copy_rows = Entry(_copy_rows, BYTES, TABLE_OF_INT32S, OUT_BYTES, OUT_INT64S)
number_values = Entry(
    _number_values,
    *(BYTES, TABLE_OF_INT32S, OUT_INT32S, OUT_INT32S, OUT_WORDS, OUT_INT64S, OUT_BYTES, INT),
)
sizes_of = Entry(_measure_records, INT64S, INT64S, INT64S, INT32S)
fill_slots = Entry(_fill_slots, WORDS, OUT_INT32S)
fill_blocks = Entry(
    _frame_blocks,
    *(BYTES, INT64S, INT64S, INT, BYTES, INT64S, INT32S, OUT_BYTES, INT, INT, INT),
    *(OUT_INT64S, OUT_INT64S, OUT_INT32S, OUT_INT64S, OUT_INT64S),
)
