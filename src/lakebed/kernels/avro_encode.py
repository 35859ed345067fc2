"""Encodes Arrow columns as Avro datums, by running a program of integers: the schema, with addresses of the columns."""

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

UNEXPECTED_NULL, NOT_ONE_BRANCH, TOO_WIDE = range(-1, -4, -1)
FAULTS = {
    UNEXPECTED_NULL: "is null, though the Avro schema has no null there",
    NOT_ONE_BRANCH: "must have exactly one child set, as it is a union in the Avro schema",
    TOO_WIDE: "has a decimal that needs more bytes than the Avro schema gives it",
}

_ITEM_BYTES = 64
"""Bytes of data that count as one row when the size of a call is estimated."""


class RowError(ValueError):
    """A row that does not fit the schema: the fault, the row and the instruction."""

    def __init__(self, fault: int, row: int, instruction: int) -> None:
        super().__init__(f"row {row} {FAULTS[fault]}")
        self.fault, self.row, self.instruction = fault, row, instruction


class Memory(NamedTuple):
    """A buffer that a program refers to, and its address."""

    address: int
    content: memoryview


def encode(code: Int64s, rows: int, loop_depth: int, memory: Sequence[Memory]) -> tuple[Bytes, Int64s]:
    """The datums of `rows` rows: all bytes, and rows + 1 offsets into them; RowError if a row does not fit.

    `memory` has the buffers of the columns, which are validated arrays; `loop_depth` is the number of nested loops.
    """
    require(rows >= 0 and loop_depth >= 0, f"{rows} rows, {loop_depth} loops")
    size = sum(len(content) for _, content in memory)
    data, offsets = choose("avro_encode", max(rows, size // _ITEM_BYTES)).encode(code, rows, loop_depth, memory)
    return data, offsets
