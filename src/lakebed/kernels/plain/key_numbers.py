"""Finds equal keys with Arrow's hash tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.plain.strings import binaries


def number_keys(data: Bytes, offsets: Int64s, paths: Int64s) -> tuple[Int64s, int]:
    """The number of each pair of key and path in order of appearance, and how many pairs there are."""
    encoded = binaries(data, offsets).dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    if not len(paths):
        return codes, len(encoded.dictionary)
    pairs = pa.array(_dense(paths) + codes * (len(paths) + 1)).dictionary_encode()
    return pairs.indices.to_numpy().astype(np.int64), len(pairs.dictionary)


def number_few(data: Bytes, offsets: Int64s, few_max: int) -> tuple[Int32s, Int64s] | None:
    """The number of each text in order of appearance, and the first row of each; None if they are too many."""
    encoded = binaries(data, offsets).dictionary_encode()
    if len(encoded.dictionary) > few_max:
        return None
    numbers = encoded.indices.to_numpy().astype(np.int32, copy=False)
    firsts = np.empty(len(encoded.dictionary), np.int64)
    firsts[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # Of repeated indices, the last assignment wins.
    return numbers, firsts


def place_keys(data: Bytes, offsets: Int64s, wanted: Bytes, wanted_offsets: Int64s) -> Int64s:
    """The first row of each wanted key, -1 if there is none."""
    keys = binaries(wanted, wanted_offsets)
    numbers = pc.fill_null(pc.index_in(binaries(data, offsets), value_set=keys), -1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(numbers >= 0)[::-1]
    places = np.full(len(keys), -1)
    places[numbers[found]] = found  # Of repeated indices, the last assignment wins: that of the first row.
    return places


def _dense(paths: Int64s) -> Int64s:
    """Dense numbers that are equal where paths are."""
    codes: Int64s = pa.array(paths).dictionary_encode().indices.to_numpy().astype(np.int64)
    return codes
