"""A per-process cache of open tables, so that opening one again does not read everything again.

Files of a table are immutable, and each is identified by a time that no other table at that path has had, so the cache
is never stale.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.metadata.kept import Kept
from lakebed.timeline.documents import Commits

_TABLES_MAX = 4
"""Number of tables to cache, up to 64 MiB each. Handles keep theirs in any case."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Cached commit metadata of one table, and files of its metadata table."""

    commits: Commits = field(default_factory=dict)
    metadata: Kept = field(default_factory=Kept)


_LOCK = threading.Lock()
_MEMORIES: OrderedDict[object, Memory] = OrderedDict()


def recall(url: str, store: Mapping[str, str]) -> Memory:
    """The cache of the table at a url with these store options; keeps the most recently used tables."""
    if url.startswith("memory:"):  # Whose name may be that of another table before the clock has moved on.
        return Memory()
    key = (url, frozenset(store.items()))
    with _LOCK:
        memory = _MEMORIES.pop(key, None) or Memory()
        _MEMORIES[key] = memory
        while len(_MEMORIES) > _TABLES_MAX:
            _MEMORIES.popitem(last=False)
    return memory
