"""What a process has read of files, bounded in bytes. Files of a table are immutable, so the cache is never stale."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

TABLE_BYTES_MAX = 128 << 20
"""Size in bytes of the cache of one table: commit metadata, the list of data files, files of the metadata table."""
_TABLES_MAX = 4
"""Number of tables that keep their cache while nobody has them open."""


class Sized(Protocol):
    """A value that knows its size."""

    @property
    def nbytes(self) -> int:
        """Approximate size in memory, in bytes."""
        ...


T = TypeVar("T")
S = TypeVar("S", bound=Sized)
Key = tuple[object, ...]


class FileCache:
    """A least-recently-used cache of immutable values, bounded in bytes."""

    def __init__(self, bytes_max: int = TABLE_BYTES_MAX) -> None:
        self._lock = threading.Lock()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._values: OrderedDict[Key, tuple[object, int]] = OrderedDict()

    def get(self, key: Key, kind: type[T]) -> T | None:
        """The value cached under a key, if there is one of this kind."""
        with self._lock:
            found, _ = self._values.get(key, (None, 0))
            if found is not None:
                self._values.move_to_end(key)
        return found if isinstance(found, kind) else None

    def put(self, key: Key, value: object, nbytes: int) -> None:
        """Caches a value in place of the last one; a value that is larger than the cache is not kept."""
        with self._lock:
            self._bytes -= self._values.pop(key, (None, 0))[1]
            if nbytes > self._bytes_max:
                return
            self._values[key] = value, nbytes
            self._bytes += nbytes
            while self._bytes > self._bytes_max:
                self._bytes -= self._values.popitem(last=False)[1][1]

    def find(self, key: Key, kind: type[S], load: Callable[[], S]) -> S:
        """The value cached under a key; loads it if it is missing."""
        found = self.get(key, kind)
        if found is None:
            found = load()
            self.put(key, found, found.nbytes)
        return found


_LOCK = threading.Lock()
_TABLES: OrderedDict[object, FileCache] = OrderedDict()


def table_cache(url: str, store: Mapping[str, str]) -> FileCache:
    """The cache of the table at a url with these store options, which all of its handles share."""
    if url.startswith("memory:"):  # Another table may take the name before the clock has moved on.
        return FileCache()
    key = (url, frozenset(store.items()))
    with _LOCK:
        cache = _TABLES.pop(key, None) or FileCache()
        _TABLES[key] = cache
        while len(_TABLES) > _TABLES_MAX:
            _TABLES.popitem(last=False)
    return cache
