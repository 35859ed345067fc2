"""Engines: a function mapped over tasks, on threads of this process or (`spark.py`) on Spark.

Tasks and results are picklable frozen values. The threads of a write are kept for the next one, because starting a
thread takes longer than many of the tasks.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar

from lakebed.errors import StorageUnavailableError

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Where tasks run."""

    def map(self, tasks: Sequence[T], run: Callable[[T], R]) -> list[R]:
        """Results of `run` over `tasks`, in order. `run` may be called more than once for a task."""
        ...


class InProcess:
    """Tasks run on threads of this process: one per core, or as many as are asked for."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads

    def map(self, tasks: Sequence[T], run: Callable[[T], R]) -> list[R]:
        """Results of `run` over `tasks`, in order."""
        return list(map_tasks(tasks, run, threads=self._threads))


_STORES_AT_ONCE = 4
"""Number of threads on which the writes of this process store files in the background (see `aside`)."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """The thread pool of a `shared_threads` block, and the futures started there without waiting for them."""

    pool: ThreadPoolExecutor
    begun: list[Future[Any]] = field(default_factory=list)


_SHARED: ContextVar[_Shared | None] = ContextVar("lakebed.threads", default=None)
"""The pool of the thread that opened it. Worker threads do not see it: tasks that map tasks start new threads."""


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
    """One thread more than there are cores: no core is idle while one thread waits for the store."""
    return (os.cpu_count() or 1) + 1


@contextmanager
def shared_threads() -> Iterator[None]:
    """Within the block, `map_*` and `start` use one pool of reused threads.

    Leaving it cancels calls that have not begun and waits for the others.
    """
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

    By default there is one thread more than cores; tasks that mostly wait for the store want more.
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
    """Like `map_tasks` in bounded memory: tasks are taken as threads become free, and few results wait."""
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
    """Results of `run` over `tasks`, in order: large ones run on threads, the others on this thread."""
    started: list[Future[R] | R] = []
    with _pool(_count()) as pool:
        try:
            started.extend(pool.submit(run, task) if is_large(task) else run(task) for task in tasks)
            return [each.result() if isinstance(each, Future) else each for each in started]
        finally:
            _end([each for each in started if isinstance(each, Future)])


def start(tasks: Iterable[T], run: Callable[[T], R]) -> list[Future[R]]:
    """Starts `run` over `tasks` on the pool of the enclosing `shared_threads`; without one, they run here and now.

    The end of that block cancels those that have not begun and waits for the others.
    """
    shared = _SHARED.get()
    if shared is None:
        return [_done(run(task)) for task in tasks]
    begun = [shared.pool.submit(run, task) for task in tasks]
    shared.begun.extend(begun)
    return begun


@contextmanager
def aside() -> Iterator[Callable[[Callable[[T], R], T], Future[R]]]:
    """Gives a function that starts calls which mostly wait for the store, on threads of their own.

    Leaving the block cancels calls that have not begun and waits for the others.
    """
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
    """The shared pool if there is one and the caller did not ask for a number of threads; else a new pool."""
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
    """Cancels what has not started and waits for the rest."""
    for future in futures:
        future.cancel()
    wait([*futures])


_LOG = logging.getLogger(__name__)


class Threads:
    """Runs actions at an interval, or once, each on a thread of its own.

    Periodic actions run on daemon threads and never keep a process alive. One-time actions are waited for, also by the
    interpreter at exit.
    """

    def __init__(self) -> None:
        self._later: list[threading.Thread] = []

    def later(self, action: Callable[[], None]) -> None:
        """Runs `action` once on a new thread; on this one if none can be started, as at interpreter exit."""
        thread = threading.Thread(target=action, name="lakebed-later", daemon=False)
        try:
            thread.start()
        except RuntimeError:
            action()
            return
        self._later.append(thread)

    def drain(self) -> None:
        """Waits for every action given to `later`."""
        for thread in tuple(self._later):
            thread.join()
            with suppress(ValueError):  # Another thread of the process may have waited for it, too.
                self._later.remove(thread)

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        """Runs `action` at that interval until it returns False or the returned function is called."""
        stopped = threading.Event()

        def repeat() -> None:
            while not stopped.wait(seconds) and _goes_on(action):
                pass

        thread = threading.Thread(target=repeat, name="lakebed-background", daemon=True)
        thread.start()

        def stop() -> None:
            stopped.set()
            if thread is not threading.current_thread():
                thread.join()

        return stop


def _goes_on(action: Callable[[], bool]) -> bool:
    """Whether to run the action again; a store that does not answer is no reason to stop."""
    try:
        return action()
    except StorageUnavailableError as error:
        _LOG.warning("a periodic action failed and will be retried: %s", error)
        return True
