"""Java's `String.hashCode`, and the shard of the metadata table that it sends a key to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lakebed.format.arrow import ArrowArray

_FEW_COUNT = 8
"""Up to so many keys plain Python is as fast as arrays."""


def java_hash(text: str) -> int:
    """`String.hashCode` of `text`: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def shard_of(key: str, shards: int) -> int:
    """Which of `shards` file groups holds the entry of `key`."""
    assert shards > 0, shards
    if shards == 1:
        return 0
    # Java's abs(-2**31) stays negative and its remainder takes that sign; the second abs drops it again.
    return abs(java_hash(key)) % shards


def shards_of(keys: ArrowArray, shards: int) -> npt.NDArray[np.int32]:
    """`shard_of` for each of an array of strings."""
    import numpy as np
    import pyarrow as pa

    assert shards > 0
    assert keys.null_count == 0
    if shards == 1:
        return np.zeros(len(keys), np.int32)
    texts = keys if pa.types.is_large_string(keys.type) else keys.cast(pa.string())
    if len(keys) <= _FEW_COUNT:
        return np.array([shard_of(key, shards) for key in texts.to_pylist()], np.int32)
    from lakebed.format.hfile.order import binary_buffers
    from lakebed.kernels.sharding import find_shards

    found = np.empty(len(keys), np.int32)
    find_shards(*binary_buffers(texts), shards, found)
    return found
