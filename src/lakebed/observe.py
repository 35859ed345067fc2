"""Watching work that takes a while: its phases and its progress, for a log, a runner or a progress bar."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol


class Observer(Protocol):
    """Told of work as it goes on, between its steps; what an observer raises ends the work."""

    def phase(self, name: str) -> None:
        """A phase begins; the one before it, if any, is over."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """`done` of `total` steps of `what` are done; `total` may grow on the way."""
        ...


class Silent:
    """Tells nobody; also a base of observers that care for one of both."""

    def phase(self, name: str) -> None:
        """Nobody looks."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Nobody looks."""


SILENT = Silent()


@dataclass(frozen=True, slots=True)
class Logged:
    """Writes a line to a log for each phase and each step, at level DEBUG unless another one is given."""

    log: logging.Logger
    level: int = logging.DEBUG

    def phase(self, name: str) -> None:
        """Log its name."""
        self.log.log(self.level, "%s", name)

    def progress(self, what: str, done: int, total: int) -> None:
        """Log how far it is."""
        self.log.log(self.level, "%s: %d of %d", what, done, total)


class Meter:
    """Counts the steps of a piece of work and tells an observer of each."""

    def __init__(self, what: str, total: int, observer: Observer) -> None:
        self._what, self._total, self._done, self._observer = what, total, 0, observer

    def step(self) -> None:
        """One more is done."""
        self._done += 1
        self._observer.progress(self._what, self._done, max(self._total, self._done))
