"""Turns what parsers raise on bad bytes into CorruptTableError."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from lakebed.errors import CorruptTableError

_ON_BAD_BYTES = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
    struct.error,
    zlib.error,
)
"""OSError: Arrow says so of bad compressed pages. Not MemoryError: sizes are checked before anything is allocated."""

_ROWS_FREE, _ROWS_PER_BYTE_MAX = 1 << 20, 64
"""Rows that a Parquet file may have: so many, and so many more per byte. Runs make more of a byte, but keys do not."""


def check_row_counts(counts: Sequence[int], size: int) -> int:
    """All rows of row groups; ValueError if `size` bytes cannot have so many: Arrow allocates what a footer says."""
    rows = sum(counts)
    if min(counts, default=0) < 0 or rows > _ROWS_FREE + _ROWS_PER_BYTE_MAX * size:
        raise ValueError(f"{rows} rows in {size} bytes")
    return rows


@contextmanager
def decoding(path: str, what: str, *, offset: int | None = None) -> Iterator[None]:
    """Whatever goes wrong inside is bad bytes in `path`: `what` says which part was being decoded."""
    try:
        yield
    except CorruptTableError:
        raise
    except _ON_BAD_BYTES as error:
        raise CorruptTableError(f"{what} cannot be decoded ({error})", path=path, offset=offset) from error
