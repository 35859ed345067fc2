"""Keys of several shards, in the order of the shards and within each of the keys."""

from __future__ import annotations

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.compiled.java_hash import fill_shards
from lakebed.kernels.compiled.jit import BYTES, INT32S, INT64S, OUT_BYTES, OUT_INT32S, OUT_INT64S, Entry, kernel
from lakebed.kernels.compiled.native import copy_bytes, prefetch
from lakebed.kernels.compiled.ordering import compare_keys, merge_words, sort_groups, sort_ties

_AHEAD = 32
"""Prefetch distance in keys: they are copied in any order."""
_SORTING = (merge_words, sort_ties)
"""Entries that are called through `sort_groups`."""


def split_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, shards: int
) -> tuple[Bytes, Int64s, Int32s, Int64s] | None:
    """The keys in order, where each begins and ends, their numbers, and where shards do; None if a key occurs twice."""
    count = len(numbers)
    shard_of, bounds = np.empty(count, np.int32), np.zeros(shards + 1, np.int64)
    fill_bounds(data, offsets, shard_of, bounds)
    order = sort_groups(data, offsets, shard_of, shards)
    taken, ends = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.empty(count + 1, np.int64)
    taken_numbers = np.empty(count, np.int32)
    are_distinct = take_keys(data, offsets, numbers, order, taken, ends, taken_numbers)
    return (taken, ends, taken_numbers, bounds) if are_distinct else None


@kernel
def _find_shards(data: Bytes, offsets: Int64s, shard_of: Int32s, bounds: Int64s) -> None:
    """Fill `shard_of`, as `java_hash.shard_of` says, and `bounds`, all zeros and one more than there are shards."""
    shards = len(bounds) - 1
    fill_shards(data, offsets, shards, shard_of)
    for key in range(len(shard_of)):
        bounds[shard_of[key] + 1] += 1
    for shard in range(shards):
        bounds[shard + 1] += bounds[shard]


@kernel
def _take_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, order: Int64s, taken: Bytes, ends: Int64s, taken_numbers: Int32s
) -> bool:
    """Copy keys and numbers in `order`, in which equal keys are neighbours; False if there are such.

    `taken` has room for all keys, `ends`, which gets where they start and end, for one more than there are.
    """
    at = np.int64(0)
    ends[0] = 0
    for place in range(len(order)):
        key = order[place]
        if place + _AHEAD < len(order):
            prefetch(data, offsets[order[place + _AHEAD]])
        if place > 0 and compare_keys(data, offsets, order[place - 1], key, 0) == 0:
            return False
        length = offsets[key + 1] - offsets[key]
        copy_bytes(taken, at, data, offsets[key], length)
        at += length
        ends[place + 1], taken_numbers[place] = at, numbers[key]
    return True


fill_bounds = Entry(_find_shards, BYTES, INT64S, OUT_INT32S, OUT_INT64S)
take_keys = Entry(_take_keys, BYTES, INT64S, INT32S, INT64S, OUT_BYTES, OUT_INT64S, OUT_INT32S)
