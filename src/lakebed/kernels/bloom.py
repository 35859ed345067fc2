"""Inserts and probes many keys in Bloom filters; each hash is MurmurHash2 seeded with the hash before it."""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bools, Bytes, Int64s, check_length, check_numbers, check_offsets, require
from lakebed.kernels.choice import choose


def insert(data: Bytes, offsets: Int64s, row_of: Int64s, rows: Bytes, hash_count: int, bit_count: int) -> None:
    """Set the bits of each key in its row; each row is a Bloom filter."""
    count = _check(data, offsets, rows, hash_count, bit_count)
    check_length(row_of, count, "rows of keys")
    check_numbers(row_of, len(rows), "row")
    if count:
        choose("bloom", count).insert(data, offsets, row_of, rows, hash_count, bit_count)


def probe(data: Bytes, offsets: Int64s, rows: Bytes, hash_count: int, bit_count: int) -> Bools:
    """For each key, whether some row has all of its bits set."""
    count = _check(data, offsets, rows, hash_count, bit_count)
    found: Bools = choose("bloom", count).probe(data, offsets, rows, hash_count, bit_count)
    return found.view(np.bool_)


def _check(data: Bytes, offsets: Int64s, rows: Bytes, hash_count: int, bit_count: int) -> int:
    require(hash_count >= 0, f"{hash_count} hashes")
    require(rows.ndim == 2 and 0 < bit_count <= 8 * rows.shape[1], f"{bit_count} bits do not fit into a row")
    return check_offsets(data, offsets)
