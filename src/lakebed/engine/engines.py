"""The one verb of data-parallel work: a function over tasks. Tasks and results are picklable frozen values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lakebed.engine.threads import map_tasks

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
