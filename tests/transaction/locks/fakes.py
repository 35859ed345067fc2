"""The world that locks live in, for tests: time, background work and names that tests control."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from lakebed.storage import Outcome, Storage
from lakebed.storage.faults import FaultyStorage


class FakeClock:
    """Time that passes only when someone sleeps, or the test says so."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.ms = now_ms
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ms += max(1, round(seconds * 1000))
        self.on_sleep()


class FakeBackground:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[float, Callable[[], bool]]] = []

    def later(self, action: Callable[[], None]) -> None:
        action()

    def drain(self) -> None:
        pass

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        task = (seconds, action)
        self.tasks.append(task)
        return lambda: self.tasks.remove(task) if task in self.tasks else None

    def run(self) -> None:
        """One round of all tasks."""
        for task in tuple(self.tasks):
            if not task[1]() and task in self.tasks:
                self.tasks.remove(task)


def tokens(prefix: str = "t") -> Callable[[], str]:
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


class HiddenRetry(FaultyStorage):
    """A storage whose next write is sent twice by some layer below: it takes place, and the answer is a refusal."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.strike = True

    def create(self, path: str, data: bytes) -> Outcome:
        return self._twice(super().create(path, data))

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        return self._twice(super().replace(path, data, etag=etag))

    def _twice(self, outcome: Outcome) -> Outcome:
        struck, self.strike = self.strike, False
        return Outcome.REFUSED if struck else outcome


class LateWrite(FaultyStorage):
    """A storage that answers to its first write that it does not know, and carries it out only when told."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.pending: Callable[[], Outcome] | None = None
        self.strike = True

    def create(self, path: str, data: bytes) -> Outcome:
        return self._later(lambda: self.inner.create(path, data))

    def replace(self, path: str, data: bytes, *, etag: str | None = None) -> Outcome:
        return self._later(lambda: self.inner.replace(path, data, etag=etag))

    def _later(self, write: Callable[[], Outcome]) -> Outcome:
        struck, self.strike = self.strike, False
        if not struck:
            return write()
        self.pending = write
        return Outcome.UNKNOWN
