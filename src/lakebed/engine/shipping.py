"""Compiled code on its way from the driver of a Spark job to its workers, so that they need not compile it again.

It travels as bytes inside the job, next to the pickled functions that the workers run anyway, and is stored in the
worker's own cache folder, which is checked as ever (see `kernels.cache`). A worker with other versions or another
processor, and so with another key, ignores it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa

from lakebed.kernels import cache, choice

_CODEC = "zstd"
_SUFFIXES = (".nbi", ".nbc")
"""Numba's index files and data files."""


@dataclass(frozen=True, slots=True)
class PackedCode:
    """The files of a cache folder: the folder's key, file names and sizes, and all content, compressed."""

    key: str
    files: tuple[tuple[str, int], ...]
    data: bytes = field(repr=False)


Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` runs in a worker."""


def with_code(work: Work) -> Work:
    """Work that brings the compiled code of this host along."""
    code = pack()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unpack(code)
        return work(batches)

    return run


def pack() -> PackedCode | None:
    """The compiled code of this host; None if there is none, or if plain code is asked for."""
    folder = cache.find_ready() if choice.is_ready() else None
    return None if folder is None else _pack(folder)


def unpack(code: PackedCode | None) -> bool:
    """Store code in this host's cache, unless the cache is complete or needs other code; whether it was stored."""
    if code is None or code.key != cache.key() or cache.find_ready() is not None:
        return False
    folder = cache.make_folder()
    if folder is None:
        return False
    try:
        _store(code, folder)
        cache.mark_ready(folder)
    except OSError:  # A full disk, or a worker beside this one that was faster: plain code serves.
        return False
    choice.forget()
    return True


@lru_cache(maxsize=1)
def _pack(folder: str) -> PackedCode | None:
    """Packed once per process: a complete folder never changes."""
    names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIXES))
    contents = [_read(os.path.join(folder, name)) for name in names]
    files = tuple((name, len(content)) for name, content in zip(names, contents, strict=True))
    return PackedCode(cache.key(), files, pa.compress(b"".join(contents), _CODEC, asbytes=True))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _store(code: PackedCode, folder: str) -> None:
    """Write the files. Several workers may do so at once: each file appears whole, and all write the same."""
    data = pa.decompress(code.data, sum(size for _, size in code.files), _CODEC, asbytes=True)
    start = 0
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        for name, size in code.files:
            path = os.path.join(partial, os.path.basename(name))
            with open(path, "xb") as file:
                file.write(data[start : start + size])
            os.replace(path, os.path.join(folder, os.path.basename(name)))
            start += size
