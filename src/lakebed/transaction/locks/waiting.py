"""Waiting for a lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakebed.clock import Clock
from lakebed.errors import LockUnavailableError


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a lock, and how often to ask for it."""

    wait_s: float = 60.0
    pause_s: float = 1.0
    """The longest pause between two attempts; the first ones are shorter."""

    def wait(self, attempt: Callable[[], bool], clock: Clock) -> bool:
        """Whether an attempt succeeded in time; there is always one."""
        waited_s, pause_s = 0.0, self.pause_s / 64
        while True:
            began_ms = clock.now_ms()
            if attempt():
                return True
            if waited_s >= self.wait_s:
                return False
            clock.sleep(pause_s)
            # The clock may be set back meanwhile; the pause itself has passed in any case.
            waited_s += max(pause_s, (clock.now_ms() - began_ms) / 1000)
            pause_s = min(pause_s * 2, self.pause_s)

    def unavailable(self, lock: str, *, hint: str) -> LockUnavailableError:
        """That time was not enough."""
        return LockUnavailableError(f"{lock} could not be acquired within {self.wait_s:g} s", hint=hint)
