"""Java's `String.hashCode`, and the shard of the metadata table that it sends a key to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lakebed.format.arrow import ArrowArray
    from lakebed.format.hfile.native import Bytes, Int64s

_FEW_COUNT = 8
"""Up to so many keys plain Python is as fast as arrays."""
_SMALL_COUNT = 256
"""Up to so many keys plain Python, where arrays cannot tell, saves the process from loading compiled kernels."""
_MEDIUM_COUNT = 250_000
"""Up to so many keys arrays, which take ten times what a kernel does, are faster than loading the compiler for it."""


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

    data, offsets = binary_buffers(texts)
    has_kernels = len(keys) > _MEDIUM_COUNT or (len(keys) > _SMALL_COUNT and "numba" in sys.modules)
    hashes = None if has_kernels else _ascii_hashes(data, offsets)
    if hashes is not None:
        return (np.abs(hashes.astype(np.int64)) % shards).astype(np.int32)
    if len(keys) <= _SMALL_COUNT:
        return np.array([shard_of(key, shards) for key in texts.to_pylist()], np.int32)
    from lakebed.format.java_hash_kernel import find_shards

    found = np.empty(len(keys), np.int32)
    find_shards(data, offsets, shards, found)
    return found


def _ascii_hashes(data: Bytes, offsets: Int64s) -> npt.NDArray[np.int32] | None:
    """`java_hash` of texts that are not empty, whose bytes are their UTF-16 units; None if there are others."""
    import numpy as np

    units, lengths = data[offsets[0] : offsets[-1]], np.diff(offsets)
    if not len(units) or not lengths.all() or units.max() >= 0x80:
        return None
    powers = np.full(int(lengths.max()), 31, np.uint32)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    ends = np.repeat(offsets[1:] - offsets[0] - 1, lengths)
    weighted = units.astype(np.uint32) * powers[ends - np.arange(len(units))]
    return np.add.reduceat(weighted, offsets[:-1] - offsets[0], dtype=np.uint32).view(np.int32)
