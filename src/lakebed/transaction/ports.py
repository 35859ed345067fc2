"""The ports of the protocol layer: everything that it needs from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lakebed.clock import Clock
from lakebed.storage import Storage


class Lock(Protocol):
    """The lock of one table, held by at most one process; it protects the data table and its metadata table."""

    @property
    def can_be_lost(self) -> bool:
        """Whether another process may take it over while the holder is alive but paused: true for leases."""
        ...

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long. Not reentrant."""
        ...

    def remaining(self) -> float:
        """Seconds for which it is surely held; 0 if it is not, infinite if it cannot be lost."""
        ...

    def release(self) -> None:
        """Gives the lock up, also one that was lost."""
        ...


class Background(Protocol):
    """Runs actions in the background: on a thread, or as a simulated actor."""

    def later(self, action: Callable[[], None]) -> None:
        """Runs `action` once in the background; the process does not exit before it has run."""
        ...

    def drain(self) -> None:
        """Returns once every action that was handed to `later` has run."""
        ...

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        """Runs `action` at that interval until it returns False or the returned function is called."""
        ...


Tokens = Callable[[], str]
"""Makes a unique token of letters and digits."""


def _pass(label: str) -> None:
    del label


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one table. `at` is called with the label of each step before its effect; tests crash there."""

    storage: Storage
    clock: Clock
    lock: Lock
    background: Background
    tokens: Tokens
    at: Callable[[str], None] = _pass
