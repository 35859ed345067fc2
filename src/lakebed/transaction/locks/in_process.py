"""A lock among the threads of one process: for tests, and for tables that one process alone writes."""

from __future__ import annotations

import math

from lakebed.clock import Clock
from lakebed.transaction.locks.waiting import Patience

_HOLDERS: dict[str, object] = {}
"""Who holds which table. `setdefault` is one step, also between threads."""


class InProcessLock:
    """The lock of the table at `url`, for this process only. It cannot be lost."""

    __slots__ = ("_clock", "_holder", "_patience", "_url")

    def __init__(self, url: str, clock: Clock, patience: Patience) -> None:
        self._url = url
        self._clock = clock
        self._patience = patience
        self._holder: object = None

    @property
    def can_be_lost(self) -> bool:
        """Never: there is no lease."""
        return False

    def acquire(self) -> None:
        """Returns once the lock is held; LockUnavailableError if that takes too long."""
        holder = object()
        if not self._patience.wait(lambda: _HOLDERS.setdefault(self._url, holder) is holder, self._clock):
            raise self._patience.unavailable(
                f"the lock of {self._url}", hint="another thread of this process holds it: run the write again"
            )
        self._holder = holder

    def remaining(self) -> float:
        """Infinite while it is held, else 0."""
        return math.inf if self._holder is not None else 0.0

    def release(self) -> None:
        """Gives the lock up."""
        holder, self._holder = self._holder, None
        if holder is not None:
            del _HOLDERS[self._url]
