"""Two processes at one clustering: the first was taken for dead, and wakes up when the second has written its files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from lakebed.engine.engines import InProcess
from lakebed.errors import LakebedError
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.services.values import ServiceResult
from services.clustering_tables import check_sound, content, fill, new_table, service_context

T = TypeVar("T")
R = TypeVar("R")


class Afterwards(InProcess):
    """Does something once all tasks have written their files."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__()
        self._then = then

    def map(self, tasks: Sequence[T], run: Callable[[T], R]) -> list[R]:
        results = super().map(tasks, run)
        self._then()
        return results


def test_one_that_wakes_up_does_not_touch_the_files_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "t"
    fill(new_table(path))
    before = content(path)
    instant = schedule_clustering(service_context(path), order_by=["fare"])
    assert instant is not None
    wrote, woke = threading.Event(), threading.Event()
    others: list[Future[ServiceResult]] = []

    def pause() -> None:
        wrote.set()
        assert woke.wait(60)

    with ThreadPoolExecutor(1) as pool:

        def overtake() -> None:
            beat = path / ".hoodie/.heartbeat" / instant
            os.utime(beat, (beat.stat().st_mtime - 10_000,) * 2)
            others.append(pool.submit(execute_clustering, service_context(path, engine=Afterwards(pause)), instant))
            assert wrote.wait(60)

        with pytest.raises(LakebedError):
            execute_clustering(service_context(path, engine=Afterwards(overtake)), instant)
        woke.set()
        assert others[0].result().instant == instant
    assert content(path) == before
    check_sound(path)
