from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import pytest

from lakebed.engine.threads import map_bounded, map_large, map_tasks, shared_threads

Map = Callable[[list[int], Callable[[int], int]], Iterable[int]]


def large(tasks: list[int], run: Callable[[int], int]) -> list[int]:
    return map_large(tasks, run, lambda task: task % 3 > 0)


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 3)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("run_all", [map_tasks, map_bounded, large])
def test_results_come_in_order(run_all: Map, is_shared: bool) -> None:
    def nested(task: int) -> int:
        return task + sum(map_tasks([1, 2], lambda number: number))

    with shared_threads() if is_shared else nullcontext():
        assert list(run_all([*range(20)], nested)) == [task + 3 for task in range(20)]
        assert list(run_all([], nested)) == []


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("run_all", [map_tasks, map_bounded, large])
def test_nothing_runs_any_more_once_a_task_has_failed(run_all: Map, is_shared: bool) -> None:
    slow, ended = threading.Event(), []

    def run(task: int) -> int:
        if task == 1:
            slow.wait(10)
            raise ValueError(task)
        if task == 2:
            slow.set()
            threading.Event().wait(0.2)
            ended.append(task)
        return task

    with shared_threads() if is_shared else nullcontext():
        with pytest.raises(ValueError, match="1"):
            list(run_all([1, 2, 5], run))
        assert ended == [2]


def test_threads_are_shared_as_long_as_the_block_lasts() -> None:
    with shared_threads():
        names = {name for _ in range(5) for name in map_tasks([1, 2, 3], lambda _: threading.current_thread().name)}
    assert len(names) <= 3
    assert not [thread for thread in threading.enumerate() if thread.name in names]
