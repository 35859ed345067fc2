"""Records of HFile blocks, one at a time in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, require
from lakebed.kernels.hfile_records import (
    KEY_SUFFIX,
    RECORD_BYTES,
    RECORD_BYTES_MIN,
    RECORD_HEADER,
    RECORD_HEADER_BYTES,
    BrokenRecordError,
    FramedBlocks,
    MeasuredRecords,
    Records,
)


def decode_records(blocks: Iterable[Bytes]) -> tuple[Bytes, Int64s, Int32s, Bytes, Int64s]:
    """Rows and their offsets, the number of each value, distinct values and their offsets."""
    rows: list[bytes] = []
    ids: list[int] = []
    numbers: dict[bytes, int] = {}
    for number, block in enumerate(blocks):
        for row, value in _records(number, block.tobytes()):
            rows.append(row)
            ids.append(numbers.setdefault(value, len(numbers)))
    return *_joined(rows), np.array(ids, np.int32), *_joined([*numbers])


def _records(number: int, block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The row and the value of each record of a block."""
    at, end, unpack = 0, len(block), RECORD_HEADER.unpack_from
    while at < end:
        if end - at < RECORD_BYTES_MIN:
            raise BrokenRecordError(number, at)
        key_length, value_length, row_length = unpack(block, at)
        row_at, value_at = at + RECORD_HEADER_BYTES, at + 8 + key_length
        following = value_at + value_length + 1
        # A negative length is malformed, too.
        is_whole = 0 <= row_length <= key_length - 2 and value_length >= 0 and following <= end
        if not is_whole or block[following - 1] != 0:
            raise BrokenRecordError(number, at)
        yield block[row_at : row_at + row_length], block[value_at : value_at + value_length]
        at = following


def _joined(parts: list[bytes]) -> tuple[Bytes, Int64s]:
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=offsets[1:])
    return np.frombuffer(b"".join(parts), np.uint8), offsets


def measure_records(records: Records) -> tuple[int, int, int, int] | None:
    """Bytes of all rows and values, and of the longest; None if one of them is not there."""
    order, ids = records.order, records.value_ids
    if len(order) and not 0 <= order.min() <= order.max() < len(ids):
        return None
    ids = ids[order]
    if len(ids) and not 0 <= ids.min() <= ids.max() < len(records.value_offsets) - 1:
        return None
    rows, values = np.diff(records.row_offsets)[order], np.diff(records.value_offsets)[ids]
    return rows.sum(), values.sum(), rows.max(initial=0), values.max(initial=0)


def frame_blocks(measured: MeasuredRecords, block_bytes_max: int) -> Iterator[tuple[Int64s, FramedBlocks]]:
    """One block at a time."""
    records = measured.content
    order, ids = records.order.tolist(), records.value_ids[records.order].tolist()
    rows, values = _parts(records.rows, records.row_offsets), _parts(records.values, records.value_offsets)
    tails = [KEY_SUFFIX + value + b"\0" for value in values]
    last, first = None, 0
    while first < len(order):
        parts: list[bytes] = []
        ends, at = [], 0
        for row, value in zip(order[first:], ids[first:], strict=True):
            content = rows[row]
            size = RECORD_BYTES + len(content) + len(values[value])
            if parts and at + size > block_bytes_max:
                break
            require(last is None or last < content, "rows do not ascend")
            header = RECORD_HEADER.pack(2 + len(content) + len(KEY_SUFFIX), len(values[value]), len(content))
            parts.append(header + content + tails[value])
            ends.append(at + RECORD_HEADER_BYTES + len(content))
            last, at = content, at + size
        yield np.array(order[first : first + 1]), _block(parts, ends, ids[first : first + len(parts)], len(values))
        first += len(parts)


def _parts(data: Bytes, offsets: Int64s) -> list[bytes]:
    content = data.tobytes()
    return [content[start:end] for start, end in pairwise(offsets.tolist())]


def _block(parts: list[bytes], tails: list[int], ids: list[int], value_count: int) -> FramedBlocks:
    starts = np.array([0, *accumulate(map(len, parts))], np.int64)
    data = np.frombuffer(b"".join(parts), np.uint8)
    ends, counts = np.array([0, len(data)]), np.array([0, len(parts)])
    return FramedBlocks(data, ends, starts, np.array(tails, np.int64), np.array(ids, np.int32), counts, value_count)
