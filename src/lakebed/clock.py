"""The clock, which is passed in: protocol code never reads one of its own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The wall clock of this machine, which may disagree with those of other machines."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC. May go backwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns after that time."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Returns after that time."""
        time.sleep(seconds)
