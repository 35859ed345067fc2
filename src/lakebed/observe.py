"""Observers of long operations: they receive phases and progress, for a log, a progress bar or the service runner."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol


class Observer(Protocol):
    """Receives phases and progress of an operation. An exception that it raises ends the operation."""

    def phase(self, name: str) -> None:
        """A phase begins; the one before it, if any, is over."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """`done` of `total` steps of `what` are done; `total` may grow on the way."""
        ...


class Silent:
    """Ignores everything; a base class for observers that need only one of the two methods."""

    def phase(self, name: str) -> None:
        """Ignored."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Ignored."""


SILENT = Silent()


@dataclass(frozen=True, slots=True)
class Logged:
    """Logs each phase and each step, at level DEBUG by default."""

    log: logging.Logger
    level: int = logging.DEBUG

    def phase(self, name: str) -> None:
        """Log the name of the phase."""
        self.log.log(self.level, "%s", name)

    def progress(self, what: str, done: int, total: int) -> None:
        """Log how many steps are done."""
        self.log.log(self.level, "%s: %d of %d", what, done, total)


class Meter:
    """Counts the steps of one piece of work and reports each to an observer."""

    def __init__(self, what: str, total: int, observer: Observer) -> None:
        self._what, self._total, self._done, self._observer = what, total, 0, observer

    def step(self) -> None:
        """Count one more step."""
        self._done += 1
        self._observer.progress(self._what, self._done, max(self._total, self._done))
