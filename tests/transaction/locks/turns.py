"""Actors that take turns: one step each, in an order that the test chooses, so that a schedule can be replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

Actor = Callable[[Callable[[], None]], None]
"""Runs as one process would; calls what it is given wherever another may come in between."""
Choose = Callable[[int], int]
"""From the number of actors that can go on to the one that does."""


def take_turns(actors: Sequence[Actor], choose: Choose, after_each: Callable[[], None]) -> None:
    """Runs all actors to their ends. What one raises is raised here."""
    table = _Table(len(actors))
    threads = [threading.Thread(target=table.play, args=(i, actor)) for i, actor in enumerate(actors)]
    for thread in threads:
        thread.start()
    try:
        while table.live:
            table.go(table.live[choose(len(table.live))])
            after_each()
    finally:
        while table.live:
            table.go(table.live[0])
        for thread in threads:
            thread.join()
    if table.errors:
        raise table.errors[0]


def all_schedules() -> Iterator[Choose]:
    """One choice function for each possible schedule of runs that are alike up to the choices."""
    path: list[list[int]] = []
    while True:
        yield _replay(path)
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        path[-1][0] += 1


def _replay(path: list[list[int]]) -> Choose:
    depth = 0

    def choose(count: int) -> int:
        nonlocal depth
        if depth == len(path):
            path.append([0, count])
        assert path[depth][1] == count, "a run differs from the one before although the choices were the same"
        depth += 1
        return path[depth - 1][0]

    return choose


class _Table:
    def __init__(self, count: int) -> None:
        self.live = list(range(count))
        self.errors: list[BaseException] = []
        self._turns = [threading.Semaphore(0) for _ in range(count)]
        self._done = threading.Semaphore(0)
        self._now = 0

    def go(self, actor: int) -> None:
        self._now = actor
        self._turns[actor].release()
        self._done.acquire()

    def pause(self) -> None:
        """Whoever is at it lets another come in between."""
        actor = self._now
        self._done.release()
        self._turns[actor].acquire()

    def play(self, actor: int, act: Actor) -> None:
        self._turns[actor].acquire()
        try:
            act(self.pause)
        except BaseException as error:
            self.errors.append(error)
        self.live.remove(actor)
        self._done.release()
