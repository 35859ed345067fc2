"""Byte strings for numpy and Arrow: as Arrow arrays, and word by word for hash functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.kernels.buffers import Bytes, Int64s


def binaries(data: Bytes, offsets: Int64s) -> Any:
    """The byte strings as an Arrow array, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def buffers(array: Any) -> tuple[Bytes, Int64s]:
    """The bytes and offsets of an unsliced array of large binaries, without a copy."""
    assert array.offset == 0
    _, offsets, data = array.buffers()
    bounds = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)[: len(array) + 1]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[: bounds[-1]], bounds


_KINDS: dict[int, Any] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}


class Strings:
    """Byte strings sorted by descending length, so that those with a word at some position come first.

    `order` has their original positions and `lengths` their lengths.
    """

    def __init__(self, data: Bytes, offsets: Int64s, *, width: int) -> None:
        """Words are little-endian and have `width` bytes."""
        lengths = np.diff(offsets)
        is_even = not len(lengths) or lengths.min() == lengths.max()
        self.order: Int64s = np.arange(len(lengths)) if is_even else np.argsort(-lengths, kind="stable")
        self.lengths: Int64s = lengths[self.order]
        self._width, self._kind = width, _KINDS[width]
        # Words that are read beyond the end of a string stay within the buffer.
        self._data = np.concatenate((data[offsets[0] : offsets[-1]], np.zeros(width, np.uint8)))
        self._starts: Int64s = offsets[:-1][self.order] - offsets[0]

    def words(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """For each word position: the slice of `order` whose strings have a whole word there, and these words."""
        counts = self.lengths // self._width
        for place in range(int(counts[0]) if len(counts) else 0):
            some = slice(0, int(np.searchsorted(-counts, -place, "left")))
            yield some, self._load(self._starts[some] + self._width * place)

    def rest(self) -> npt.NDArray[Any]:
        """The bytes after the last whole word of each string, as a zero-padded word."""
        left = self.lengths % self._width
        words = self._load(self._starts + self.lengths - left)
        bits = (8 * left).astype(self._kind)
        return words & ((self._kind.type(1) << bits) - self._kind.type(1))

    def _load(self, starts: Int64s) -> npt.NDArray[Any]:
        content = self._data[starts[:, None] + np.arange(self._width)]
        return content.view(self._kind)[:, 0]
