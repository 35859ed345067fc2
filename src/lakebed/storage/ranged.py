"""Files that are read in ranges, over any storage."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.storage.problems import missing, too_short

if TYPE_CHECKING:
    from lakebed.storage.port import Storage

_READ_AHEAD_BYTES = 256 * 1024
"""Read-ahead in bytes: a request to an object store takes about as long as transferring this much."""


@dataclass(frozen=True, slots=True)
class StorageSource:
    """A stored file as a ByteSource; it pickles with its storage."""

    storage: Storage
    path: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise too_short(self.path, offset, length, self.size)
        return self.storage.get_range(self.path, offset, length)


def open_source(storage: Storage, path: str, size: int | None) -> StorageSource:
    """The file at `path`, asking for its size unless it is known; CorruptTableError if it is missing."""
    known = storage.size(path) if size is None else size
    if known is None:
        raise missing(path)
    return StorageSource(storage, path, known)


def open_arrow_file(storage: Storage, path: str) -> pa.NativeFile:
    """The file for Arrow, read through `get_range` with read-ahead."""
    raw = _RangedFile(open_source(storage, path, None))
    return pa.PythonFile(io.BufferedReader(raw, _READ_AHEAD_BYTES), mode="r")


def merge_ranges(ranges: Sequence[tuple[int, int]], *, gap: int) -> tuple[tuple[int, int], ...]:
    """The (start, end) spans, ascending and more than `gap` apart, that hold all ranges (offset, length)."""
    spans: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if spans and offset - spans[-1][1] <= gap:
            spans[-1] = (spans[-1][0], max(spans[-1][1], offset + length))
        else:
            spans.append((offset, offset + length))
    return tuple(spans)


def cut_ranges(
    ranges: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]], pieces: Sequence[bytes]
) -> list[bytes]:
    """The bytes of each range (offset, length), out of the pieces read for the spans of `merge_ranges`."""
    starts = [start for start, _ in spans]
    parts = []
    for offset, length in ranges:
        index = bisect_right(starts, offset) - 1
        begin = offset - starts[index]
        parts.append(pieces[index][begin : begin + length])
    return parts


class _RangedFile(io.RawIOBase):
    """A seekable file object over a StorageSource."""

    def __init__(self, source: StorageSource) -> None:
        super().__init__()
        self._source = source
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        length = max(0, min(len(buffer), self._source.size - self._position))
        buffer[:length] = self._source.read(self._position, length)
        self._position += length
        return length
