from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import pytest

from lakebed.engine.engines import aside, map_bounded, map_large, map_tasks, shared_threads, start

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


def threads_of(count: int) -> set[threading.Thread]:
    return {thread for _ in range(5) for thread in map_tasks([*range(count)], lambda _: threading.current_thread())}


def test_threads_that_are_shared_stay_others_end() -> None:
    with shared_threads():
        shared = threads_of(3)
    assert all(thread.is_alive() for thread in shared)
    assert not any(thread.is_alive() for thread in threads_of(3))
    with shared_threads():
        assert len(shared | threads_of(3)) <= 4


def test_what_is_begun_ends_with_the_block() -> None:
    ended: list[int] = []

    def run(task: int) -> None:
        threading.Event().wait(0.05)
        ended.append(task)

    with shared_threads():
        begun = start([*range(20)], run)
        begun[0].result()
    assert all(future.done() for future in begun)
    assert 0 < len(ended) == sum(not future.cancelled() for future in begun)


def test_what_is_begun_without_shared_threads_is_done_at_once() -> None:
    (future,) = start([3], lambda task: task + 1)
    assert future.done()
    assert future.result() == 4


def test_what_goes_on_aside_is_over_at_the_end() -> None:
    ended: list[int] = []

    def run(task: int) -> int:
        threading.Event().wait(0.05)
        ended.append(task)
        return task

    with aside() as begin:
        assert begin(run, 1).result() == 1
        begin(run, 2)
        threading.Event().wait(0.01)
    assert ended == [1, 2]


def test_what_goes_on_aside_is_over_when_something_fails() -> None:
    begun, ended = threading.Event(), []

    def run(task: int) -> None:
        begun.set()
        threading.Event().wait(0.05)
        ended.append(task)

    def fail() -> None:
        with aside() as begin:
            begin(run, 3)
            begun.wait(10)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert ended == [3]


def test_a_child_process_has_threads_of_its_own() -> None:
    with shared_threads():
        threads_of(3)
    child = os.fork()
    if child == 0:
        with shared_threads():
            os._exit(0 if sum(map_tasks([1, 2, 3], lambda task: task)) == 6 else 1)
    deadline = time.monotonic() + 20
    ended = 0
    while not ended and time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == child
    assert status == 0
