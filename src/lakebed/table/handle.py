"""Opens a table, and caches its state until the timeline changes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakebed.metadata.files import list_metadata_files
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.storage import Storage, open_storage
from lakebed.storage.cache import FileCache, table_cache
from lakebed.table.state import Lister, TableState
from lakebed.timeline import Documents, Timeline, load_timeline
from lakebed.timeline.config import load_config
from lakebed.timeline.timeline import list_instants
from lakebed.transaction.section import Look


def open_handle(
    path: str | os.PathLike[str], store: Mapping[str, str] | None = None, *, use_metadata: bool = True
) -> TableHandle:
    """The table at a path or URL, with options of its store; raises InvalidInputError if there is none."""
    storage = open_storage(path, store)
    cache = table_cache(storage.url, store or {})
    return TableHandle(storage, load_config(storage), use_metadata=use_metadata, cache=cache)


class TableHandle:
    """An open table, whose state can be reloaded. Handles may share a `cache`.

    `list_files` lists data files from the metadata table.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        *,
        use_metadata: bool = True,
        cache: FileCache | None = None,
        list_files: Lister = list_metadata_files,
    ) -> None:
        self._cache = cache or FileCache()
        self.storage = storage
        self.config = config
        self._use_metadata = use_metadata
        self._documents = Documents(storage, config, cache=self._cache)
        self._list_files = list_files
        self._state: TableState | None = None
        self._seen: frozenset[Instant] = frozenset()

    def state(self) -> TableState:
        """The current state of the table; the same object as long as the timeline folder is unchanged."""
        seen = frozenset(list_instants(self.storage, self.config))
        if self._state is None or seen != self._seen:
            config = load_config(self.storage)
            self._state = self._new_state(config, load_timeline(self.storage, config, first=seen))
            self._seen = seen
        return self._state

    @property
    def last_look(self) -> TableState:
        """The last loaded state, without reloading."""
        return self._state or self.state()

    def state_at(self, look: Look, own: Instant | None = None, *, is_maintained: bool = False) -> TableState:
        """The state that a commit section left; the same object as before if only `own` was added to the timeline.

        With `is_maintained`, the timeline of the metadata table has changed since.
        """
        if look.commit is not None:
            self._documents.note(*look.commit)
        seen = frozenset(look.instants)
        if self._state is None or seen - {own} != self._seen or look.config != self.config:
            metadata = None if is_maintained else Timeline.of(look.metadata_instants)
            self._state = self._new_state(look.config, Timeline.of(look.instants), metadata)
        self._seen = seen
        return self._state

    def _new_state(self, config: TableConfig, timeline: Timeline, metadata: Timeline | None = None) -> TableState:
        self.config = config
        return TableState(
            self.storage,
            config,
            timeline,
            self._documents,
            use_metadata=self._use_metadata,
            cache=self._cache,
            metadata_timeline=metadata,
            list_files=self._list_files,
        )

    def forget(self) -> None:
        """Makes the next call of `state` reload, because indexes may change without the timeline."""
        self._state = None
