"""Length-limited Huffman codes and the header of a dynamic deflate block (RFC 1951), as numba kernels."""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bytes, Int64s, Words
from lakebed.kernels.compiled.jit import kernel
from lakebed.kernels.compiled.memory import store_word

CODE_BITS_MAX = 14
"""Maximum length of a code in bits. Deflate allows 15, which costs more in the header of our blocks than it saves."""
BITS_SHIFT = np.uint64(32)
CODE_MASK = np.uint64(0xFFFFFFFF)
"""A packed code is `bits << 32 | code`, the code's bits reversed as deflate sends them; 0 for an unused symbol."""

_HEADER_BITS_MAX = 7
_HEADER_SYMBOLS = 19
_HEADER_ORDER = np.array([16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15])
_REPEAT, _ZEROS, _MANY_ZEROS = 16, 17, 18


@kernel
def put_bits(out: Bytes, writer: Words, value: np.uint64, bits: np.uint64) -> None:
    """Append `value`, of at most 16 `bits`. `writer` holds pending bits, their number, the position.

    `out` must have eight bytes beyond what is ever written.
    """
    writer[0] |= value << writer[1]
    writer[1] += bits
    store_word(out, np.int64(writer[2]), writer[0])
    writer[2] += writer[1] >> np.uint64(3)
    writer[0] >>= writer[1] & np.uint64(56)
    writer[1] &= np.uint64(7)


@kernel
def build_code(counts: Int64s, bits_max: int) -> Words:
    """A complete prefix code, as packed codes, for symbols with these counts.

    At least two symbols get a code, since some decoders refuse a code of one.
    """
    order, weights = np.empty(len(counts), np.int64), np.empty(len(counts), np.int64)
    used = _sort_used(counts, order, weights)
    for symbol in range(2):
        if used < 2:
            counts[symbol] = max(counts[symbol], 1)
            used = _sort_used(counts, order, weights)
    depths = _limited_lengths(_tree_depths(weights[:used]), bits_max)
    lengths = np.zeros(len(counts), np.int64)
    for at in range(used):
        lengths[order[at]] = depths[at]
    return _canonical(lengths, bits_max)


@kernel
def _sort_used(counts: Int64s, order: Int64s, weights: Int64s) -> int:
    """Fill `order` with the symbols that occur and `weights` with their counts, ascending; their number."""
    used = 0
    for symbol in range(len(counts)):
        if counts[symbol] > 0:
            hole = used
            while hole > 0 and weights[hole - 1] > counts[symbol]:
                order[hole], weights[hole] = order[hole - 1], weights[hole - 1]
                hole -= 1
            order[hole], weights[hole] = symbol, counts[symbol]
            used += 1
    return used


@kernel
def _tree_depths(weights: Int64s) -> Int64s:
    """Depths of the leaves of the Huffman tree over weights in ascending order."""
    count = len(weights)
    tree, parent = np.empty(2 * count - 1, np.int64), np.empty(2 * count - 1, np.int64)
    for at in range(count):
        tree[at] = weights[at]
    leaf, node = 0, count
    for new in range(count, 2 * count - 1):
        tree[new] = 0
        for _ in range(2):
            if leaf < count and (node == new or tree[leaf] <= tree[node]):
                pick, leaf = leaf, leaf + 1
            else:
                pick, node = node, node + 1
            tree[new] += tree[pick]
            parent[pick] = new
    depths = np.zeros(2 * count - 1, np.int64)
    for at in range(2 * count - 3, -1, -1):
        depths[at] = depths[parent[at]] + 1
    return depths[:count]


@kernel
def _limited_lengths(depths: Int64s, bits_max: int) -> Int64s:
    """Code lengths of at most `bits_max`, longest first, near the given depths: codes cut short make others longer."""
    per_length = np.zeros(bits_max + 1, np.int64)
    for depth in depths:
        per_length[min(depth, bits_max)] += 1
    excess = -(1 << bits_max)
    for bits in range(1, bits_max + 1):
        excess += per_length[bits] << (bits_max - bits)
    while excess > 0:  # The Kraft sum is above one: pair a longest code with a shorter one, one level down.
        bits = bits_max - 1
        while per_length[bits] == 0:
            bits -= 1
        per_length[bits] -= 1
        per_length[bits + 1] += 2
        per_length[bits_max] -= 1
        excess -= 1
    lengths, at = np.empty(len(depths), np.int64), 0
    for bits in range(bits_max, 0, -1):
        for _ in range(per_length[bits]):
            lengths[at] = bits
            at += 1
    return lengths


@kernel
def _canonical(lengths: Int64s, bits_max: int) -> Words:
    per_length, following = np.zeros(bits_max + 1, np.int64), np.zeros(bits_max + 1, np.int64)
    for symbol in range(len(lengths)):
        per_length[lengths[symbol]] += 1
    per_length[0] = 0
    for bits in range(1, bits_max + 1):
        following[bits] = (following[bits - 1] + per_length[bits - 1]) << 1
    packed = np.zeros(len(lengths), np.uint64)
    for symbol in range(len(lengths)):
        bits = lengths[symbol]
        if bits > 0:
            code, reversed_code = following[bits], 0
            following[bits] += 1
            for _ in range(bits):
                reversed_code = reversed_code << 1 | code & 1
                code >>= 1
            packed[symbol] = np.uint64(bits) << BITS_SHIFT | np.uint64(reversed_code)
    return packed


@kernel
def put_block_header(out: Bytes, writer: Words, literals: Words, distances: Words) -> None:
    """Append the header of a last, dynamic block: the lengths of both codes, run-length and Huffman coded."""
    literals, distances = _trimmed(literals, 257), _trimmed(distances, 1)
    lengths = (np.concatenate((literals, distances)) >> BITS_SHIFT).astype(np.int64)
    runs = np.empty((len(lengths), 2), np.int64)
    runs = runs[: _find_runs(lengths, runs)]
    counts = np.zeros(_HEADER_SYMBOLS, np.int64)
    for at in range(len(runs)):
        counts[runs[at, 0]] += 1
    code = build_code(counts, _HEADER_BITS_MAX)
    ordered = _trimmed(code[_HEADER_ORDER], 4)
    sizes = (len(literals) - 257) | (len(distances) - 1) << 5 | (len(ordered) - 4) << 10
    put_bits(out, writer, np.uint64(0b101), np.uint64(3))
    put_bits(out, writer, np.uint64(sizes), np.uint64(14))
    for at in range(len(ordered)):
        put_bits(out, writer, ordered[at] >> BITS_SHIFT, np.uint64(3))
    for at in range(len(runs)):
        _put_run(out, writer, code, runs[at, 0], runs[at, 1])


@kernel
def _trimmed(code: Words, least: int) -> Words:
    """Without the unused symbols at its end, as far as `least` symbols remain."""
    end = len(code)
    while end > least and code[end - 1] == 0:
        end -= 1
    return code[:end]


@kernel
def _put_run(out: Bytes, writer: Words, code: Words, symbol: int, extra: int) -> None:
    put_bits(out, writer, code[symbol] & CODE_MASK, code[symbol] >> BITS_SHIFT)
    if symbol >= _REPEAT:
        extra_bits = 2 if symbol == _REPEAT else 3 if symbol == _ZEROS else 7
        put_bits(out, writer, np.uint64(extra), np.uint64(extra_bits))


@kernel
def _find_runs(lengths: Int64s, runs: Int64s) -> int:
    """Fill `runs` with (symbol, extra); their number.

    A symbol below 16 is a length, 16 the last one 3-6 times more, 17 and 18 are 3-10 and 11-138 zeros.
    """
    count = at = 0
    while at < len(lengths):
        value, run = lengths[at], 1
        while at + run < len(lengths) and lengths[at + run] == value and run < 138:
            run += 1
        symbol, extra = value, 0
        if value == 0 and run >= 3:
            symbol, extra = (_ZEROS, run - 3) if run <= 10 else (_MANY_ZEROS, run - 11)
        elif at > 0 and lengths[at - 1] == value and run >= 3:
            run = min(run, 6)
            symbol, extra = _REPEAT, run - 3
        else:
            run = 1
        runs[count, 0], runs[count, 1] = symbol, extra
        count, at = count + 1, at + run
    return count
