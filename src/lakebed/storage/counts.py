"""Counts of requests to a store, for `explain` and benchmarks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, fields
from typing import Literal

Verb = Literal["gets", "ranged_gets", "heads", "lists", "opens", "creates", "replaces", "deletes"]


@dataclass(frozen=True, slots=True)
class Requests:
    """Request counts at one moment; subtract two to get what happened in between.

    A file that Arrow reads from a local disk by itself counts as one of `opens`, its bytes are not in `bytes_read`.
    """

    gets: int = 0
    ranged_gets: int = 0
    heads: int = 0
    lists: int = 0
    opens: int = 0
    creates: int = 0
    replaces: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, earlier: Requests) -> Requests:
        return Requests(*(getattr(self, name) - getattr(earlier, name) for name in _NAMES))


_NAMES = tuple(field.name for field in fields(Requests))


class RequestCounts:
    """The running count of one storage. Threads may add at the same time."""

    __slots__ = ("_lock", "_numbers")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = dict.fromkeys(_NAMES, 0)

    def add(self, verb: Verb, *, times: int = 1, read: int = 0, written: int = 0) -> None:
        """Counts one request, or several, and the bytes that moved."""
        with self._lock:
            self._numbers[verb] += times
            self._numbers["bytes_read"] += read
            self._numbers["bytes_written"] += written

    def snapshot(self) -> Requests:
        """The numbers now."""
        with self._lock:
            return Requests(**self._numbers)
