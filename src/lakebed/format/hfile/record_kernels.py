"""Records of a data block in compiled code: taken apart, and put together.

int32 key length, int32 value length, int16 row length, row, 10-byte suffix, value, one byte 0
"""

from __future__ import annotations

import numpy as np

from lakebed.format.hfile.layout import KEY_SUFFIX, RECORD_HEADER_BYTES, ROW_BYTES_MAX
from lakebed.format.hfile.native import (
    Bytes,
    Int32s,
    Int64s,
    Words,
    copy_bytes,
    kernel,
    load_word,
    prefetch,
    store_word,
    swap_bytes,
)
from lakebed.format.hfile.order_kernels import compare_keys

SPAN_BYTES_MIN = 11
"""The shortest record: its lengths, an empty row without a suffix, an empty value, and the last byte."""
_SUFFIX_BYTES = len(KEY_SUFFIX)
_SUFFIX_START = np.uint64(0xFFFFFFFFFFFF7F00)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_PROBES_MAX = 32
_AHEAD = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)


@kernel
def find_records(block: Bytes, spans: Int32s) -> int:
    """Fill `spans` with (row start, row length, value start, value length) of each record; their number.

    Negative, -1 - position, if the record at that position is broken. After this every span lies in the block.
    """
    at, count, end = 0, 0, len(block)
    while at < end:
        if end - at < SPAN_BYTES_MIN:
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
def copy_rows(block: Bytes, spans: Int32s, rows: Bytes) -> None:
    """Put the rows of all spans one after the other; `rows` is as long as they are together."""
    at = 0
    for span in range(len(spans)):
        copy_bytes(rows, at, block, np.int64(spans[span, 0]), np.int64(spans[span, 1]))
        at += spans[span, 1]


@kernel
def number_values(
    block: Bytes, spans: Int32s, ids: Int32s, slots: Int32s, hashes: Words, offsets: Int64s, data: Bytes, known: int
) -> int:
    """Give equal values equal numbers; how many values are known then.

    Value i is `data[offsets[i]:offsets[i + 1]]`, its hash `hashes[i]`; `slots` (a power of two of them, twice the
    values at least) is an open hash table of i + 1. After some probes a value counts as new without being looked for
    further, so that hashes made to collide cost memory in proportion, not time.
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
def fill_slots(hashes: Words, slots: Int32s) -> None:
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
    mixed, at, end = np.uint64(length) * _MIX, start, start + length
    while at + 8 <= end:
        mixed = (mixed ^ load_word(data, at)) * _MIX
        mixed ^= mixed >> np.uint64(32)
        at += 8
    for rest in range(at, end):
        mixed = (mixed ^ np.uint64(data[rest])) * _MIX
    return mixed ^ mixed >> np.uint64(29)


@kernel
def _equals(block: Bytes, start: int, length: int, data: Bytes, other: int, other_end: int) -> bool:
    if other_end - other != length:
        return False
    end = start + length
    while start + 8 <= end:
        if load_word(block, start) != load_word(data, other):
            return False
        start += 8
        other += 8
    while start < end:
        if block[start] != data[other]:
            return False
        start += 1
        other += 1
    return True


@kernel
def frame_records(
    row_data: Bytes,
    row_offsets: Int64s,
    order: Int64s,
    first: int,
    last: int,
    value_data: Bytes,
    value_offsets: Int64s,
    value_ids: Int32s,
    out: Bytes,
    starts: Int64s,
    tails: Int64s,
) -> bool:
    """Write the records of the rows `order[first:last]`, the values being numbers `value_ids`, one per record.

    `starts` says where each starts and, last, where they end, which is the length of `out`; `tails` is filled with
    where each row ends. False if a row is not above the row before.
    """
    is_ascending = True
    for record in range(last - first):
        row, value, at = order[first + record], value_ids[record], starts[record]
        if first + record + _AHEAD < len(order):
            prefetch(row_data, row_offsets[order[first + record + _AHEAD]])
        if first + record > 0 and compare_keys(row_data, row_offsets, order[first + record - 1], row, 0) >= 0:
            is_ascending = False
        row_start, value_start = row_offsets[row], value_offsets[value]
        row_length, value_length = row_offsets[row + 1] - row_start, value_offsets[value + 1] - value_start
        lengths = np.uint64(row_length + 2 + _SUFFIX_BYTES) << np.uint64(32) | np.uint64(value_length)
        store_word(out, at, swap_bytes(lengths))
        out[at + 8], out[at + 9] = row_length >> 8, row_length & 0xFF
        copy_bytes(out, at + RECORD_HEADER_BYTES, row_data, row_start, row_length)
        at += RECORD_HEADER_BYTES + row_length
        tails[record] = at
        store_word(out, at, _SUFFIX_START)
        out[at + 8], out[at + 9] = 0xFF, 0x04
        copy_bytes(out, at + _SUFFIX_BYTES, value_data, value_start, value_length)
        out[at + _SUFFIX_BYTES + value_length] = 0
    return is_ascending
