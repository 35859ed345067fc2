"""Decodes Avro datums to streams of values, by running a program of integers that stands for the schema.

Each instruction is a row of five integers: an operation and its operands. The program runs once per datum and appends
every value that is present to a *stream*, a run of equal-sized items. Streams have no gaps: a null writes one byte to
the validity stream of its union and nothing to the streams below.
"""

from __future__ import annotations

from lakebed.kernels.buffers import Bytes, Int64s, check_length, require
from lakebed.kernels.choice import choose

# Operations. In the comments: `s` is a stream (-1: read and drop), `pc` the number of an instruction.
END = 0  # the datum ends here
JUMP = 1  # pc
NULLABLE = 2  # s of validity, branch of null, pc after the value
UNION = 3  # s of branches, number of branches; one JUMP per branch follows
BOOLEAN = 4  # s
INT = 5  # s
LONG = 6  # s
FIXED = 7  # s, size
BYTES = 8  # s of offsets, s of bytes, tally
ENUM = 9  # s, number of symbols
DECIMAL = 10  # s, width in Arrow, size (-1: a length precedes)
BLOCKS = 11  # pc of the NEXT that closes the loop
NEXT = 12  # s of offsets, tally, pc of the first instruction of the item, least size of an item

CUT, VARINT, RANGE, BRANCH, LENGTH, COUNT, BLOCK_SIZE, BOOL, SYMBOL, DIGITS, LEFT_OVER = range(-1, -12, -1)
FAULTS = {
    CUT: "the datum ends within a value",
    VARINT: "a variable-length integer is longer than ten bytes",
    RANGE: "an int is outside 32 bits",
    BRANCH: "a union has no such branch",
    LENGTH: "a length is negative",
    COUNT: "a block has more items than the datum can hold",
    BLOCK_SIZE: "a block does not end where its size says",
    BOOL: "a boolean is neither 0 nor 1",
    SYMBOL: "an enum has no such symbol",
    DIGITS: "a decimal has no bytes, or more than its type holds",
    LEFT_OVER: "bytes are left over after the datum",
}
FREE_ITEMS = 65_536
"""Maximum number of zero-byte items, such as nulls in an array, beyond one per byte of data."""

_ITEM_BYTES = 64
"""Bytes of data that count as one row when the size of a call is estimated."""


class DatumError(ValueError):
    """A datum that does not match its schema: the fault, the row, the instruction and the byte position."""

    def __init__(self, fault: int, row: int, instruction: int, position: int) -> None:
        super().__init__(f"Avro datum {row}: {FAULTS[fault]}")
        self.fault, self.row, self.instruction, self.position = fault, row, instruction, position


def decode(
    data: Bytes, starts: Int64s, ends: Int64s, code: Int64s, prefixes: Int64s, tally_count: int, loop_depth: int
) -> list[Bytes]:
    """The streams of the program over all datums, where datum i is data[starts[i]:ends[i]]; DatumError if one is bad.

    Each stream begins with as many zero bytes as `prefixes` says. `tally_count` and `loop_depth` are the numbers of
    counters and of nested loops in the program. Streams are aligned to eight bytes in memory.
    """
    check_length(ends, len(starts), "ends")
    size = int((ends - starts).sum())
    if len(starts):
        is_inside = starts.min() >= 0 and ends.max() <= len(data) and (starts <= ends).all()
        require(is_inside, "a datum lies outside the data")
    streams: list[Bytes] = choose("avro_decode", max(len(starts), size // _ITEM_BYTES)).decode(
        data, starts, ends, code, prefixes, tally_count, loop_depth
    )
    return streams
