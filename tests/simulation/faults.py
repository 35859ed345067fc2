"""What can go wrong at one call of a port, and who decides that it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Protocol

from .scheduler import Process


class Fault(Enum):
    """What can befall one call."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    LOST_BEFORE = "lost before"
    """Unknown to the caller; it did not take place."""
    LOST_AFTER = "lost after"
    """Unknown to the caller; it took place."""
    LATE = "late"
    """Unknown to the caller; it takes place later, if its condition then holds."""
    UNAVAILABLE = "unavailable"
    """The store says that it did nothing, and to come back."""
    PAUSE = "pause"
    """The whole process stands still."""
    NO_BEATS = "no beats"
    """The heartbeats of the process stand still, and nothing else does."""
    CLOCK_BACK = "clock back"
    """The clock of the process jumps back by an hour."""
    GHOST = "ghost"
    """The lock is taken by a request whose reply got lost; nobody holds it."""
    LOST_RELEASE = "lost release"
    """The lock is not given up, though its holder thinks so."""


READS = frozenset({"get", "find", "list", "size", "find_tickets"})
ANYWHERE = frozenset({Fault.CRASH_BEFORE, Fault.PAUSE, Fault.NO_BEATS, Fault.CLOCK_BACK})
ON_READS = ANYWHERE | {Fault.UNAVAILABLE}
ON_WRITES = ON_READS | {Fault.CRASH_AFTER, Fault.LOST_BEFORE, Fault.LOST_AFTER}
_POSSIBLE = {
    "acquire": ANYWHERE | {Fault.CRASH_AFTER, Fault.GHOST},
    "release": ANYWHERE | {Fault.CRASH_AFTER, Fault.LOST_RELEASE},
    "publish": ON_WRITES | {Fault.LATE},
}


def possible_faults(verb: str) -> frozenset[Fault]:
    """The faults that make sense for a call."""
    return ON_READS if verb in READS else _POSSIBLE.get(verb, ON_WRITES)


class Faults(Protocol):
    """Decides which fault befalls a call."""

    def strike(self, process: Process, verb: str, path: str) -> Fault | None:
        """The fault of this call, if any."""
        ...

    def calls_to_next(self) -> int:
        """How many calls from now `strike` is to be asked again; those before it go well."""
        ...

    def pause_ms(self) -> int:
        """How long a pause lasts."""
        ...


@dataclass(slots=True)
class SeededFaults:
    """Faults that the dice strike, each kind at a rate of its own per call."""

    dice: Random
    rates: Mapping[Fault, float]
    pause_max_ms: int
    _kinds: list[Fault] = field(init=False)
    _weights: list[float] = field(init=False)

    def __post_init__(self) -> None:
        chosen = {kind: rate for kind, rate in self.rates.items() if rate > 0}
        self._kinds, self._weights = list(chosen), list(chosen.values())

    def strike(self, process: Process, verb: str, path: str) -> Fault | None:
        """The fault of this call, if any."""
        [kind] = self.dice.choices(self._kinds, self._weights)
        return kind if kind in possible_faults(verb) else None

    def pause_ms(self) -> int:
        """Anything from a moment to the longest pause; short ones are as likely as long ones."""
        return int(math.exp(self.dice.uniform(0, math.log(self.pause_max_ms))))

    def calls_to_next(self) -> int:
        """Drawn by the sum of all rates."""
        total = sum(self._weights)
        return 1 + int(self.dice.expovariate(total)) if total else 1 << 60


@dataclass(slots=True)
class PlannedFaults:
    """Faults at chosen calls."""

    faults: tuple[PlannedFault, ...]

    def strike(self, process: Process, verb: str, path: str) -> Fault | None:
        """The fault of this call, if any was chosen."""
        found = [fault.strike(process, verb, path) for fault in self.faults]
        return next((fault for fault in found if fault is not None), None)

    def calls_to_next(self) -> int:
        """Each call is looked at."""
        return 1

    def pause_ms(self) -> int:
        """As told."""
        return max((fault.pause for fault in self.faults), default=0)


@dataclass(slots=True)
class PlannedFault:
    """One fault, at the n-th call of one process, or at its first that begins so."""

    process: str
    number: int | str
    fault: Fault
    pause: int = 1
    calls: int = 0
    struck: str = ""

    def strike(self, process: Process, verb: str, path: str) -> Fault | None:
        """The fault, once the call is reached."""
        if process.name != self.process:
            return None
        self.calls += 1
        is_it = self.calls == self.number if isinstance(self.number, int) else not self.struck
        if not is_it or self.fault not in possible_faults(verb):
            return None
        if isinstance(self.number, str) and not f"{verb} {path}".startswith(self.number):
            return None
        self.struck = f"{verb} {path}"
        return self.fault

    def pause_ms(self) -> int:
        """As told."""
        return self.pause


class NoFaults:
    """Nothing goes wrong."""

    def strike(self, process: Process, verb: str, path: str) -> Fault | None:
        """Never."""
        del process, verb, path
        return None

    def calls_to_next(self) -> int:
        """Never."""
        return 1 << 60

    def pause_ms(self) -> int:
        """Never asked."""
        return 0
