"""Inserts and probes many keys in Bloom filters; keys of one length are hashed together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from lakebed.kernels.compiled.jit import BYTES, INT, INT64S, OUT_TABLE_OF_BYTES, TABLE_OF_BYTES, Entry, kernel

_Bytes = npt.NDArray[np.uint8]
_Longs = npt.NDArray[np.int64]

_inlined = partial(kernel, inline="always")
_M = np.uint32(0x5BD1E995)
_IN_STEP = 256
"""Number of keys hashed together: enough to fill vector registers, few enough to stay in the L1 cache."""


def insert(data: _Bytes, offsets: _Longs, row_of: _Longs, rows: _Bytes, hash_count: int, bit_count: int) -> None:
    """Set the bits of each key in its row."""
    set_bits(data, offsets, _by_length(offsets), row_of, rows, hash_count, bit_count)


def _by_length(offsets: _Longs) -> _Longs:
    """Positions of keys, grouped by length."""
    lengths = np.diff(offsets)
    return np.arange(len(lengths)) if lengths.min() == lengths.max() else np.argsort(lengths, kind="stable")


@_inlined
def _murmur2(data: _Bytes, start: int, end: int, seed: np.uint32) -> np.uint32:
    mixed: np.uint32 = seed ^ np.uint32(end - start)
    at = start
    while end - at >= 4:
        word = np.uint32(data[at]) | np.uint32(data[at + 1]) << 8 | np.uint32(data[at + 2]) << 16
        word = np.uint32((np.uint32(word) | np.uint32(data[at + 3]) << 24) * _M)
        word = np.uint32((word ^ word >> 24) * _M)
        mixed = np.uint32(np.uint32(mixed * _M) ^ word)
        at += 4
    if at < end:
        for place in range(end - at):
            mixed ^= np.uint32(np.int64(np.int8(data[end - 1 - place])) << 8 * place)
        mixed = np.uint32(mixed * _M)
    mixed = np.uint32((mixed ^ mixed >> 13) * _M)
    mixed ^= mixed >> 15
    return mixed


@_inlined
def _bit(hashed: np.uint32, bit_count: int) -> int:
    bit: int = abs(np.int64(np.int32(hashed))) % bit_count
    return bit


@kernel
def _insert(
    data: _Bytes, offsets: _Longs, order: _Longs, row_of: _Longs, rows: _Bytes, hash_count: int, bit_count: int
) -> None:
    """Set the bits of each key in its row. In `order`, keys of equal length are neighbours and hashed together."""
    words = np.empty((np.max(np.diff(offsets)) // 4 + 1, _IN_STEP), np.uint32)
    tails = np.empty(_IN_STEP, np.uint32)
    bits = np.empty(_IN_STEP, np.int64)
    first = 0
    while first < len(order):
        length = offsets[order[first] + 1] - offsets[order[first]]
        end = first
        while end < min(first + _IN_STEP, len(order)) and offsets[order[end] + 1] - offsets[order[end]] == length:
            tails[end - first] = _load(data, offsets[order[end]], length, words[:, end - first])
            end += 1
        keys = order[first:end]
        hashes = np.zeros(len(keys), np.uint32)
        for _ in range(hash_count):
            _hash_in_step(hashes, words, tails, length)
            _bits_in_step(hashes, bits, bit_count)
            for i in range(len(keys)):
                rows[row_of[keys[i]], bits[i] >> 3] |= np.uint8(1 << (bits[i] & 7))
        first = end


@kernel
def _load(data: _Bytes, start: int, length: int, words: Any) -> Any:
    """Fills in the words of a key, mixed as far as that is independent of the seed; returns its trailing bytes."""
    at = start
    for i in range(length // 4):
        word = np.uint32(data[at]) | np.uint32(data[at + 1]) << 8 | np.uint32(data[at + 2]) << 16
        word = np.uint32((np.uint32(word) | np.uint32(data[at + 3]) << 24) * _M)
        words[i] = np.uint32((word ^ word >> 24) * _M)
        at += 4
    tail = np.uint32(0)
    for place in range(length % 4):
        tail ^= np.uint32(np.int64(np.int8(data[start + length - 1 - place])) << 8 * place)
    return tail


@kernel
def _hash_in_step(hashes: Any, words: Any, tails: Any, length: int) -> None:
    """MurmurHash2 of keys of one length, each with its own seed, in loops that compile to vector instructions."""
    for i in range(len(hashes)):
        hashes[i] ^= np.uint32(length)
    for w in range(length // 4):
        for i in range(len(hashes)):
            hashes[i] = np.uint32(hashes[i] * _M) ^ words[w, i]
    if length % 4:
        for i in range(len(hashes)):
            hashes[i] = np.uint32((hashes[i] ^ tails[i]) * _M)
    for i in range(len(hashes)):
        mixed = np.uint32((hashes[i] ^ (hashes[i] >> np.uint32(13))) * _M)
        hashes[i] = mixed ^ (mixed >> np.uint32(15))


@kernel
def _bits_in_step(hashes: Any, bits: _Longs, bit_count: int) -> None:
    """`_bit` of many hashes, by floating-point arithmetic, exact here: there is no vector division of integers."""
    share = 1.0 / bit_count
    for i in range(len(hashes)):
        size = abs(np.float64(np.int32(hashes[i])))
        bit = np.int64(size - np.floor(size * share) * bit_count)
        # The quotient may be off by one.
        bit = bit + bit_count if bit < 0 else bit
        bits[i] = bit - bit_count if bit >= bit_count else bit


@kernel
def _probe(data: _Bytes, offsets: _Longs, rows: _Bytes, hash_count: int, bit_count: int) -> npt.NDArray[np.bool_]:
    """Whether all bits of a key are set in some row, per key."""
    found = np.zeros(len(offsets) - 1, dtype=np.bool_)
    alive = np.empty(len(rows), dtype=np.bool_)
    for key in range(len(found)):
        alive[:] = True
        left = len(rows)
        hashed = np.uint32(0)
        for _ in range(hash_count):
            hashed = _murmur2(data, offsets[key], offsets[key + 1], hashed)
            bit = _bit(hashed, bit_count)
            for row in range(len(rows)):
                if alive[row] and not rows[row, bit >> 3] >> (bit & 7) & 1:
                    alive[row] = False
                    left -= 1
            if left == 0:
                break
        found[key] = left > 0
    return found


set_bits = Entry(_insert, BYTES, INT64S, INT64S, INT64S, OUT_TABLE_OF_BYTES, INT, INT)
probe = Entry(_probe, BYTES, INT64S, TABLE_OF_BYTES, INT, INT)
