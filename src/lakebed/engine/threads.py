"""Work in this process: a function over tasks, on a few threads.

Those of writes stay when a write is over: to start one takes longer than much of what it is given to do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_STORES_AT_ONCE = 4
"""Of writes of this process that store something aside."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Threads that a block shares, and what it has begun there without waiting for it."""

    pool: ThreadPoolExecutor
    begun: list[Future[Any]] = field(default_factory=list)


_SHARED: ContextVar[_Shared | None] = ContextVar("lakebed.threads", default=None)
"""Of the thread that opened it: tasks that have tasks of their own start threads for them."""
_INLINE: list[ThreadPoolExecutor] = []
"""Stands in for threads where everything runs in the calling one."""


class _Inline(ThreadPoolExecutor):
    """Runs what it is given here and now."""

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        return _done(fn(*args, **kwargs))

    def __exit__(self, *raised: object) -> None:
        del raised


@contextmanager
def inline() -> Iterator[None]:
    """As long as the block lasts, this process starts no threads for tasks: they run where they are handed in.

    For simulations, whose calls of the store take turns in one thread.
    """
    _INLINE.append(_Inline(1))
    try:
        yield
    finally:
        _INLINE.pop()


def _count() -> int:
    """So many that no core has nothing to do while a thread waits for the store."""
    return (os.cpu_count() or 1) + 1


@contextmanager
def shared_threads() -> Iterator[None]:
    """As long as the block lasts, all that it maps runs on threads that stay; what it began there ends with it."""
    shared = _Shared(_INLINE[-1] if _INLINE else _threads(_count(), "lakebed"))
    token = _SHARED.set(shared)
    try:
        yield
    finally:
        _SHARED.reset(token)
        _end(shared.begun)


@cache
def _threads(count: int, name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # A child has none of the threads of its parent.


def map_tasks(tasks: Sequence[T], run: Callable[[T], R], *, threads: int | None = None) -> Iterator[R]:
    """Results of `run` over `tasks`, in order. Arrow and compiled code release the GIL, so threads run in parallel.

    There is one more than this machine has cores; tasks that mostly wait for the store want more.
    """
    workers = min(len(tasks), threads or _count())
    if workers <= 1:
        yield from map(run, tasks)
        return
    with _pool(workers, is_given=threads is not None) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        try:
            for future in futures:
                yield future.result()
        finally:
            _end(futures)


def map_bounded(tasks: Iterable[T], run: Callable[[T], R]) -> Iterator[R]:
    """Like `map_tasks`, for large tasks or results: each is taken when a thread is free, and few results wait."""
    workers = _count()
    waiting: deque[Future[R]] = deque()
    with _pool(workers) as pool:
        try:
            for task in tasks:
                waiting.append(pool.submit(run, task))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            _end(waiting)


def map_large(tasks: Iterable[T], run: Callable[[T], R], is_large: Callable[[T], bool]) -> list[R]:
    """Results of `run` over `tasks`, in order: of large ones on threads, of others here, as they come up."""
    started: list[Future[R] | R] = []
    with _pool(_count()) as pool:
        try:
            started.extend(pool.submit(run, task) if is_large(task) else run(task) for task in tasks)
            return [each.result() if isinstance(each, Future) else each for each in started]
        finally:
            _end([each for each in started if isinstance(each, Future)])


def start(tasks: Iterable[T], run: Callable[[T], R]) -> list[Future[R]]:
    """Begins `run` over `tasks` on the threads that this thread shares, behind what these have to do already.

    Whoever shares them waits for all of it in the end; without such threads it is done here and now.
    """
    shared = _SHARED.get()
    if shared is None:
        return [_done(run(task)) for task in tasks]
    begun = [shared.pool.submit(run, task) for task in tasks]
    shared.begun.extend(begun)
    return begun


@contextmanager
def aside() -> Iterator[Callable[[Callable[[T], R], T], Future[R]]]:
    """Begins things that mostly wait for the store, on other threads than `start`; they are over at the end."""
    pool = _INLINE[-1] if _INLINE else _threads(_STORES_AT_ONCE, "lakebed-store")
    begun: list[Future[Any]] = []

    def begin(run: Callable[[T], R], task: T) -> Future[R]:
        future = pool.submit(run, task)
        begun.append(future)
        return future

    try:
        yield begin
    finally:
        _end(begun)


def _done(result: R) -> Future[R]:
    future: Future[R] = Future()
    future.set_result(result)
    return future


@contextmanager
def _pool(workers: int, *, is_given: bool = False) -> Iterator[ThreadPoolExecutor]:
    """The threads that this thread shares, unless it wants a number of them that `is_given`; else new ones."""
    if _INLINE:
        yield _INLINE[-1]
        return
    shared = _SHARED.get()
    if shared is not None and not is_given:
        yield shared.pool
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="lakebed") as pool:
        yield pool


def _end(futures: Iterable[Future[R]]) -> None:
    """Nothing of these runs any more afterwards: what has not begun does not."""
    for future in futures:
        future.cancel()
    wait([*futures])
