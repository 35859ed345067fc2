"""What completed instants say: commit, clean and savepoint metadata, loaded on demand and kept."""

from __future__ import annotations

from lakebed.format.timeline.instant_names import encode_instant_name
from lakebed.format.timeline.metadata import decode_clean, decode_commit
from lakebed.model.commit import CleanMetadata, CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant
from lakebed.storage import Storage


class Documents:
    """The contents of instant files of one table. They never change, so each is read once."""

    def __init__(self, storage: Storage, config: TableConfig, root: str = "") -> None:
        self._storage = storage
        self._folder = f"{root}{config.timeline_path}"
        self._layout = config.timeline_layout
        self._commits: dict[Instant, CommitMetadata] = {}
        self._cleans: dict[Instant, CleanMetadata] = {}

    def path(self, instant: Instant) -> str:
        """Where an instant's file lies, relative to the storage root."""
        return f"{self._folder}/{encode_instant_name(instant, layout=self._layout)}"

    def commit(self, instant: Instant) -> CommitMetadata:
        """What a completed commit, deltacommit or replacecommit wrote and replaced."""
        if instant not in self._commits:
            path = self.path(instant)
            self._commits[instant] = decode_commit(self._storage.get(path), path=path)
        return self._commits[instant]

    def clean(self, instant: Instant) -> CleanMetadata:
        """What a completed clean removed."""
        if instant not in self._cleans:
            path = self.path(instant)
            self._cleans[instant] = decode_clean(self._storage.get(path), path=path)
        return self._cleans[instant]
