"""Records of the data blocks of an HFile: taken apart, put together, and compressed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, check_length, check_numbers, check_offsets, require
from lakebed.kernels.choice import choose
from lakebed.kernels.record_layout import ROW_BYTES_MAX

_TRIAL_SHARE = 4
"""One in so many records of a block is compressed in every way, to find the best."""


class BrokenRecordError(ValueError):
    """A record that is not whole: the number of its block, and where it starts in it."""

    def __init__(self, block: int, at: int) -> None:
        super().__init__(f"broken record at byte {at} of the block")
        self.block = block


class DecodedRecords(NamedTuple):
    """The rows of all blocks, one after the other, and their values: equal ones are stored once, under one number."""

    rows: Bytes
    row_offsets: Int64s
    value_ids: Int32s
    values: Bytes
    value_offsets: Int64s


class Records(NamedTuple):
    """Rows and distinct values that are to be framed: row i has the value `value_ids[i]`; rows are taken in `order`."""

    rows: Bytes
    row_offsets: Int64s
    values: Bytes
    value_offsets: Int64s
    value_ids: Int32s
    order: Int64s


@dataclass(frozen=True, slots=True)
class MeasuredRecords:
    """Records that are all there, bytes of all their rows and values, and of the longest. See `measure_records`."""

    content: Records = field(repr=False)
    rows: int
    values: int
    longest_row: int
    longest_value: int

    @property
    def order(self) -> Int64s:
        """The rows in the order in which they are framed."""
        return self.content.order


@dataclass(frozen=True, slots=True)
class FramedBlocks:
    """The content of some data blocks, one after the other, and where their records lie.

    `block_ends` and `record_ends` have, behind a zero, where each block ends in `data` and among the records. `starts`
    has one element more per block than it has records: where they start in their block, and where they end. `tails` are
    where their keys end in it.
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
        """Some records of the first block, enough to tell how all compress."""
        count = max(1, int(self.record_ends[1]) // _TRIAL_SHARE)
        size = int(self.starts[count])
        ends = np.array([0, size]), np.array([0, count])
        records = self.starts[: count + 1], self.tails[:count], self.value_ids[:count]
        return FramedBlocks(self.data[:size], ends[0], *records, ends[1], self.value_count)


def decode_records(blocks: Iterable[Bytes], count: int) -> DecodedRecords:
    """The records of data blocks, which should be `count`; BrokenRecordError if one does not hold together."""
    return DecodedRecords(*choose("hfile_records", count).decode_records(blocks))


def measure_records(records: Records) -> MeasuredRecords:
    """The records with their sizes; BadBufferError if some of them are not there."""
    rows = check_offsets(records.rows, records.row_offsets)
    values = check_offsets(records.values, records.value_offsets)
    check_length(records.value_ids, rows, "values of rows")
    sizes = choose("hfile_records", len(records.order)).measure_records(records)
    require(sizes is not None, f"a record is none of {rows} rows, or its value none of {values}")
    return MeasuredRecords(records, *map(int, sizes))


def frame_blocks(records: MeasuredRecords, *, block_bytes_max: int) -> Iterator[tuple[Int64s, FramedBlocks]]:
    """Data blocks of the records, some at a time; and the row each starts with. BadBufferError if rows do not ascend.

    A block ends before the record that would take it beyond `block_bytes_max`. Blocks are good until the next are made.
    """
    require(records.longest_row <= ROW_BYTES_MAX, "a row is too long")
    blocks: Iterator[tuple[Int64s, FramedBlocks]] = choose("hfile_records", len(records.order)).frame_blocks(
        records, block_bytes_max
    )
    return blocks


def deflate_blocks(blocks: FramedBlocks, count: int, *, search_keys: bool) -> list[memoryview]:
    """A deflate stream for each block of a file of so many records.

    `search_keys` looks for matches all through the keys: slower, and worth it for keys made of repeating parts.
    """
    check_numbers(blocks.value_ids, blocks.value_count, "value")
    streams: list[memoryview] = choose("deflate", count).deflate_blocks(blocks, search_keys=search_keys)
    return streams
