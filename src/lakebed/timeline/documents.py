"""Metadata of completed instants (commit, clean, savepoint), loaded on demand and cached."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.errors import SnapshotExpiredError
from lakebed.format.timeline.instant_names import encode_instant_name
from lakebed.format.timeline.metadata import decode_clean, decode_commit
from lakebed.format.timeline.plans import decode_clean_plan
from lakebed.model.commit import CleanMetadata, CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.storage.cache import FileCache
from lakebed.timeline.archive import Archive

_STAT_BYTES = 2048
"""About what the metadata of a written file takes in memory, in bytes."""


class Documents:
    """The contents of instant files of one table, which never change; commit metadata is cached."""

    def __init__(self, storage: Storage, config: TableConfig, root: str = "", cache: FileCache | None = None) -> None:
        self._storage = storage
        self._config = config
        self._root = root
        self._cache = cache or FileCache()
        self._cleans: dict[Instant, CleanMetadata] = {}

    def path(self, instant: Instant) -> str:
        """The path of an instant's file, relative to the storage root."""
        name = encode_instant_name(instant, layout=self._config.timeline_layout)
        return f"{self._root}{self._config.timeline_path}/{name}"

    def commit(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed commit, deltacommit or replacecommit."""
        found = self._cache.get((self._root, instant), CommitMetadata)
        if found is None:
            found = decode_commit(self._content(instant), path=self.path(instant))
            self.note(instant, found)
        return found

    def note(self, instant: Instant, commit: CommitMetadata) -> None:
        """Adds the metadata of a completed commit to the cache."""
        files = 1 + sum(map(len, commit.write_stats.values()))
        self._cache.put((self._root, instant), commit, _STAT_BYTES * files)

    def clean(self, instant: Instant) -> CleanMetadata:
        """What a completed clean removed."""
        if instant not in self._cleans:
            self._cleans[instant] = decode_clean(self._content(instant), path=self.path(instant))
        return self._cleans[instant]

    def planned_files(self, clean: InstantTime) -> Mapping[str, tuple[str, ...]]:
        """Names of the files that a clean on the timeline plans to delete, by partition.

        SnapshotExpiredError if it was archived since the timeline was listed: then its plan is no longer available.
        """
        path = self.path(Instant(clean, Action.CLEAN, State.REQUESTED))
        plan = self._storage.find(path)
        if plan is None:
            raise SnapshotExpiredError(f"{path} was archived while the table was being read", hint="read again")
        return decode_clean_plan(plan, path=path).files

    def _content(self, instant: Instant) -> bytes:
        """The content of an instant, even if it was archived since the timeline was listed."""
        found = self._storage.find(self.path(instant))
        if found is None:
            archived = Archive(self._storage, self._config, self._root).find(instant)
            found = archived.metadata if archived is not None else None
        return self._storage.get(self.path(instant)) if found is None else found
