"""MurmurHash2 of many keys with numpy, and the bits that they set."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bools, Bytes, Int64s, UInt32s
from lakebed.kernels.plain.strings import Strings

_MIX = np.uint32(0x5BD1E995)


def insert(data: Bytes, offsets: Int64s, row_of: Int64s, rows: Bytes, hash_count: int, bit_count: int) -> None:
    """Set the bits of each key in its row."""
    is_set = np.zeros((len(rows), 8 * rows.shape[1]), np.bool_)
    keys = Strings(data, offsets, width=4)
    row_of = row_of[keys.order]
    for bits in _bits(keys, hash_count, bit_count):
        is_set[row_of, bits] = True
    rows |= np.packbits(is_set, axis=1, bitorder="little")


def probe(data: Bytes, offsets: Int64s, rows: Bytes, hash_count: int, bit_count: int) -> Bools:
    """Whether all bits of a key are set in some row, per key."""
    keys = Strings(data, offsets, width=4)
    alive = np.ones((len(rows), len(offsets) - 1), np.bool_)
    for bits in _bits(keys, hash_count, bit_count):
        alive &= (rows[:, bits >> 3] >> (bits & 7).astype(np.uint8) & 1).astype(np.bool_)
    found = np.empty(len(offsets) - 1, np.bool_)
    found[keys.order] = alive.any(axis=0)
    return found


def _bits(keys: Strings, hash_count: int, bit_count: int) -> Iterator[Int64s]:
    """For each hash in turn, the bit of every key, in the order of `keys`."""
    words = [(some, _mixed(word)) for some, word in keys.words()]
    tails, lengths = _tails(keys), keys.lengths.astype(np.uint32)
    has_tail = keys.lengths % 4 > 0
    hashes = np.zeros(len(lengths), np.uint32)
    for _ in range(hash_count):
        hashes ^= lengths
        for some, word in words:
            hashes[some] = hashes[some] * _MIX ^ word
        hashes = np.where(has_tail, (hashes ^ tails) * _MIX, hashes)
        hashes = (hashes ^ hashes >> np.uint32(13)) * _MIX
        hashes ^= hashes >> np.uint32(15)
        # Java's remainder has the sign of the dividend, and abs drops it.
        yield np.abs(hashes.view(np.int32).astype(np.int64)) % bit_count


def _mixed(words: npt.NDArray[np.uint32]) -> UInt32s:
    words = words * _MIX
    return (words ^ words >> np.uint32(24)) * _MIX


def _tails(keys: Strings) -> UInt32s:
    """The trailing bytes of each key as Hudi reads them: the last one lowest, all of them signed."""
    rest, left = keys.rest(), keys.lengths % 4
    tails = np.zeros(len(left), np.uint32)
    for place in range(3):
        byte = (rest >> np.uint32(8 * place) & np.uint32(0xFF)).astype(np.uint8).view(np.int8).astype(np.int64)
        shift = 8 * np.maximum(left - 1 - place, 0)
        tails ^= np.where(place < left, byte << shift, 0).astype(np.uint32)
    return tails
