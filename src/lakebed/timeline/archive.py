"""The archived timeline: an LSM tree of Parquet files (layout 2), or log files (layout 1)."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.format.timeline.archive import (
    ArchivedInstant,
    decode_archived_log,
    decode_completions,
    decode_history_name,
    decode_instants,
    decode_manifest,
    decode_version,
)
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.storage import Storage


class Archive:
    """Archived instants of one table, read on demand and cached."""

    def __init__(self, storage: Storage, config: TableConfig, root: str = "") -> None:
        self._storage = storage
        self._layout = config.timeline_layout
        self._folder = f"{root}{config.history_path}"
        self._files: tuple[str, ...] | None = None
        self._completions: dict[str, dict[InstantTime, InstantTime]] = {}

    def completions(self, wanted: Iterable[InstantTime]) -> dict[InstantTime, InstantTime]:
        """Completion times of those of the `wanted` writes that are archived."""
        missing = set(wanted)
        found: dict[InstantTime, InstantTime] = {}
        for name in self._list_files():
            if not missing:
                break
            if self._may_hold(name, missing):
                here = self._load_completions(name)
                found.update({requested: here[requested] for requested in missing & here.keys()})
                missing -= here.keys()
        return found

    def writes_completed_after(self, completed_at: InstantTime) -> dict[InstantTime, InstantTime]:
        """Requested and completion times of archived writes that completed after a time."""
        found: dict[InstantTime, InstantTime] = {}
        for name in self._list_files():
            found.update({t: done for t, done in self._load_completions(name).items() if done > completed_at})
        return found

    @property
    def first_requested_at(self) -> InstantTime | None:
        """The smallest requested time that the archive remembers; None if it is empty."""
        files = [decode_history_name(name) for name in self._list_files()]
        starts = [file.min for file in files if file is not None]
        starts += [min(self._load_completions(name)) for name in self._list_logs_only() if self._load_completions(name)]
        return min(starts, default=None)

    def instants(self) -> tuple[ArchivedInstant, ...]:
        """Every archived instant with its metadata, oldest first. Reads the whole archive."""
        found = [archived for name in self._list_files() for archived in self._load_instants(name)]
        return tuple(sorted(found, key=lambda archived: archived.instant.requested_at))

    def holds(self, instants: Iterable[Instant]) -> frozenset[Instant]:
        """Those of the completed instants that are in the archive."""
        wanted = frozenset(instants)
        times = {instant.requested_at for instant in wanted}
        files = (name for name in self._list_files() if self._may_hold(name, times))
        return wanted & {archived.instant for name in files for archived in self._load_instants(name)}

    def find(self, instant: Instant) -> ArchivedInstant | None:
        """A completed instant with its metadata, if it is in the archive."""
        files = (name for name in self._list_files() if self._may_hold(name, {instant.requested_at}))
        return next((a for name in files for a in self._load_instants(name) if a.instant == instant), None)

    def _list_files(self) -> tuple[str, ...]:
        if self._files is None:
            self._files = self._list_logs() if self._layout == 1 else self._list_tree()
        return self._files

    def _list_tree(self) -> tuple[str, ...]:
        version_path = f"{self._folder}/_version_"
        version = self._storage.find(version_path)
        if version is None:
            return ()
        path = f"{self._folder}/manifest_{decode_version(version, path=version_path)}"
        return tuple(entry.name for entry in decode_manifest(self._storage.get(path), path=path))

    def _list_logs(self) -> tuple[str, ...]:
        names = (listed.path.rpartition("/")[2] for listed in self._storage.list(self._folder))
        return tuple(sorted(name for name in names if ".archive." in name and not name.endswith(".crc")))

    def _list_logs_only(self) -> tuple[str, ...]:
        return self._list_files() if self._layout == 1 else ()

    def _may_hold(self, name: str, wanted: set[InstantTime]) -> bool:
        file = decode_history_name(name)
        return file is None or any(file.min <= requested <= file.max for requested in wanted)

    def _load_completions(self, name: str) -> dict[InstantTime, InstantTime]:
        if name not in self._completions:
            self._completions[name] = self._read_completions(name)
        return self._completions[name]

    def _read_completions(self, name: str) -> dict[InstantTime, InstantTime]:
        if self._layout == 1:
            writes = (a.instant for a in self._load_instants(name) if a.instant.action.changes_data)
            return {i.requested_at: i.completed_at for i in writes if i.completed_at is not None}
        path = f"{self._folder}/{name}"
        return decode_completions(self._storage.get(path), path=path)

    def _load_instants(self, name: str) -> tuple[ArchivedInstant, ...]:
        path = f"{self._folder}/{name}"
        decode = decode_archived_log if self._layout == 1 else decode_instants
        return decode(self._storage.get(path), path=path)
