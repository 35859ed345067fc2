"""Keys of several shards, in the order of the shards and within each of the keys."""

from __future__ import annotations

from typing import NamedTuple

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_offsets, require
from lakebed.kernels.choice import choose


class SplitKeys(NamedTuple):
    """Keys and the numbers that were given with them; those of shard i lie between `bounds[i]` and `bounds[i + 1]`."""

    data: Bytes
    offsets: Int64s
    numbers: Int32s
    bounds: Int64s


def split_keys(data: Bytes, offsets: Int64s, numbers: Int32s, shards: int) -> SplitKeys | None:
    """UTF-8 keys by shard, in ascending order of their bytes; None if one occurs twice."""
    count = check_offsets(data, offsets)
    check_length(numbers, count, "numbers")
    require(shards > 0, "there are no shards")
    found = choose("key_split", count).split_keys(data, offsets, numbers, shards)
    return None if found is None else SplitKeys(*found)
