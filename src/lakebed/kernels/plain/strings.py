"""Byte strings of any length, a word of each at a time: what hash functions with numpy are built from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from lakebed.kernels.buffers import Bytes, Int64s

_KINDS: dict[int, Any] = {4: np.dtype("<u4"), 8: np.dtype("<u8")}


class Strings:
    """Byte strings, the longest first, so that those with a word at some place are the first ones.

    `order` has their numbers and `lengths` their lengths.
    """

    def __init__(self, data: Bytes, offsets: Int64s, *, width: int) -> None:
        """Words of `width` bytes, the first byte lowest."""
        lengths = np.diff(offsets)
        is_even = not len(lengths) or lengths.min() == lengths.max()
        self.order: Int64s = np.arange(len(lengths)) if is_even else np.argsort(-lengths, kind="stable")
        self.lengths: Int64s = lengths[self.order]
        self._width, self._kind = width, _KINDS[width]
        # Words that are read beyond the end of a string stay within the buffer.
        self._data = np.concatenate((data[offsets[0] : offsets[-1]], np.zeros(width, np.uint8)))
        self._starts: Int64s = offsets[:-1][self.order] - offsets[0]

    def words(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """For each whole word of the longest: which strings, in `order`, have one there, and these words."""
        counts = self.lengths // self._width
        for place in range(int(counts[0]) if len(counts) else 0):
            some = slice(0, int(np.searchsorted(-counts, -place, "left")))
            yield some, self._load(self._starts[some] + self._width * place)

    def rest(self) -> npt.NDArray[Any]:
        """The bytes behind the last whole word of each string, as a word that is padded with zeros."""
        left = self.lengths % self._width
        words = self._load(self._starts + self.lengths - left)
        bits = (8 * left).astype(self._kind)
        return words & ((self._kind.type(1) << bits) - self._kind.type(1))

    def _load(self, starts: Int64s) -> npt.NDArray[Any]:
        content = self._data[starts[:, None] + np.arange(self._width)]
        return content.view(self._kind)[:, 0]
