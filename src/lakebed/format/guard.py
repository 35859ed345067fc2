"""Checks of decoders, which raise CorruptTableError: malformed bytes or JSON, and names that lead out of the table."""

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
"""Exceptions caused by malformed bytes. Arrow raises OSError for bad compressed pages. MemoryError is not among them:
sizes are checked before memory is allocated."""

_ROWS_FREE, _ROWS_PER_BYTE_MAX = 1 << 20, 64
"""Maximum number of rows of a Parquet file: a constant, plus a number per byte. Runs can encode more, keys cannot."""


def check_row_counts(counts: Sequence[int], size: int) -> int:
    """The sum of the row counts; ValueError if `size` bytes cannot hold so many: Arrow allocates what a footer says."""
    rows = sum(counts)
    if min(counts, default=0) < 0 or rows > _ROWS_FREE + _ROWS_PER_BYTE_MAX * size:
        raise ValueError(f"{rows} rows in {size} bytes")
    return rows


@contextmanager
def decoding(path: str, what: str, *, offset: int | None = None) -> Iterator[None]:
    """Turns what malformed bytes raise inside into CorruptTableError; `what` names the part that is decoded."""
    try:
        yield
    except CorruptTableError:
        raise
    except _ON_BAD_BYTES as error:
        raise CorruptTableError(f"{what} cannot be decoded ({error})", path=path, offset=offset) from error


_OUTSIDE = re.compile(r"\A/|/\Z|//|(?:\A|/)\.{1,2}(?:/|\Z)|\0|\A\.hoodie(?:\Z|/(?!metadata/[^.]))")
"""Matches paths that are not a partition. Partitions of the metadata table are allowed: rollbacks name them, too."""
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
