"""Two processes execute one compaction: the first is stopped, taken for dead, and goes on when the second is done."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pytest

from lakebed.engine.engines import InProcess
from lakebed.model.instant import InstantTime
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from services.compaction_tables import check_table, context_of, die, new_table, rows, url_of, values

T = TypeVar("T")
R = TypeVar("R")


class StoppedAtWork(InProcess):
    """Tasks of a process that is stopped when it is in flight, before its first file or after its last."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when

    def map(self, tasks: Sequence[T], run: Callable[[T], R]) -> list[R]:
        if self.when == "before":
            os.kill(os.getpid(), signal.SIGSTOP)
        results = [run(task) for task in tasks]
        if self.when == "after":
            os.kill(os.getpid(), signal.SIGSTOP)
        return results


def _execute(url: str, instant: InstantTime, when: str, told: Connection) -> None:
    try:
        execute_compaction(context_of(url, engine=StoppedAtWork(when)), instant)
        told.send("done")
    except Exception as error:
        told.send(type(error).__name__)


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_two_executions_one_takes_place_and_the_other_is_refused(tmp_path: Path, when: str) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (1, 1), (2, 1)))
    table.upsert(rows((0, 2), (1, 2), (5, 4)))
    context = context_of(table)
    instant = schedule_compaction(context)
    assert instant is not None
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    first = spawn.Process(target=_execute, args=(url_of(table), instant, when, there))
    first.start()
    assert first.pid is not None
    _, status = os.waitpid(first.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    table.upsert(rows((2, 3)))

    die(table, instant)
    second = execute_compaction(context, instant)

    os.kill(first.pid, signal.SIGCONT)
    assert here.recv() == "RolledBackError"
    first.join()
    assert values(table) == {"k0": 2, "k1": 2, "k2": 3, "k5": 4}
    assert [i.completed_at for i in table.timeline.commits() if i.requested_at == instant] == [second.completed_at]
    assert not table.timeline.pending()
    check_table(table)
    made = {path.name for path in Path(url_of(table)).rglob(f"*{instant}.parquet")}
    named = {Path(path).name for each in table.files() for path in each.paths if path.endswith(f"{instant}.parquet")}
    assert made == named
