"""Which shard of the metadata table keys belong to: `String.hashCode` of many strings."""

from __future__ import annotations

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_offsets, require
from lakebed.kernels.choice import choose


def find_shards(data: Bytes, offsets: Int64s, shards: int, found: Int32s) -> None:
    """Fill `found` with the shard, of so many, of each of the UTF-8 strings that lie in `data` between `offsets`."""
    count = check_offsets(data, offsets)
    check_length(found, count, "shards found")
    require(shards > 0, "there are no shards")
    choose("java_hash", count).find_shards(data, offsets, shards, found)
