"""Work in this process: a function over tasks, on a few threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_tasks(tasks: Sequence[T], run: Callable[[T], R], *, threads: int | None = None) -> Iterator[R]:
    """Results of `run` over `tasks`, in order. Arrow and compiled code release the GIL, so threads run in parallel.

    There are as many as this machine has cores; tasks that mostly wait for the store want more.
    """
    workers = min(len(tasks), threads or os.cpu_count() or 1)
    if workers <= 1:
        yield from map(run, tasks)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="lakebed") as pool:
        yield from pool.map(run, tasks)


def map_bounded(tasks: Iterable[T], run: Callable[[T], R]) -> Iterator[R]:
    """Like `map_tasks`, for large tasks or results: each is taken when a thread is free, and few results wait."""
    workers = os.cpu_count() or 1
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="lakebed") as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(run, task))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
