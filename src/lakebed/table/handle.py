"""Opening a table, and keeping one look at it as long as its timeline does not change."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pyarrow as pa

from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.storage import Storage, open_storage
from lakebed.table.state import TableState
from lakebed.timeline import Documents, load_timeline
from lakebed.timeline.active import list_instants
from lakebed.timeline.config import load_config


def open_handle(
    path: str | os.PathLike[str], store: Mapping[str, str] | None = None, *, use_metadata: bool = True
) -> TableHandle:
    """The table at a path or URL, with options of its store; raises InvalidInputError if there is none."""
    storage = open_storage(path, store)
    return TableHandle(storage, load_config(storage), use_metadata=use_metadata)


class TableHandle:
    """A table that can be looked at again and again."""

    def __init__(self, storage: Storage, config: TableConfig, *, use_metadata: bool = True) -> None:
        self.storage = storage
        self.config = config
        self._use_metadata = use_metadata
        self._documents = Documents(storage, config)
        self._kept_files: dict[tuple[str, int], pa.Table] = {}
        self._state: TableState | None = None
        self._seen: frozenset[Instant] = frozenset()

    def state(self) -> TableState:
        """The table as it stands now. The same object as long as the timeline folder has the same files."""
        seen = frozenset(list_instants(self.storage, self.config))
        if self._state is None or seen != self._seen:
            self.config = load_config(self.storage)
            timeline = load_timeline(self.storage, self.config, first=seen)
            self._state = TableState(
                self.storage,
                self.config,
                timeline,
                self._documents,
                use_metadata=self._use_metadata,
                kept_files=self._kept_files,
            )
            self._seen = seen
        return self._state

    @property
    def last_look(self) -> TableState:
        """The newest state that was looked at, without looking again."""
        return self._state or self.state()

    def forget(self) -> None:
        """Makes the next look a new one: indexes may change while the timeline does not."""
        self._state = None
