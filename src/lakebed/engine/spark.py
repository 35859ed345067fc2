"""Tasks on Spark, through DataFrames alone: the same code runs locally, on a cluster and over Spark Connect.

Each job carries the driver's compiled code, so that workers need not compile it again. It travels as bytes next to the
pickled functions, and a worker stores it in its own cache folder, checked as usual (see `kernels.cache`). A worker with
other versions or another processor has another key and ignores it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.session import ensure_workers
from lakebed.errors import LakebedError
from lakebed.kernels import cache, choice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """Work that first stores the compiled code of this host on the worker."""
    code = pack_code()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unpack_code(code)
        return work(batches)

    return run


def pack_code() -> PackedCode | None:
    """The compiled code of this host; None if there is none, or if plain code is forced."""
    folder = cache.find_ready() if choice.is_ready() else None
    return None if folder is None else _pack(folder)


def unpack_code(code: PackedCode | None) -> bool:
    """Stores code in this host's cache; False if the cache is complete, has another key, or cannot be written."""
    if code is None or code.key != cache.key() or cache.find_ready() is not None:
        return False
    folder = cache.make_folder()
    if folder is None:
        return False
    try:
        _store(code, folder)
        cache.mark_ready(folder)
    except OSError:  # A full disk, or another worker was faster: this one runs plain code.
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
    """Writes the files. Safe for concurrent workers: files appear whole, and all workers write the same bytes."""
    data = pa.decompress(code.data, sum(size for _, size in code.files), _CODEC, asbytes=True)
    start = 0
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        for name, size in code.files:
            path = os.path.join(partial, os.path.basename(name))
            with open(path, "xb") as file:
                file.write(data[start : start + size])
            os.replace(path, os.path.join(folder, os.path.basename(name)))
            start += size


T = TypeVar("T")
R = TypeVar("R")

_RESULT = "number long, result binary"


class OnSpark:
    """Tasks run in Spark's Python workers, one Spark task each. `jobs` counts the jobs that were started.

    InvalidInputError if the workers cannot run lakebed.
    """

    def __init__(self, spark: SparkSession) -> None:
        ensure_workers(spark)
        self._spark = spark
        self.jobs = 0

    def map(self, tasks: Sequence[T], run: Callable[[T], R]) -> list[R]:
        """Results of `run` over `tasks`, in order. Spark may run a task more than once."""
        if not tasks:
            return []
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        work = _task_runner([pickle.dumps(task) for task in tasks], run)
        return self._collect(numbers.mapInArrow(with_code(work), _RESULT))

    def fold(self, rows: DataFrame, run: Callable[[Iterator[pa.RecordBatch]], R]) -> list[R]:
        """Results of `run` over the rows of each partition of a DataFrame, which is evaluated once."""
        return self._collect(rows.mapInArrow(with_code(_partition_runner(run)), _RESULT))

    def _collect(self, frame: DataFrame) -> list[R]:
        self.jobs += 1
        table = frame.toArrow()
        order = pc.sort_indices(table["number"])
        return [_unpacked(result) for result in table["result"].take(order).to_pylist()]


def _task_runner(
    tasks: list[bytes], run: Callable[[T], R]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _packed(number, partial(_run_pickled, run, tasks[number]))

    return work


def _run_pickled(run: Callable[[Any], object], task: bytes) -> object:
    return run(pickle.loads(task))


def _partition_runner(
    run: Callable[[Iterator[pa.RecordBatch]], R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _packed(0, partial(run, batches))

    return work


def _packed(number: int, run: Callable[[], object]) -> pa.RecordBatch:
    """The result of a call, or the LakebedError it raised: Spark would turn that into text."""
    result: object
    try:
        result = run()
    except LakebedError as error:
        result = error
    _release_memory()
    columns = [pa.array([number], pa.int64()), pa.array([pickle.dumps(result)], pa.binary())]
    return pa.record_batch(columns, names=["number", "result"])


def _release_memory() -> None:
    """Returns freed memory to the operating system, because Spark reuses its workers.

    The C library keeps up to half of a worker's memory in freed pieces; glibc has `malloc_trim`, others do not.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _unpacked(result: bytes) -> Any:
    value = pickle.loads(result)
    if isinstance(value, LakebedError):
        raise value
    return value
