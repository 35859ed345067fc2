"""What this process remembers of the tables that it opens: whoever opens one again need not read all of it again.

Files of a table never change, and each is known by a time that no other table at that place has had, so what is
remembered is never wrong.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.metadata.kept import Kept
from lakebed.timeline.documents import Commits

_TABLES_MAX = 4
"""Each may take 64 MiB. Handles keep what they have in any case."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What commits of one table say, and files of its metadata table."""

    commits: Commits = field(default_factory=dict)
    metadata: Kept = field(default_factory=Kept)


_LOCK = threading.Lock()
_MEMORIES: OrderedDict[object, Memory] = OrderedDict()


def recall(url: str, store: Mapping[str, str]) -> Memory:
    """The memory of the table at a url, as those with these options of the store see it; of the tables used last."""
    if url.startswith("memory:"):  # Whose name may be that of another table before the clock has moved on.
        return Memory()
    key = (url, frozenset(store.items()))
    with _LOCK:
        memory = _MEMORIES.pop(key, None) or Memory()
        _MEMORIES[key] = memory
        while len(_MEMORIES) > _TABLES_MAX:
            _MEMORIES.popitem(last=False)
    return memory
