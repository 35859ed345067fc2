"""`String.hashCode` as array arithmetic (a sum of UTF-16 units weighted by powers of 31), and Arrow's sort by shard."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.kernels.buffers import BadBufferError, Bytes, Int32s, Int64s
from lakebed.kernels.plain.ordering import sort_groups
from lakebed.kernels.plain.strings import binaries, buffers

_CONTINUATION_MASK, _CONTINUATION, _FOUR_BYTES = 0xC0, 0x80, 0xF0


def find_shards(data: Bytes, offsets: Int64s, shards: int, found: Int32s) -> None:
    """Fill `found` with the shard of each string."""
    hashes = _hashes(*_utf16(data[offsets[0] : offsets[-1]], offsets - offsets[0]))
    # Java's abs(-2**31) stays negative and its remainder takes that sign; abs of an int64 gives the same shard.
    found[:] = np.abs(hashes.astype(np.int64)) % shards


def _hashes(units: npt.NDArray[np.integer], offsets: Int64s) -> Int32s:
    """The hash of each string of UTF-16 units; all arithmetic is modulo 2**32."""
    lengths = np.diff(offsets)
    powers = np.full(int(lengths.max(initial=0)) + 1, 31, np.uint32)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    before_end = np.repeat(offsets[1:] - 1, lengths) - np.arange(len(units))
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units.astype(np.uint32) * powers[before_end], dtype=np.uint32, out=sums[1:])
    return (sums[offsets[1:]] - sums[offsets[:-1]]).view(np.int32)


def _utf16(data: Bytes, offsets: Int64s) -> tuple[npt.NDArray[np.integer], Int64s]:
    """UTF-8 strings as UTF-16: all code units, and the offsets of the strings in them."""
    if not len(data) or data.max() < _CONTINUATION:
        return data, offsets
    # A code point has one unit, one of four bytes has two.
    units_before = np.zeros(len(data) + 1, np.int64)
    starts_unit = (data & _CONTINUATION_MASK != _CONTINUATION).astype(np.int64) + (data >= _FOUR_BYTES)
    np.cumsum(starts_unit, out=units_before[1:])
    try:
        text = data.tobytes().decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BadBufferError(f"a text is not UTF-8 ({error})") from error
    return np.frombuffer(text, "<u2"), units_before[offsets]


def split_keys(
    data: Bytes, offsets: Int64s, numbers: Int32s, shards: int
) -> tuple[Bytes, Int64s, Int32s, Int64s] | None:
    """The keys sorted by shard, their offsets, their numbers, and the bounds of shards; None if a key occurs twice."""
    shard_of, bounds = np.empty(len(numbers), np.int32), np.zeros(shards + 1, np.int64)
    find_shards(data, offsets, shards, shard_of)
    np.cumsum(np.bincount(shard_of, minlength=shards), out=bounds[1:])
    order = sort_groups(data, offsets, shard_of, shards)
    keys = binaries(data, offsets).take(pa.array(order))
    if len(keys) > 1 and pc.any(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1))).as_py():
        return None
    return *buffers(keys), numbers[order], bounds
