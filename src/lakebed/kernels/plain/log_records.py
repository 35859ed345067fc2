"""Length-prefixed records, one at a time in Python."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np

from lakebed.kernels.buffers import Bytes, Int64s

_LENGTH = struct.Struct(">i")


def walk_lengths(data: Bytes, start: int, count: int) -> tuple[Int64s, Int64s] | None:
    """Where each record begins and ends; None if they do not fill `data` to its end."""
    content, at = data.data, start
    starts, ends = [], []
    for _ in range(count):
        if len(content) - at < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        if not 0 <= length <= len(content) - at:
            return None
        starts.append(at)
        at += length
        ends.append(at)
    return (np.array(starts, np.int64), np.array(ends, np.int64)) if at == len(content) else None


def put_records(data: Bytes, offsets: Int64s, out: Bytes, start: int) -> None:
    """Write each record after its length."""
    content = data.tobytes()
    parts = [_LENGTH.pack(end - at) + content[at:end] for at, end in pairwise(offsets.tolist())]
    joined = np.frombuffer(b"".join(parts), np.uint8)
    out[start : start + len(joined)] = joined
