"""The compiled loop that decodes Avro datums: one interpreter for all schemas, so that it is compiled once.

It runs twice over the same bytes. The first pass makes every check and finds the size of each stream, but writes
nothing. The second pass writes each stream to its place in one buffer.

Positions are addresses, for speed: passing arrays between compiled functions costs reference counting. Steps return the
position after what they read, or a fault as a negative number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lakebed.kernels.avro_decode import (
    BLOCK_SIZE,
    BLOCKS,
    BOOL,
    BOOLEAN,
    BRANCH,
    BYTES,
    COUNT,
    CUT,
    DECIMAL,
    DIGITS,
    END,
    ENUM,
    FIXED,
    FREE_ITEMS,
    INT,
    JUMP,
    LEFT_OVER,
    LENGTH,
    LONG,
    NEXT,
    NULLABLE,
    RANGE,
    SYMBOL,
    UNION,
    VARINT,
    DatumError,
)
from lakebed.kernels.buffers import Bytes, Int64s
from lakebed.kernels.compiled import jit
from lakebed.kernels.compiled.jit import Entry, kernel
from lakebed.kernels.compiled.memory import copy, load_byte, load_long, store


def decode(
    data: Bytes, starts: Int64s, ends: Int64s, code: Int64s, prefixes: Int64s, tally_count: int, loop_depth: int
) -> list[Bytes]:
    """The streams of the program over all datums: measured first, then filled."""

    def run(cursors: Int64s, *, fill: bool) -> None:
        tallies, frames = np.zeros(tally_count, np.int64), np.empty((loop_depth, 2), np.int64)
        fault, *where = run_program(data.ctypes.data, starts, ends, code, cursors, tallies, frames, fill)
        if fault:
            raise DatumError(fault, *where)

    sizes = np.zeros_like(prefixes)
    run(sizes, fill=False)
    sizes += prefixes
    arena, bases = _arena(sizes)
    run(arena.ctypes.data + bases + prefixes, fill=True)
    return [arena[base : base + size] for base, size in zip(bases, sizes, strict=True)]


def _arena(sizes: Int64s) -> tuple[Bytes, Int64s]:
    """A buffer for streams of those sizes, and where each begins: at a multiple of eight, with eight zero bytes."""
    room = (sizes + 15) // 8 * 8
    bases = np.cumsum(room) - room
    arena = np.empty(int(room.sum()), np.uint8)
    arena.view(np.int64)[bases // 8] = 0
    return arena, bases


@kernel
def _decode(
    data: int, starts: Any, ends: Any, code: Any, cursors: Any, tallies: Any, frames: Any, fill: bool
) -> tuple[int, int, int, int]:
    """Runs the program `code` over every datum: (0, …), or (fault, row, instruction, position) of the first fault."""
    streams, totals, stack = cursors.ctypes.data, tallies.ctypes.data, frames.ctypes.data
    free = FREE_ITEMS + (ends - starts).sum()
    for row in range(starts.size):
        pos, end, pc, frame = data + starts[row], data + ends[row], 0, stack - 16
        while True:
            op, a, b, c = code[pc, 0], code[pc, 1], code[pc, 2], code[pc, 3]
            following = pc + 1
            if op == NULLABLE:
                branch, after = _branch(pos, end, 2)
                _put(streams, a, np.uint8(branch != b), 1, fill)
                if branch == b:
                    following = c
            elif op == BYTES:
                after = _bytes(pos, end, streams, a, b, totals + 8 * c, fill)
            elif op == LONG:
                value, after = _varint(pos, end)
                _put(streams, a, value, 8, fill)
            elif op == FIXED:
                after = _fixed(pos, end, streams, a, b, fill)
            elif op == END:
                if pos == end:
                    break
                after = LEFT_OVER
            elif op == JUMP:
                after, following = pos, a
            elif op == UNION:
                branch, after = _branch(pos, end, b)
                _put(streams, a, np.uint8(branch), 1, fill)
                following += branch
            elif op == BLOCKS:
                after, following, frame = pos, a, frame + 16
                _push(frame)
            elif op == NEXT:
                after, free = _next(pos, end, frame, totals + 8 * b, code[pc, 4], free)
                if after >= 0 and load_long(frame) >= 0:
                    following = c
                else:
                    frame -= 16
                    _put(streams, a, np.int32(tallies[b]), 4, fill)
            elif op == DECIMAL:
                after = _decimal(pos, end, streams, a, b, c, fill)
            else:
                after = _small(pos, end, streams, op, a, b, fill)
            if after < 0:
                return after, row, pc, pos - data
            pos, pc = after, following
    return 0, 0, 0, 0


@kernel
def _varint(pos: int, end: int) -> tuple[int, int]:
    """A zig-zag integer and the position after it."""
    if pos < end and load_byte(pos) < 128:
        small = np.int64(load_byte(pos))
        return (small >> 1) ^ -(small & 1), pos + 1
    return _long_varint(pos, end)


@kernel
def _long_varint(pos: int, end: int) -> tuple[int, int]:
    raw = np.uint64(0)
    for index in range(10):
        if pos + index >= end:
            return np.int64(0), CUT
        byte = np.uint64(load_byte(pos + index))
        if index == 9 and byte > 1:
            break
        raw |= (byte & np.uint64(127)) << np.uint64(7 * index)
        if byte < 128:
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), pos + index + 1
    return np.int64(0), VARINT


@kernel
def _branch(pos: int, end: int, count: int) -> tuple[int, int]:
    branch, after = _varint(pos, end)
    if after >= 0 and (branch < 0 or branch >= count):
        return branch, BRANCH
    return branch, after


@kernel
def _put(streams: int, stream: int, value: Any, width: int, fill: bool) -> None:
    if stream >= 0:
        at = load_long(streams + 8 * stream)
        store(streams + 8 * stream, at + width)
        if fill:
            store(at, value)


@kernel
def _span(pos: int, end: int) -> tuple[int, int]:
    """A length and the position after it; that many bytes follow within the datum."""
    length, after = _varint(pos, end)
    if after < 0:
        return length, after
    if length < 0:
        return length, LENGTH
    if length > end - after:
        return length, CUT
    return length, after


@kernel
def _bytes(pos: int, end: int, streams: int, a: int, b: int, total: int, fill: bool) -> int:
    length, after = _span(pos, end)
    if after < 0:
        return after
    if b >= 0:
        at = load_long(streams + 8 * b)
        store(streams + 8 * b, at + length)
        store(total, load_long(total) + length)
        if fill:
            copy(at, after, length)
        _put(streams, a, np.int32(load_long(total)), 4, fill)
    return after + length


@kernel
def _fixed(pos: int, end: int, streams: int, a: int, size: int, fill: bool) -> int:
    if size > end - pos:
        return CUT
    if a >= 0:
        at = load_long(streams + 8 * a)
        store(streams + 8 * a, at + size)
        if fill and size == 8:  # A copy of constant length is one instruction.
            store(at, load_long(pos))
        elif fill:
            copy(at, pos, size)
    return pos + size


@kernel
def _small(pos: int, end: int, streams: int, op: int, a: int, b: int, fill: bool) -> int:
    if op == BOOLEAN:
        if pos >= end:
            return CUT
        if load_byte(pos) > 1:
            return BOOL
        _put(streams, a, load_byte(pos), 1, fill)
        return pos + 1
    value, after = _varint(pos, end)
    if after < 0:
        return after
    if op == ENUM and (value < 0 or value >= b):
        return SYMBOL
    if op == INT and value != np.int32(value):
        return RANGE
    _put(streams, a, np.int32(value), 4, fill)
    return after


@kernel
def _decimal(pos: int, end: int, streams: int, a: int, width: int, size: int, fill: bool) -> int:
    """Turns a big-endian two's complement number of any length into a little-endian one of `width` bytes."""
    if size < 0:
        size, pos = _span(pos, end)
        if pos < 0:
            return pos
    if size > end - pos:
        return CUT
    if size == 0:
        return DIGITS
    sign = np.uint8(255) if load_byte(pos) > 127 else np.uint8(0)
    for index in range(size - width):
        if load_byte(pos + index) != sign or (load_byte(pos + size - width) ^ sign) > 127:
            return DIGITS
    if a >= 0:
        at = load_long(streams + 8 * a)
        store(streams + 8 * a, at + width)
        if fill:
            for index in range(width):
                store(at + index, load_byte(pos + size - 1 - index) if index < size else sign)
    return pos + size


@kernel
def _push(frame: int) -> None:
    """A frame has two numbers: the items left in the block, and the end that the block states (0: none)."""
    store(frame, np.int64(0))
    store(frame + 8, np.int64(0))


@kernel
def _next(pos: int, end: int, frame: int, total: int, least_bytes: int, free: int) -> tuple[int, int]:
    """Moves to the next item, and reads the header of a block where one begins; the loop ends at -1 items left."""
    left = load_long(frame)
    if left == 0:
        pos, left = _block(pos, end, frame, least_bytes, free)
        store(total, load_long(total) + left)
        if least_bytes == 0:
            free -= left
    store(frame, left - 1)
    return pos, free


@kernel
def _block(pos: int, end: int, frame: int, least_bytes: int, free: int) -> tuple[int, int]:
    """The position after the header of a block, and the number of its items: 0 at the end of the loop or on a fault."""
    stated_end = load_long(frame + 8)
    if stated_end != 0 and stated_end != pos:
        return BLOCK_SIZE, 0
    count, after = _varint(pos, end)
    stated_end = np.int64(0)
    if after >= 0 and count < 0:
        size, after = _span(after, end)
        count, stated_end = -count, after + size
    if after < 0:
        return after, 0
    if count < 0 or count > ((end - after) // least_bytes if least_bytes else free):
        return COUNT, 0
    store(frame + 8, stated_end)
    return after, count


run_program = Entry(
    _decode,
    jit.INT,
    jit.INT64S,
    jit.INT64S,
    jit.TABLE_OF_INT64S,
    jit.OUT_INT64S,
    jit.OUT_INT64S,
    jit.OUT_TABLE_OF_INT64S,
    jit.FLAG,
)
