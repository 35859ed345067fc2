"""Reads the rows of a few keys from a file without decoding others, by cached page offsets and key digests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, text_array
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.log.blocks import find_avro_records, holds_bytes
from lakebed.format.log.file import BlockKind, HeaderKey
from lakebed.format.parquet_pages import ParquetPages, RowGroup
from lakebed.model.source import ByteSource, BytesSource
from lakebed.model.words import RECORD_KEY
from lakebed.storage import Storage
from lakebed.storage.cache import FileCache
from lakebed.view.blocks import FiledBlock

HELD_BYTES_MAX = 256 << 20
"""Size in bytes of the cache of digests and log files; enough for the digests of sixty million keys."""
DECODED_BYTES_MAX = 128 << 20
"""Size in bytes of the cache of decoded pages: those of some writers are slow to decode."""
_ABOUT_A_FOOTER = 64 << 10
_REMOTE_BYTES = 16 << 20
"""Maximum size in bytes of a remote file that is read whole: faster than a request per page."""
_WINDOW = 8
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64)


class KeyedFile:
    """A Parquet file with a digest of each row's key. Rows with different digests have different keys."""

    def __init__(self, source: ByteSource, key_column: str) -> None:
        self.pages = ParquetPages(source, self._decode_once)
        self._key_column = key_column
        self._in_memory = source.size if isinstance(source, BytesSource) else 0

    @cached_property
    def _digests(self) -> npt.NDArray[np.uint32]:
        parts = [key_digests(keys) for keys in self.pages.read_column(self._key_column)]
        return np.concatenate([np.empty(0, np.uint32), *parts])

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        return _ABOUT_A_FOOTER + self._in_memory + 4 * self.pages.rows

    def _decode_once(self, read: Callable[..., pa.Table], number: int, group: RowGroup, *what: Any) -> pa.Table:
        columns, first, count = what
        key = (id(self.pages), number, first, count, *(column.name for column in columns))
        held = _DECODED.find(key, HeldRows, lambda: HeldRows(read(number, group, *what), self.pages))
        return held.table

    def candidates(self, keys: Sequence[str]) -> list[int]:
        """Candidate rows, ascending: a superset of the rows of `keys`."""
        wanted = key_digests(text_array(keys))
        found = [np.flatnonzero(self._digests == digest) for digest in wanted]
        return sorted({int(row) for rows in found for row in rows})


class HeldRows:
    """Decoded rows of a file. Holds the file too, because the cache key contains its `id`, which must not be reused."""

    def __init__(self, table: pa.Table, pages: ParquetPages) -> None:
        self.table = table
        self.pages = pages

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        size: int = self.table.nbytes
        return size


class HeldBytes:
    """The cached content of a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return len(self.data)


HELD = FileCache(HELD_BYTES_MAX)
_DECODED = FileCache(DECODED_BYTES_MAX)


def keyed_file(storage: Storage, path: str, size: int, key_column: str) -> KeyedFile:
    """Opens a Parquet file of the table for key lookups; cached."""
    return HELD.find(
        (storage.url, path, size, key_column),
        KeyedFile,
        lambda: KeyedFile(_source(storage, path, size), key_column),
    )


class HeldStorage:
    """Reads whole files through the cache."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get(self, path: str) -> bytes:
        """The whole file."""
        return HELD.find((self._storage.url, path), HeldBytes, lambda: HeldBytes(self._storage.get(path))).data


def key_digests(keys: ArrowArray) -> npt.NDArray[np.uint32]:
    """A 32-bit digest per key, of its length and four samples of 8 bytes: all bytes of most keys up to 32 bytes."""
    data, offsets = binary_buffers(keys)
    first, end = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(end - first + _WINDOW, np.uint8)
    padded[: end - first] = data[first:end]
    windows = np.ndarray((len(padded) - _WINDOW + 1,), "<u8", padded.data, strides=(1,))
    lengths = np.diff(offsets)
    # The window of a short key contains bytes of the next key, which are shifted out.
    beyond = (8 * np.maximum(_WINDOW - lengths, 0)).astype(np.uint64)
    mixed = lengths.astype(np.uint64)
    for third, factor in enumerate(_FACTORS):
        mixed ^= _windows_at(windows, offsets[:-1] - first, lengths, third) << np.minimum(beyond, np.uint64(63))
        mixed *= factor
        mixed ^= mixed >> np.uint64(29)
    mixed[lengths == 0] = 0
    digests: npt.NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return digests


def _windows_at(
    windows: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], third: int
) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key, at `third`/3 of the way from its first to its last window."""
    length = int(lengths.max(initial=0))
    if length >= _WINDOW and length == lengths.min(
        initial=length
    ):  # All keys have the same length, so windows are evenly spaced.
        return windows[(length - _WINDOW) * third // 3 :: length][: len(lengths)]
    return windows[starts + np.maximum(lengths - _WINDOW, 0) * third // 3]


def _source(storage: Storage, path: str, size: int) -> ByteSource:
    if "://" in storage.url and size <= _REMOTE_BYTES:
        return BytesSource(storage.get(path), path)
    return storage.source(path, size)


_ROWS_MAX = 64
"""Maximum number of candidate rows; with more, the whole file is read."""


def find_base_rows(
    storage: Storage, path: str, size: int, columns: Sequence[str], keys: Sequence[str]
) -> pa.Table | None:
    """Columns of the rows of `keys` in a Parquet base file; None if the whole file must be read."""
    return _find_rows(keyed_file(storage, path, size, RECORD_KEY), columns, keys)


def find_block_rows(filed: FiledBlock, columns: Sequence[str], keys: Sequence[str], url: str) -> pa.Table | None:
    """Like `find_base_rows`, for the records of a log block of the table at `url`."""
    block = filed.block
    if block.kind is BlockKind.PARQUET_DATA:
        source = BytesSource(block.content, filed.path)
        held = HELD.find((url, filed.path, block.offset), KeyedFile, lambda: KeyedFile(source, RECORD_KEY))
        return _find_rows(held, columns, keys)
    if block.kind is BlockKind.AVRO_DATA:
        schema = block.header.get(HeaderKey.SCHEMA, "")
        return find_avro_records(block, schema, columns, [key.encode() for key in keys], path=filed.path)
    return None


def may_hold(filed: FiledBlock, keys: Sequence[str]) -> bool:
    """Whether a block of Avro records or deletes may contain one of the keys; true if `keys` is empty."""
    return not keys or any(holds_bytes(filed.block, key.encode()) for key in keys)


def _find_rows(file: KeyedFile, columns: Sequence[str], keys: Sequence[str]) -> pa.Table | None:
    if RECORD_KEY not in file.pages.columns:
        return None
    rows = file.candidates(keys)
    return file.pages.read_rows(columns, rows) if len(rows) <= _ROWS_MAX else None
