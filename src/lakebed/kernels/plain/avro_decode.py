"""Interpreter in Python for the program that decodes Avro datums."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from lakebed.kernels import avro_decode as ops
from lakebed.kernels.buffers import Bytes, Int64s

_INT, _LONG = struct.Struct("<i"), struct.Struct("<q")
_VARINT_BYTES_MAX = 10


def decode(
    data: Bytes, starts: Int64s, ends: Int64s, code: Int64s, prefixes: Int64s, tally_count: int, loop_depth: int
) -> list[Bytes]:
    """The streams of the program over all datums."""
    free = ops.FREE_ITEMS + int((ends - starts).sum())
    machine = _Machine(data.tobytes(), [bytearray(size) for size in prefixes.tolist()], [0] * tally_count, free)
    program = [tuple(row) for row in code.tolist()]
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        machine.run(program, row, start, end)
    assert not machine.frames, loop_depth
    return [np.frombuffer(stream, np.uint8) if stream else np.empty(0, np.uint8) for stream in machine.streams]


class _FaultError(Exception):
    def __init__(self, fault: int) -> None:
        self.fault = fault


class _Machine:
    """The state of a running program: the bytes, the read position and its limit, and the streams so far."""

    def __init__(self, data: bytes, streams: list[bytearray], tallies: list[int], free: int) -> None:
        self.data, self.streams, self.tallies, self.free = data, streams, tallies, free
        self.pos = self.end = 0
        self.frames: list[list[int]] = []
        """Per open loop: the items left in the block, and the end that the block states (-1: none)."""
        self.steps: dict[int, Callable[[int, tuple[int, ...]], int]] = {
            ops.JUMP: lambda _pc, row: row[1],
            ops.NULLABLE: self.op_nullable,
            ops.UNION: self.op_union,
            ops.BOOLEAN: self.op_boolean,
            ops.INT: self.op_int,
            ops.LONG: self.op_long,
            ops.FIXED: self.op_fixed,
            ops.BYTES: self.op_bytes,
            ops.ENUM: self.op_enum,
            ops.DECIMAL: self.op_decimal,
            ops.BLOCKS: self.op_blocks,
            ops.NEXT: self.op_next,
        }

    def run(self, program: list[tuple[int, ...]], row: int, start: int, end: int) -> None:
        """Decode one datum."""
        self.pos, self.end, pc, at = start, end, 0, start
        try:
            while program[pc][0] != ops.END:
                at = self.pos
                pc = self.steps[program[pc][0]](pc, program[pc])
            at = self.pos
            self.require(self.pos == end, ops.LEFT_OVER)
        except _FaultError as error:
            raise ops.DatumError(error.fault, row, pc, at) from None

    @staticmethod
    def require(holds: bool, fault: int) -> None:
        """Stop with a fault unless the condition holds."""
        if not holds:
            raise _FaultError(fault)

    def put(self, stream: int, content: bytes) -> None:
        """Append to a stream; -1 drops the content."""
        if stream >= 0:
            self.streams[stream] += content

    def varint(self) -> int:
        """The next zig-zag integer."""
        raw = 0
        for index in range(_VARINT_BYTES_MAX):
            self.require(self.pos + index < self.end, ops.CUT)
            byte = self.data[self.pos + index]
            self.require(index < _VARINT_BYTES_MAX - 1 or byte <= 1, ops.VARINT)
            raw |= (byte & 127) << 7 * index
            if byte < 128:
                self.pos += index + 1
                break
        return (raw >> 1) ^ -(raw & 1)

    def take(self, size: int) -> bytes:
        """The next bytes."""
        self.require(size <= self.end - self.pos, ops.CUT)
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def length(self) -> int:
        """A length that does not exceed the bytes left."""
        length = self.varint()
        self.require(length >= 0, ops.LENGTH)
        self.require(length <= self.end - self.pos, ops.CUT)
        return length

    def branch(self, count: int) -> int:
        """The number of a branch of a union."""
        branch = self.varint()
        self.require(0 <= branch < count, ops.BRANCH)
        return branch

    def op_nullable(self, pc: int, row: tuple[int, ...]) -> int:
        is_null = self.branch(2) == row[2]
        self.put(row[1], b"\0" if is_null else b"\1")
        return row[3] if is_null else pc + 1

    def op_union(self, pc: int, row: tuple[int, ...]) -> int:
        branch = self.branch(row[2])
        self.put(row[1], bytes((branch,)))
        return pc + 1 + branch

    def op_boolean(self, pc: int, row: tuple[int, ...]) -> int:
        value = self.take(1)
        self.require(value[0] <= 1, ops.BOOL)
        self.put(row[1], value)
        return pc + 1

    def op_int(self, pc: int, row: tuple[int, ...]) -> int:
        value = self.varint()
        self.require(-(1 << 31) <= value < 1 << 31, ops.RANGE)
        self.put(row[1], _INT.pack(value))
        return pc + 1

    def op_enum(self, pc: int, row: tuple[int, ...]) -> int:
        value = self.varint()
        self.require(0 <= value < row[2], ops.SYMBOL)
        self.put(row[1], _INT.pack(value))
        return pc + 1

    def op_long(self, pc: int, row: tuple[int, ...]) -> int:
        self.put(row[1], _LONG.pack(self.varint()))
        return pc + 1

    def op_fixed(self, pc: int, row: tuple[int, ...]) -> int:
        self.put(row[1], self.take(row[2]))
        return pc + 1

    def op_bytes(self, pc: int, row: tuple[int, ...]) -> int:
        content = self.take(self.length())
        if row[2] >= 0:
            self.tallies[row[3]] += len(content)
            self.put(row[2], content)
            self.put(row[1], _INT.pack(self.tallies[row[3]]))
        return pc + 1

    def op_decimal(self, pc: int, row: tuple[int, ...]) -> int:
        """A big-endian number of any length becomes a little-endian one of the width in Arrow."""
        content = self.take(self.length() if row[3] < 0 else row[3])
        self.require(len(content) > 0, ops.DIGITS)
        try:
            self.put(row[1], int.from_bytes(content, "big", signed=True).to_bytes(row[2], "little", signed=True))
        except OverflowError:
            raise _FaultError(ops.DIGITS) from None
        return pc + 1

    def op_blocks(self, _pc: int, row: tuple[int, ...]) -> int:
        """Open a loop."""
        self.frames.append([0, -1])
        return row[1]

    def op_next(self, pc: int, row: tuple[int, ...]) -> int:
        """Continue with the next item, with the first one of the next block, or after the loop."""
        frame = self.frames[-1]
        if frame[0] == 0:
            frame[0] = self.block(frame, row[4])
            self.tallies[row[2]] += frame[0]
            self.free -= 0 if row[4] else frame[0]
        frame[0] -= 1
        if frame[0] >= 0:
            return row[3]
        self.frames.pop()
        self.put(row[1], _INT.pack(self.tallies[row[2]]))
        return pc + 1

    def block(self, frame: list[int], least_bytes: int) -> int:
        """The number of items of the block that begins here, 0 if there is none."""
        self.require(frame[1] in (-1, self.pos), ops.BLOCK_SIZE)
        count, frame[1] = self.varint(), -1
        if count < 0:
            size = self.length()
            count, frame[1] = -count, self.pos + size
        self.require(count <= ((self.end - self.pos) // least_bytes if least_bytes else self.free), ops.COUNT)
        return count
