"""Keys of several shards, in the order of the shards and within each of the keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.native import Bytes, Int32s, Int64s, copy_bytes, kernel, prefetch
from lakebed.format.hfile.order import binary_buffers
from lakebed.format.hfile.order_kernels import compare_keys, sort_groups
from lakebed.format.java_hash_kernel import find_shards

_AHEAD = 32
"""So many keys before one is copied it is asked for: they come in any order."""


@dataclass(frozen=True, slots=True)
class SplitKeys:
    """Keys and the numbers that were given with them; those of shard i lie between `bounds[i]` and `bounds[i + 1]`."""

    keys: pa.Array
    numbers: Int32s
    bounds: Int64s


def split_keys(keys: ArrowArray, numbers: Int32s, shards: int) -> SplitKeys | None:
    """Keys (strings, without nulls) by shard, in ascending order of their bytes; None if one occurs twice."""
    assert len(keys) == len(numbers)
    data, offsets = binary_buffers(keys)
    shard_of, bounds = np.empty(len(keys), np.int32), np.zeros(shards + 1, np.int64)
    _find_shards(data, offsets, shard_of, bounds)
    order = sort_groups(data, offsets, shard_of, shards)
    is_large = pa.types.is_large_string(keys.type)
    taken = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    ends, taken_numbers = np.empty(len(keys) + 1, np.int64 if is_large else np.int32), np.empty(len(keys), np.int32)
    if not _take_keys(data, offsets, numbers, order, taken, ends, taken_numbers):
        return None
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(taken)]
    return SplitKeys(pa.Array.from_buffers(keys.type, len(keys), buffers), taken_numbers, bounds)


@kernel
def _find_shards(data: Bytes, offsets: Int64s, shard_of: Int32s, bounds: Int64s) -> None:
    """Fill `shard_of`, as `java_hash.shard_of` says, and `bounds`, all zeros and one more than there are shards."""
    shards = len(bounds) - 1
    find_shards(data, offsets, shards, shard_of)
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
