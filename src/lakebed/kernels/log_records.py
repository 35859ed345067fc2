"""Length-prefixed records of Avro log blocks; a length is a big-endian int32."""

from __future__ import annotations

from lakebed.kernels.buffers import Bytes, Int64s, check_offsets, require
from lakebed.kernels.choice import choose

LENGTH_BYTES = 4


def walk_lengths(data: Bytes, start: int, count: int) -> tuple[Int64s, Int64s] | None:
    """Where each of `count` records begins and ends, from `start` on; None if they do not fill `data` exactly."""
    require(0 <= start <= len(data), "the records begin outside their block")
    require(0 <= count <= (len(data) - start) // LENGTH_BYTES, f"{count} records do not fit into the block")
    found: tuple[Int64s, Int64s] | None = choose("log_records", count).walk_lengths(data, start, count)
    return found


def put_records(data: Bytes, offsets: Int64s, out: Bytes, start: int) -> None:
    """Write each record, data[offsets[i]:offsets[i + 1]], after its length into `out`, from `start` on."""
    count = check_offsets(data, offsets)
    size = int(offsets[-1] - offsets[0]) + LENGTH_BYTES * count
    require(start >= 0 and start + size <= len(out), "there is no room for the records")
    choose("log_records", count).put_records(data, offsets, out, start)
