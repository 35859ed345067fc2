"""A cache of files that a process has read. Files of a table are immutable, so the cache is never stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar


class _Sized(Protocol):
    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        ...


T = TypeVar("T", bound=_Sized)


class HeldFiles:
    """A least-recently-used cache, bounded in bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._held: OrderedDict[tuple[object, ...], _Sized] = OrderedDict()

    def find(self, key: tuple[object, ...], kind: type[T], load: Callable[[], T]) -> T:
        """The value cached under a key; loads it if it is missing."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
        if isinstance(found, kind):
            return found
        loaded = load()
        self._keep(key, loaded)
        return loaded

    def _keep(self, key: tuple[object, ...], value: _Sized) -> None:
        with self._lock:
            known = self._held.pop(key, None)
            self._bytes += value.nbytes - (0 if known is None else known.nbytes)
            self._held[key] = value
            while self._bytes > self._bytes_max:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= dropped.nbytes
