"""Deflate for blocks of records whose values repeat, almost without searching: the good matches are known.

A record-index block is a run of records `header key suffix value` with few distinct values. The last record with
the same value matches everything from the end of the key to deep into the next record's key, because keys are
sorted. What remains is the middle of each key, which may match the previous record at the same position. The stream is
smaller than that of a general deflate, in a fraction of its time. For other blocks a general deflate is better, so the
caller tries both.

One dynamic Huffman block (RFC 1951, 3.2.7) per stream.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, Words
from lakebed.kernels.compiled.huffman import (
    BITS_SHIFT,
    CODE_BITS_MAX,
    CODE_MASK,
    build_code,
    put_bits,
    put_block_header,
)
from lakebed.kernels.compiled.jit import (
    BYTES,
    FLAG,
    INT32S,
    INT64S,
    OUT_BYTES,
    OUT_INT64S,
    OUT_TABLE_OF_INT32S,
    Entry,
    kernel,
)
from lakebed.kernels.compiled.memory import leading_zeros, load_word, store_word, trailing_zeros
from lakebed.kernels.hfile_records import RECORD_HEADER_BYTES, FramedBlocks

_DISTANCE_MAX = 32768
_LENGTH_MIN, _LENGTH_MAX = 3, 258
_RUN_MIN = 4
"""Minimum length in bytes of a match inside a key; shorter ones cost as much as their literals."""
_END_OF_BLOCK, _FIRST_LENGTH, _LAST_LENGTH = 256, 257, 285
_LITERAL_SYMBOLS, _DISTANCE_SYMBOLS = 286, 30
_HEADER_BYTES_MAX = 1024


def deflate_blocks(blocks: FramedBlocks, *, search_keys: bool) -> list[memoryview]:
    """A stream for each block.

    Equal `value_ids` mean equal bytes from the `tails`, where the key of each record ends, to the record's end.
    """
    block_ends = blocks.block_ends
    sequences = np.empty((int(np.diff(block_ends).max()) // _LENGTH_MIN + 1, 3), np.int32)
    last_tails = np.empty(blocks.value_count, np.int64)
    # No symbol takes more than two bytes for each byte it stands for.
    out = np.empty(2 * int(block_ends[-1]) + _HEADER_BYTES_MAX * (len(block_ends) - 1), np.uint8)
    ends = np.zeros_like(block_ends)
    records = blocks.starts, blocks.tails, blocks.value_ids, blocks.record_ends
    fill_streams(blocks.data, block_ends, *records, last_tails, search_keys, sequences, out, ends)
    return [out.data[start:end] for start, end in pairwise(ends.tolist())]


@kernel
def _deflate_blocks(
    data: Bytes,
    block_ends: Int64s,
    starts: Int64s,
    tails: Int64s,
    value_ids: Int32s,
    record_ends: Int64s,
    last_tails: Int64s,
    search_keys: bool,
    sequences: Int32s,
    out: Bytes,
    ends: Int64s,
) -> None:
    """Fill `out` with the streams, and `ends`, which begins with a zero, with the end of each."""
    for block in range(len(block_ends) - 1):
        first, end = record_ends[block], record_ends[block + 1]
        last_tails[:] = -1
        size = _deflate(
            data[block_ends[block] : block_ends[block + 1]],
            starts[first + block : end + block + 1],
            tails[first:end],
            value_ids[first:end],
            last_tails,
            search_keys,
            sequences,
            out[ends[block] :],
        )
        ends[block + 1] = ends[block] + size


@kernel
def _deflate(
    data: Bytes,
    starts: Int64s,
    tails: Int64s,
    value_ids: Int32s,
    last_tails: Int64s,
    search_keys: bool,
    sequences: Int32s,
    out: Bytes,
) -> int:
    """Fill `out` with the stream; its length."""
    sequences = sequences[: _find_matches(data, starts, tails, value_ids, last_tails, search_keys, sequences)]
    literal_counts, distance_counts = _count_symbols(data, sequences)
    literals, distances = build_code(literal_counts, CODE_BITS_MAX), build_code(distance_counts, CODE_BITS_MAX)
    writer = np.zeros(3, np.uint64)
    put_block_header(out, writer, literals, distances)
    return _put_sequences(data, sequences, literals, distances, out, writer)


@kernel
def _find_matches(
    data: Bytes,
    starts: Int64s,
    tails: Int64s,
    value_ids: Int32s,
    last_tails: Int64s,
    search_keys: bool,
    sequences: Int32s,
) -> int:
    """Fill `sequences` with (literals, match length, match distance), the last one without a match; their number."""
    count = anchor = np.int64(0)  # `anchor`: start of the literals that are in no sequence yet.
    for at in range(len(value_ids)):
        start, tail, end = starts[at], tails[at], starts[at + 1]
        last_tail = last_tails[value_ids[at]]
        last_tails[value_ids[at]] = tail
        known = last_tail >= 0 and tail - last_tail <= _DISTANCE_MAX
        distance, match = tail - last_tail, tail
        if known:  # Keys may end alike too.
            while match > max(anchor, start, distance) and data[match - 1] == data[match - 1 - distance]:
                match -= 1
        if at > 0:
            limit = match if search_keys else min(match, start + RECORD_HEADER_BYTES)
            before = start - starts[at - 1]
            count, anchor = _put_runs(data, max(anchor, start), limit, match, before, anchor, sequences, count)
        if known:
            end += _run_length(data, end, distance, len(data))
            count = _put_match(sequences, count, match - anchor, end - match, distance)
            anchor = end
        elif at > 0:
            before = tail - tails[at - 1]
            count, anchor = _put_runs(data, max(anchor, tail), end, end, before, anchor, sequences, count)
    sequences[count, 0], sequences[count, 1] = len(data) - anchor, 0
    return count + 1


@kernel
def _put_runs(
    data: Bytes, at: int, limit: int, end: int, distance: int, anchor: int, sequences: Int32s, count: int
) -> tuple[int, int]:
    """Add the runs that start in `at`..`limit`, before `end`, and equal the bytes `distance` earlier."""
    while at < limit and distance <= _DISTANCE_MAX:
        run = _run_length(data, at, distance, end)
        if run >= _RUN_MIN:
            count = _put_match(sequences, count, at - anchor, run, distance)
            anchor = at + run
        at += run + 1
    return count, anchor


@kernel
def _run_length(data: Bytes, at: int, distance: int, end: int) -> int:
    """How many bytes from `at`, before `end`, equal those `distance` earlier (`distance` is at most `at`)."""
    start = at
    while at + 8 <= end:
        differ = load_word(data, at) ^ load_word(data, at - distance)
        if differ != 0:
            return at - start + np.int64(trailing_zeros(differ) >> np.uint64(3))
        at += 8
    while at < end and data[at] == data[at - distance]:
        at += 1
    return at - start


@kernel
def _put_match(sequences: Int32s, count: int, literals: int, length: int, distance: int) -> int:
    while length > 0:
        part = min(length, _LENGTH_MAX)
        if 0 < length - part < _LENGTH_MIN:
            part -= _LENGTH_MIN
        sequences[count, 0], sequences[count, 1], sequences[count, 2] = literals, part, distance
        count, literals, length = count + 1, 0, length - part
    return count


@kernel
def _length_symbol(length: int) -> tuple[int, int]:
    """The symbol of a match length, and how many of the low bits of `length - 3` follow it."""
    value = length - _LENGTH_MIN
    if length == _LENGTH_MAX:
        return _LAST_LENGTH, 0
    if value < 8:
        return _FIRST_LENGTH + value, 0
    extra = 61 - np.int64(leading_zeros(np.uint64(value)))
    return _FIRST_LENGTH + 4 * extra + 4 + (value >> extra & 3), extra


@kernel
def _distance_symbol(distance: int) -> tuple[int, int]:
    """The symbol of a match distance, and how many of the low bits of `distance - 1` follow it."""
    value = distance - 1
    if value < 4:
        return value, 0
    extra = 62 - np.int64(leading_zeros(np.uint64(value)))
    return 2 * extra + 2 + (value >> extra & 1), extra


@kernel
def _count_symbols(data: Bytes, sequences: Int32s) -> tuple[Int64s, Int64s]:
    """How often each literal or length, and each distance, occurs."""
    even, odd = np.zeros(_LITERAL_SYMBOLS, np.int64), np.zeros(_LITERAL_SYMBOLS, np.int64)
    distances = np.zeros(_DISTANCE_SYMBOLS, np.int64)
    even[_END_OF_BLOCK] = 1
    at = 0
    for row in range(len(sequences)):
        stop = at + sequences[row, 0]
        while at + 2 <= stop:  # Two tables, so that consecutive counts of one symbol need not wait for each other.
            even[data[at]] += 1
            odd[data[at + 1]] += 1
            at += 2
        if at < stop:
            even[data[at]] += 1
        at = stop + sequences[row, 1]
        if sequences[row, 1] > 0:
            even[_length_symbol(sequences[row, 1])[0]] += 1
            distances[_distance_symbol(sequences[row, 2])[0]] += 1
    return even + odd, distances


@kernel
def _length_codes(literals: Words) -> Words:
    """The packed code of each match length, its extra bits included."""
    codes = np.zeros(_LENGTH_MAX + 1, np.uint64)
    for length in range(_LENGTH_MIN, _LENGTH_MAX + 1):
        symbol, extra = _length_symbol(length)
        codes[length] = _with_extra(literals[symbol], length - _LENGTH_MIN, extra)
    return codes


@kernel
def _with_extra(packed: np.uint64, value: int, extra: int) -> np.uint64:
    """The packed code, followed by the `extra` low bits of `value`."""
    bits = packed >> BITS_SHIFT
    low = np.uint64(value & ((1 << extra) - 1))
    return (bits + np.uint64(extra)) << BITS_SHIFT | low << bits | packed & CODE_MASK


@kernel
def _put_sequences(data: Bytes, sequences: Int32s, literals: Words, distances: Words, out: Bytes, writer: Words) -> int:
    """Write the sequences and the end of the block; how many bytes are written in all."""
    lengths = _length_codes(literals)
    pending, bits, position = writer[0], writer[1], np.int64(writer[2])
    at = 0
    for row in range(len(sequences)):
        stop = at + sequences[row, 0]
        while at + 4 <= stop:  # Four literals fit in one word: at most 7 + 4 * 14 bits.
            pending, bits = _append(pending, bits, literals[data[at]])
            pending, bits = _append(pending, bits, literals[data[at + 1]])
            pending, bits = _append(pending, bits, literals[data[at + 2]])
            pending, bits = _append(pending, bits, literals[data[at + 3]])
            pending, bits, position = _flush(out, pending, bits, position)
            at += 4
        while at < stop:
            pending, bits = _append(pending, bits, literals[data[at]])
            at += 1
        pending, bits, position = _flush(out, pending, bits, position)
        length = sequences[row, 1]
        at += length
        if length > 0:  # Both symbols and their extra bits fit in one word: at most 7 + 14 + 5 + 14 + 13 bits.
            symbol, extra = _distance_symbol(sequences[row, 2])
            pending, bits = _append(pending, bits, lengths[length])
            pending, bits = _append(pending, bits, _with_extra(distances[symbol], sequences[row, 2] - 1, extra))
            pending, bits, position = _flush(out, pending, bits, position)
    writer[0], writer[1], writer[2] = pending, bits, np.uint64(position)
    end = literals[_END_OF_BLOCK]
    put_bits(out, writer, end & CODE_MASK, end >> BITS_SHIFT)
    put_bits(out, writer, np.uint64(0), np.uint64(7))
    return np.int64(writer[2])


@kernel
def _append(pending: np.uint64, bits: np.uint64, packed: np.uint64) -> tuple[np.uint64, np.uint64]:
    return pending | (packed & CODE_MASK) << bits, bits + (packed >> BITS_SHIFT)


@kernel
def _flush(out: Bytes, pending: np.uint64, bits: np.uint64, position: int) -> tuple[np.uint64, np.uint64, int]:
    store_word(out, position, pending)
    return pending >> (bits & np.uint64(56)), bits & np.uint64(7), position + np.int64(bits >> np.uint64(3))


fill_streams = Entry(
    _deflate_blocks,
    *(BYTES, INT64S, INT64S, INT64S, INT32S, INT64S),
    *(OUT_INT64S, FLAG, OUT_TABLE_OF_INT32S, OUT_BYTES, OUT_INT64S),
)
