"""What decoders refuse with CorruptTableError: bad bytes, bad JSON, names that lead out of the table."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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


_OUTSIDE = re.compile(r"\A/|/\Z|//|(?:\A|/)\.{1,2}(?:/|\Z)|\0|\A\.hoodie(?:\Z|/(?!metadata/[^.]))")
"""Partitions of the metadata table count as data: a rollback names them, too."""
_NO_NAME = re.compile(r"\A\.{0,2}\Z|[/\0]")


def check_partitions(partitions: Iterable[str], *, path: str) -> None:
    """CorruptTableError if the file at `path` names a partition that cannot be one of the table."""
    for partition in partitions:
        if _OUTSIDE.search(partition):
            raise _outside(partition, path)


def check_files(files: Mapping[str, Iterable[str]], *, path: str) -> None:
    """CorruptTableError if the file at `path` names files, by partition, that cannot be data files of the table."""
    check_partitions(files, path=path)
    for names in files.values():
        for name in names:
            if _NO_NAME.search(name):
                raise _outside(name, path)


def _outside(name: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"it names {name[:200]!r}, which is outside the table's data",
        path=path,
        hint="nothing was read or deleted; find out who wrote the file, and restore it from a backup",
    )


def decode_json_object(data: bytes, *, path: str, what: str) -> dict[str, Any]:
    """The JSON object in `data`; `what` names it in messages. All its strings can be encoded as UTF-8."""
    with decoding(path, what):
        text = data.decode("utf-8")
        value = json.loads(text)
        if not isinstance(value, dict):
            raise TypeError(f"a JSON object is expected, not {type(value).__name__}")
        if "\\u" in text:
            # JSON can spell half a surrogate pair, which no later consumer could encode.
            json.dumps(value, ensure_ascii=False).encode()
        return value


def encode_json_object(value: dict[str, Any]) -> bytes:
    """`value` as indented JSON text, keys in the order given."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
