"""Shards of keys: Java's `String.hashCode` of many strings, and keys sorted by shard."""

from __future__ import annotations

from typing import NamedTuple

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_offsets, require
from lakebed.kernels.choice import choose


def find_shards(data: Bytes, offsets: Int64s, shards: int, found: Int32s) -> None:
    """Fill `found` with the shard, below `shards`, of each UTF-8 string data[offsets[i]:offsets[i + 1]]."""
    count = check_offsets(data, offsets)
    check_length(found, count, "shards found")
    require(shards > 0, "there are no shards")
    choose("sharding", count).find_shards(data, offsets, shards, found)


class SplitKeys(NamedTuple):
    """Sorted keys and their numbers; those of shard i are between `bounds[i]` and `bounds[i + 1]`."""

    data: Bytes
    offsets: Int64s
    numbers: Int32s
    bounds: Int64s


def split_keys(data: Bytes, offsets: Int64s, numbers: Int32s, shards: int) -> SplitKeys | None:
    """Sorts UTF-8 keys by shard, then by their bytes; None if a key occurs twice."""
    count = check_offsets(data, offsets)
    check_length(numbers, count, "numbers")
    require(shards > 0, "there are no shards")
    found = choose("sharding", count).split_keys(data, offsets, numbers, shards)
    return None if found is None else SplitKeys(*found)
