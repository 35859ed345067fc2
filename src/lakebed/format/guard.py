"""Turns what parsers raise on bad bytes into CorruptTableError."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
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


@contextmanager
def decoding(path: str, what: str, *, offset: int | None = None) -> Iterator[None]:
    """Whatever goes wrong inside is bad bytes in `path`: `what` says which part was being decoded."""
    try:
        yield
    except CorruptTableError:
        raise
    except _ON_BAD_BYTES as error:
        raise CorruptTableError(f"{what} cannot be decoded ({error})", path=path, offset=offset) from error
