"""The compiled loop that encodes Arrow columns as Avro datums: one interpreter for all schemas.

It runs twice. The first pass writes nothing and finds the size of every datum; the second writes each in its place.
Positions are addresses; a step returns the position after what it wrote, or a fault as a negative number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lakebed.kernels.avro_encode import (
    BLOCKS,
    BOOLEAN,
    BYTES,
    CONSTANT,
    END,
    FIXED,
    INT,
    JUMP,
    LONG,
    NEXT,
    NOT_ONE_BRANCH,
    NULLABLE,
    PRESENT,
    TOO_WIDE,
    UNEXPECTED_NULL,
    UNION,
    Memory,
    RowError,
)
from lakebed.kernels.buffers import Bytes, Int64s
from lakebed.kernels.compiled import jit
from lakebed.kernels.compiled.jit import Entry, kernel
from lakebed.kernels.compiled.memory import copy, load_byte, load_int, load_long, store

_FRAME_BYTES = 24


def encode(code: Int64s, rows: int, loop_depth: int, memory: Sequence[Memory]) -> tuple[Bytes, Int64s]:  # noqa: ARG001
    """All bytes, and the offsets of datums: measured first, then written."""
    frames = np.empty((loop_depth + 1, 3), np.int64)

    def run(positions: Int64s, *, write: bool) -> None:
        fault, row, at = run_program(code, positions, frames, write)
        if fault:
            raise RowError(fault, row, at)

    offsets = np.zeros(rows + 1, np.int64)
    run(offsets[1:], write=False)
    np.cumsum(offsets, out=offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    run(data.ctypes.data + offsets[:-1], write=True)
    return data, offsets


@kernel
def _encode(code: Any, positions: Any, frames: Any, write: bool) -> tuple[int, int, int]:
    """Runs the program for every row; the start of each datum is read from `positions`, its end stored after it.

    Returns (0, …), or (fault, row, instruction) of the first fault.
    """
    for row in range(positions.size):
        pos, pc, index, frame = positions[row], 0, row, frames.ctypes.data - _FRAME_BYTES
        while code[pc, 0] != END:
            op, a, b, c = code[pc, 0], code[pc, 1], code[pc, 2], code[pc, 3]
            after, following = pos, pc + 1
            if op == NULLABLE:
                valid = _is_valid(a, b, index)
                after = _varint(pos, np.int64(1 - c if valid else c), write)
                if not valid:
                    following = code[pc, 4]
            elif op == BYTES:
                after = _bytes(pos, a + 4 * index, b, write)
            elif op == LONG:
                after = _varint(pos, load_long(a + 8 * index), write)
            elif op == INT:
                after = _varint(pos, np.int64(load_int(a + 4 * index)), write)
            elif op == FIXED:
                after = _fixed(pos, a + b * index, b, write)
            elif op == BLOCKS:
                frame += _FRAME_BYTES
                after, following = _blocks(pos, a + 4 * index, frame, index, write), b
            elif op == NEXT:
                if load_long(frame + 8) < load_long(frame + 16):
                    index, following = load_long(frame + 8), a
                    store(frame + 8, index + 1)
                else:
                    after, index = _varint(pos, np.int64(0), write), load_long(frame)
                    frame -= _FRAME_BYTES
            elif op == UNION:
                chosen = _chosen(code[pc : pc + 1 + code[pc, 5]], index)
                after = _varint(pos, code[pc + chosen, 3], write) if chosen >= 0 else chosen
                following = code[pc + max(chosen, 0), 4]
            elif op == JUMP:
                following = a
            else:
                after = _other(pos, op, a, b, c, index, write)
            if after < 0:
                return after, row, pc
            pos, pc = after, following
        positions[row] = pos
    return 0, 0, 0


@kernel
def _is_valid(bitmap: int, first: int, index: int) -> bool:
    bit = first + index
    return bitmap == 0 or (load_byte(bitmap + (bit >> 3)) >> np.uint8(bit & 7)) & 1 == 1


@kernel
def _varint(pos: int, value: int, write: bool) -> int:
    raw = np.uint64((value << 1) ^ (value >> 63))
    while raw > 127:
        if write:
            store(pos, np.uint8(raw | np.uint64(128)))
        raw >>= np.uint64(7)
        pos += 1
    if write:
        store(pos, np.uint8(raw))
    return pos + 1


@kernel
def _bytes(pos: int, offsets: int, data: int, write: bool) -> int:
    start = np.int64(load_int(offsets))
    length = load_int(offsets + 4) - start
    pos = _varint(pos, length, write)
    if write:
        copy(pos, data + start, length)
    return pos + length


@kernel
def _fixed(pos: int, value: int, size: int, write: bool) -> int:
    if write and size == 8:  # A copy of constant length is one instruction.
        store(pos, load_long(value))
    elif write:
        copy(pos, value, size)
    return pos + size


@kernel
def _blocks(pos: int, offsets: int, frame: int, index: int, write: bool) -> int:
    """Opens a loop over items; a frame has the index of the outer item, the next item and the end of the items."""
    first, end = np.int64(load_int(offsets)), np.int64(load_int(offsets + 4))
    store(frame, np.int64(index))
    store(frame + 8, first)
    store(frame + 16, end)
    return _varint(pos, end - first, write) if end > first else pos


@kernel
def _chosen(rows: Any, index: int) -> int:
    """The row of the branch to write for a union: 0 for null, else that of the one child that is set."""
    if not _is_valid(rows[0, 1], rows[0, 2], index):
        return 0 if rows[0, 3] >= 0 else UNEXPECTED_NULL
    chosen = 0
    for row in range(1, rows.shape[0]):
        if _is_valid(rows[row, 1], rows[row, 2], index):
            if chosen:
                return NOT_ONE_BRANCH
            chosen = row
    return chosen if chosen else NOT_ONE_BRANCH


@kernel
def _other(pos: int, op: int, a: int, b: int, c: int, index: int, write: bool) -> int:
    if op == CONSTANT:
        return _varint(pos, a, write)
    if op == PRESENT:
        return pos if _is_valid(a, b, index) else UNEXPECTED_NULL
    if op == BOOLEAN:
        if write:
            store(pos, np.uint8(_is_valid(a, b, index)))
        return pos + 1
    return _decimal(pos, a + b * index, b, c, write)


@kernel
def _decimal(pos: int, value: int, width: int, size: int, write: bool) -> int:
    """A little-endian number of `width` bytes as a big-endian one of `size`; if that is -1, of as few as fit."""
    sign = np.uint8(255) if load_byte(value + width - 1) > 127 else np.uint8(0)
    least = width
    while least > 1 and load_byte(value + least - 1) == sign and (load_byte(value + least - 2) ^ sign) < 128:
        least -= 1
    if size < 0:
        size = least
        pos = _varint(pos, np.int64(size), write)
    elif least > size:
        return TOO_WIDE
    if write:
        for index in range(size):
            back = size - 1 - index
            store(pos + index, load_byte(value + back) if back < width else sign)
    return pos + size


run_program = Entry(_encode, jit.TABLE_OF_INT64S, jit.OUT_INT64S, jit.OUT_TABLE_OF_INT64S, jit.FLAG)
