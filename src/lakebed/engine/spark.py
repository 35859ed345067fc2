"""Tasks on Spark, through DataFrames alone: the same code runs locally, on a cluster and over Spark Connect."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.shipping import with_code
from lakebed.engine.workers import ensure_workers
from lakebed.errors import LakebedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """The result of a call, or what it raised on purpose: Spark would turn that into text."""
    result: object
    try:
        result = run()
    except LakebedError as error:
        result = error
    _release_memory()
    columns = [pa.array([number], pa.int64()), pa.array([pickle.dumps(result)], pa.binary())]
    return pa.record_batch(columns, names=["number", "result"])


def _release_memory() -> None:
    """Gives back what a task no longer needs: Spark keeps its workers for others.

    The C library keeps pieces of what was freed, up to half of what a worker has. Not every one can be asked for them.
    """
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _unpacked(result: bytes) -> Any:
    value = pickle.loads(result)
    if isinstance(value, LakebedError):
        raise value
    return value
