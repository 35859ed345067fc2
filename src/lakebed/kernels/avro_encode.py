"""Arrow columns to Avro datums: a program of integers says what a datum consists of, and where in memory it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lakebed.kernels.buffers import Bytes, Int64s, require
from lakebed.kernels.choice import choose

# Operations. In the comments: `v` is a validity bitmap and its first bit (address 0: all valid), `pc` the number of an
# instruction, and every other operand an address unless it says what it is.
END = 0  # the datum ends here
JUMP = 1  # pc
CONSTANT = 2  # number
PRESENT = 3  # v: a null is a fault
NULLABLE = 4  # v, branch of null, pc after the value
UNION = 5  # v, branch of null (-1: none), pc after the value, number of branches; one BRANCH each follows
BRANCH = 6  # v of the child, branch, pc of the value
BOOLEAN = 7  # bits, first bit
INT = 8  # values
LONG = 9  # values
FIXED = 10  # values, size
BYTES = 11  # offsets, bytes
DECIMAL = 12  # values, width in Arrow, size (-1: as few bytes as hold the number, after their length)
BLOCKS = 13  # offsets, pc of the NEXT that closes the loop
NEXT = 14  # pc of the first instruction of the item

NULL_VALUE, NOT_ONE_BRANCH, TOO_WIDE = range(-1, -4, -1)
FAULTS = {
    NULL_VALUE: "is null, though the Avro schema has no null there",
    NOT_ONE_BRANCH: "must have exactly one child set, as it is a union in the Avro schema",
    TOO_WIDE: "has a decimal that needs more bytes than the Avro schema gives it",
}

_ITEM_BYTES = 64
"""What counts as one row of a call, where rows are long."""


class RowError(ValueError):
    """A row that does not fit the schema: what is wrong, which row it is, and at which instruction."""

    def __init__(self, fault: int, row: int, instruction: int) -> None:
        super().__init__(f"row {row} {FAULTS[fault]}")
        self.fault, self.row, self.instruction = fault, row, instruction


class Memory(NamedTuple):
    """Bytes that lie at an address, which a program refers to."""

    address: int
    content: memoryview


def encode(code: Int64s, rows: int, loop_depth: int, memory: Sequence[Memory]) -> tuple[Bytes, Int64s]:
    """So many rows as datums: all bytes, and rows + 1 offsets into them; RowError if a row does not fit.

    `memory` are the buffers of the columns, of arrays that were validated; `loop_depth` is what the program needs.
    """
    require(rows >= 0 and loop_depth >= 0, f"{rows} rows, {loop_depth} loops")
    size = sum(len(content) for _, content in memory)
    data, offsets = choose("avro_encode", max(rows, size // _ITEM_BYTES)).encode(code, rows, loop_depth, memory)
    return data, offsets
