"""Records of the data blocks of an HFile: decoded, encoded and compressed.

A record is

    int32 key length, int32 value length, int16 row length, row, 10-byte suffix, value, one byte 0
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_numbers, check_offsets, require
from lakebed.kernels.choice import choose

RECORD_HEADER = struct.Struct(">iih")
RECORD_HEADER_BYTES = RECORD_HEADER.size
KEY_SUFFIX = bytes.fromhex("007fffffffffffffff04")
"""The end of every key: column family length 0, the largest timestamp, and the type "put"."""
RECORD_BYTES = RECORD_HEADER_BYTES + len(KEY_SUFFIX) + 1
"""Size in bytes of a record without its row and value."""
RECORD_BYTES_MIN = 11
"""Size in bytes of the shortest record: lengths, an empty row without a suffix, an empty value, and the last byte."""
ROW_BYTES_MAX = 0x7FFF
"""Maximum size of a row in bytes."""

_TRIAL_SHARE = 4
"""Divisor for the part of a block that is compressed in every way, to find the best."""


class BrokenRecordError(ValueError):
    """A malformed record: the number of its block, and where it starts in the block."""

    def __init__(self, block: int, at: int) -> None:
        super().__init__(f"broken record at byte {at} of the block")
        self.block = block


class DecodedRecords(NamedTuple):
    """The rows and values of all blocks, concatenated; each distinct value is stored once and referred to by number."""

    rows: Bytes
    row_offsets: Int64s
    value_ids: Int32s
    values: Bytes
    value_offsets: Int64s


class Records(NamedTuple):
    """Rows and distinct values to encode: row i has the value `value_ids[i]`; rows are taken in `order`."""

    rows: Bytes
    row_offsets: Int64s
    values: Bytes
    value_offsets: Int64s
    value_ids: Int32s
    order: Int64s


@dataclass(frozen=True, slots=True)
class MeasuredRecords:
    """Validated records with the total size of their rows and values, and the size of the longest, in bytes."""

    content: Records = field(repr=False)
    rows: int
    values: int
    longest_row: int
    longest_value: int

    @property
    def order(self) -> Int64s:
        """The rows in the order in which they are encoded."""
        return self.content.order


@dataclass(frozen=True, slots=True)
class FramedBlocks:
    """The content of some data blocks, concatenated, and the positions of their records.

    `block_ends` and `record_ends` begin with a zero, followed by the end of each block in `data` and in the numbering
    of records. `starts` has per block the start of each record in the block, and the end of the last. `tails` has where
    the key of each record ends in its block.
    """

    data: Bytes = field(repr=False)
    block_ends: Int64s
    starts: Int64s
    tails: Int64s
    value_ids: Int32s
    record_ends: Int64s
    value_count: int

    def contents(self) -> list[memoryview]:
        """The content of each block."""
        return [self.data.data[start:end] for start, end in pairwise(self.block_ends.tolist())]

    def beginning(self) -> FramedBlocks:
        """A sample of the first block, enough to tell how all blocks compress."""
        count = max(1, int(self.record_ends[1]) // _TRIAL_SHARE)
        size = int(self.starts[count])
        ends = np.array([0, size]), np.array([0, count])
        records = self.starts[: count + 1], self.tails[:count], self.value_ids[:count]
        return FramedBlocks(self.data[:size], ends[0], *records, ends[1], self.value_count)


def decode_records(blocks: Iterable[Bytes], count: int) -> DecodedRecords:
    """The records of data blocks, about `count` of them; BrokenRecordError if one is malformed."""
    return DecodedRecords(*choose("hfile_records", count).decode_records(blocks))


def measure_records(records: Records) -> MeasuredRecords:
    """Validates records and measures them; BadBufferError if a row or value number is out of range."""
    rows = check_offsets(records.rows, records.row_offsets)
    values = check_offsets(records.values, records.value_offsets)
    check_length(records.value_ids, rows, "values of rows")
    sizes = choose("hfile_records", len(records.order)).measure_records(records)
    require(sizes is not None, f"the number of a row ({rows}) or of a value ({values}) is out of range")
    return MeasuredRecords(records, *map(int, sizes))


def frame_blocks(records: MeasuredRecords, *, block_bytes_max: int) -> Iterator[tuple[Int64s, FramedBlocks]]:
    """Encodes records as data blocks, some at a time, with the first row of each; BadBufferError if rows do not ascend.

    A block ends before the record that would exceed `block_bytes_max`. Blocks are valid until the next are made.
    """
    require(records.longest_row <= ROW_BYTES_MAX, "a row is too long")
    blocks: Iterator[tuple[Int64s, FramedBlocks]] = choose("hfile_records", len(records.order)).frame_blocks(
        records, block_bytes_max
    )
    return blocks


def deflate_blocks(blocks: FramedBlocks, count: int, *, search_keys: bool) -> list[memoryview]:
    """A deflate stream for each block of a file of `count` records.

    `search_keys` looks for matches in all parts of keys: slower, but better for keys made of repeating parts.
    """
    check_numbers(blocks.value_ids, blocks.value_count, "value")
    streams: list[memoryview] = choose("deflate", count).deflate_blocks(blocks, search_keys=search_keys)
    return streams
