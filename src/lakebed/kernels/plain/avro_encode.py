"""Interpreter in Python for the program that encodes Arrow columns as Avro datums.

Addresses are looked up among the buffers of the columns, so that nothing outside of them is ever read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from lakebed.kernels import avro_encode as ops
from lakebed.kernels.avro_encode import Memory, RowError
from lakebed.kernels.buffers import Bytes, Int64s, require


def encode(code: Int64s, rows: int, loop_depth: int, memory: Sequence[Memory]) -> tuple[Bytes, Int64s]:
    """All bytes, and the offsets of datums."""
    program = _Program(code.tolist(), memory)
    out, offsets = bytearray(), np.zeros(rows + 1, np.int64)
    for row in range(rows):
        program.run(row, out)
        offsets[row + 1] = len(out)
    assert loop_depth >= 0
    return np.frombuffer(out, np.uint8) if out else np.empty(0, np.uint8), offsets


class _Program:
    """Instructions with their operands resolved to values."""

    def __init__(self, code: list[list[int]], memory: Sequence[Memory]) -> None:
        self._code = code
        self._memory = sorted(memory)
        self._addresses = [each.address for each in self._memory]
        self._values = [self._resolve(row) for row in code]
        self._valid = [self._bits(*row[1:3]) if row[0] in _WITH_VALIDITY else None for row in code]

    def run(self, row: int, out: bytearray) -> None:
        """Append one datum."""
        pc, index, frames = 0, row, []
        while self._code[pc][0] != ops.END:
            op, a, b, c, d, _ = self._code[pc]
            following = pc + 1
            if op == ops.NULLABLE:
                is_valid = self._is_valid(pc, index)
                out += _varint(1 - c if is_valid else c)
                following = following if is_valid else d
            elif op == ops.BLOCKS:
                first, end = self._values[pc][index : index + 2]
                frames.append([index, first, end])
                out += _varint(end - first) if end > first else b""
                following = b
            elif op == ops.NEXT:
                frame = frames[-1]
                if frame[1] < frame[2]:
                    index, frame[1], following = frame[1], frame[1] + 1, a
                else:
                    index = frames.pop()[0]
                    out += b"\0"
            elif op == ops.UNION:
                chosen = self._chosen(row, pc, index)
                out += _varint(self._code[pc + chosen][3])
                following = self._code[pc + chosen][4]
            elif op == ops.JUMP:
                following = a
            else:
                out += self._scalar(row, pc, index)
            pc = following

    def _scalar(self, row: int, pc: int, index: int) -> bytes:
        op, a, b, c = self._code[pc][:4]
        values: Any = self._values[pc]
        if op in (ops.INT, ops.LONG):
            return _varint(values[index])
        if op == ops.BYTES:
            offsets, content = values
            text = content[offsets[index] : offsets[index + 1]]
            return _varint(len(text)) + bytes(text)
        if op == ops.FIXED:
            return bytes(values[b * index : b * index + b])
        if op == ops.BOOLEAN:
            return bytes((values[index],))
        if op == ops.DECIMAL:
            return _decimal(bytes(values[b * index : b * index + b]), c, row, pc)
        if op == ops.CONSTANT:
            return _varint(a)
        if not self._is_valid(pc, index):
            raise RowError(ops.UNEXPECTED_NULL, row, pc)
        return b""

    def _chosen(self, row: int, pc: int, index: int) -> int:
        """The offset from `pc` of the branch to write for a union: 0 for null, else that of the child."""
        if not self._is_valid(pc, index):
            if self._code[pc][3] < 0:
                raise RowError(ops.UNEXPECTED_NULL, row, pc)
            return 0
        chosen = [at for at in range(1, self._code[pc][5] + 1) if self._is_valid(pc + at, index)]
        if len(chosen) != 1:
            raise RowError(ops.NOT_ONE_BRANCH, row, pc)
        return chosen[0]

    def _is_valid(self, pc: int, index: int) -> bool:
        bits = self._valid[pc]
        return bits is None or bool(bits[index])

    def _resolve(self, row: list[int]) -> Any:
        """The values that an instruction refers to."""
        op, a, b = row[:3]
        if op in (ops.INT, ops.LONG, ops.BLOCKS):
            return self._numbers(a, np.int64 if op == ops.LONG else np.int32)
        if op == ops.BYTES:
            return self._numbers(a, np.int32), self._content(b)
        if op == ops.BOOLEAN:
            return self._bits(a, b) or []
        return self._content(a) if op in (ops.FIXED, ops.DECIMAL) else None

    def _numbers(self, address: int, kind: type) -> list[int]:
        content = self._content(address)
        width = np.dtype(kind).itemsize
        return np.frombuffer(content[: len(content) // width * width], kind).tolist()

    def _bits(self, address: int, first: int) -> list[int] | None:
        """The bits from the first on; None if there is no bitmap, which means that all are set."""
        if address == 0:
            return None
        return np.unpackbits(np.frombuffer(self._content(address), np.uint8), bitorder="little")[first:].tolist()

    def _content(self, address: int) -> memoryview:
        """The bytes from an address to the end of its buffer; none for address 0."""
        if address == 0:
            return memoryview(b"")
        at = bisect_right(self._addresses, address) - 1
        require(at >= 0 and address - self._addresses[at] <= len(self._memory[at].content), "an address of no buffer")
        return self._memory[at].content[address - self._addresses[at] :]


_WITH_VALIDITY = (ops.NULLABLE, ops.PRESENT, ops.UNION, ops.BRANCH)


def _varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def _decimal(content: bytes, size: int, row: int, pc: int) -> bytes:
    """A little-endian number as a big-endian one of `size` bytes; if -1, as few as fit, after their length."""
    value = int.from_bytes(content, "little", signed=True)
    least = ((value if value >= 0 else ~value).bit_length() + 8) // 8
    if size >= 0 and least > size:
        raise RowError(ops.TOO_WIDE, row, pc)
    head = _varint(least) if size < 0 else b""
    return head + value.to_bytes(least if size < 0 else size, "big", signed=True)
