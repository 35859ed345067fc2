"""Splitting keys by shard with Arrow's sort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.kernels.buffers import Bytes, Int32s, Int64s
from lakebed.kernels.plain.arrays import binaries, buffers
from lakebed.kernels.plain.java_hash import find_shards
from lakebed.kernels.plain.ordering import sort_groups


def split_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, shards: int
) -> tuple[Bytes, Int64s, Int32s, Int64s] | None:
    """The keys in order, where each begins and ends, their numbers, and where shards do; None if a key occurs twice."""
    shard_of, bounds = np.empty(len(numbers), np.int32), np.zeros(shards + 1, np.int64)
    find_shards(data, offsets, shards, shard_of)
    np.cumsum(np.bincount(shard_of, minlength=shards), out=bounds[1:])
    order = sort_groups(data, offsets, shard_of, shards)
    keys = binaries(data, offsets).take(pa.array(order))
    if len(keys) > 1 and pc.any(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1))).as_py():
        return None
    return *buffers(keys), numbers[order], bounds
