"""Opens the metadata table and reads its partitions, by the rules that keep readers consistent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from lakebed.errors import CorruptTableError, SnapshotExpiredError
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.index_definitions import needs_columns
from lakebed.format.java import shard_of
from lakebed.format.metadata.keys import data_partition_of_group, group_index, is_group_of
from lakebed.metadata.shard import OpenFile, Shard, StoredValue, load_shard, open_file, parts_of, shard_of_files
from lakebed.model.commit import CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, FileSlice, LogFile
from lakebed.model.index import WINDOW_KEPT, IndexDefinition
from lakebed.model.instant import Instant, InstantTime, is_reserved
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.storage.cache import FileCache
from lakebed.timeline import Archive, Documents, Snapshot, Timeline, load_timeline
from lakebed.timeline.config import decode_config, load_config
from lakebed.timeline.timeline import list_instants
from lakebed.view import latest_slices
from lakebed.view.slices import Completions

ROOT = ".hoodie/metadata/"
BUILD_OPERATION = "BULK_INSERT_PREPPED"
"""Operation of a delta commit that builds an MDT partition or gives it other shards, as in Hudi."""
_PROPERTIES = f"{ROOT}.hoodie/hoodie.properties"
FILES = "files"
"""The partition that lists the files of the table."""
CHANGED = "it was dropped or rebuilt while the table was read"
"""Why an index is done without that others changed after it had been listed."""
_LOOKS = 3
"""Maximum number of attempts to list slices if the MDT is cleaned meanwhile."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why the metadata table cannot be used."""

    reason: str


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """The files of one shard of an MDT partition, so that another process can read them. Picklable.

    `completions` are the completion times of the slice's files, in the order of its paths.
    """

    storage: Storage
    file_slice: FileSlice
    completions: tuple[InstantTime, ...]


class MetadataTable:
    """The MDT as visible from a data timeline. Its partitions are listed and opened once, on demand.

    An MDT instant is visible if it completed in the MDT and is not a pending write of the data timeline: a writer that
    died between the two commits leaves entries for files that were never committed.
    """

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        timeline: Timeline,
        data_timeline: Timeline,
        definitions: Mapping[str, IndexDefinition],
        table: TableConfig,
        cache: FileCache | None = None,
    ) -> None:
        self.ready = table.metadata_partitions
        self._table = table
        self.stale: Mapping[str, str] = {}
        self.cache = cache or FileCache()
        self.definitions = definitions
        self._storage = storage
        self._config = config
        self._data_timeline = data_timeline
        self._look_at(timeline)
        self._slices: dict[str, tuple[FileSlice, ...]] = {}
        self._shards: dict[tuple[str, str], Shard] = {}
        self._unconfirmed: set[str] = set()
        self.do_without(self._find_built_later(), "it was built from a newer state of the table than this reader sees")

    def _find_built_later(self) -> Iterator[str]:
        """Partitions that were built after a write that this reader does not see: they may point to its file groups."""
        late = _completed_later(self._storage, self._config, self._data_timeline, self.timeline)
        if not late:
            return
        first, writes = min(i.completed_at or "" for i in late), {i.requested_at for i in late}
        after = (i for i in self.timeline.commits() if (i.completed_at or "") > first and i.requested_at not in writes)
        for instant in after:
            commit = self.documents.commit(instant)
            if commit.operation == BUILD_OPERATION:
                yield from commit.write_stats

    def _look_at(self, timeline: Timeline) -> None:
        """Uses this timeline of the MDT; the data timeline decides which of its instants are visible."""
        self._snapshot = Snapshot(timeline, Archive(self._storage, self._config, ROOT))
        self._completion_of = metadata_completions(
            self._storage, self._config, self._data_timeline, timeline, self._snapshot.completion_of
        )

    @property
    def timeline(self) -> Timeline:
        """The active timeline of the MDT; not all completed instants are visible."""
        return self._snapshot.timeline

    @property
    def documents(self) -> Documents:
        """Metadata of the instants on its timeline."""
        return Documents(self._storage, self._config, ROOT)

    def completions(self, instants: Iterable[InstantTime]) -> dict[InstantTime, InstantTime]:
        """Completion times of the visible ones among these instants, active or archived."""
        asked = tuple(instants)
        self._snapshot.prefetch(asked)
        found = {requested_at: self._completion_of(requested_at) for requested_at in asked}
        return {requested_at: done for requested_at, done in found.items() if done is not None}

    def archived_after(self, completed_at: InstantTime) -> bool:
        """Whether a write that completed after a time is archived."""
        return bool(Archive(self._storage, self._config, ROOT).writes_completed_after(completed_at))

    @property
    def is_near(self) -> bool:
        """Whether its files can be read with low latency, from a disk."""
        return "://" not in self._storage.url

    def has(self, partition: str) -> bool:
        """Whether an MDT partition is ready to be used."""
        if partition in self.stale:
            return False
        return partition in self.ready and (partition in self.definitions or not needs_columns(partition))

    def leave_out_changed(self) -> frozenset[str]:
        """Does without partitions that have been dropped since this snapshot, even if they were built again; which.

        The config is read once after partitions were listed: an index still named then was complete when it was listed.
        If any index was dropped or renewed, all that were listed count as changed: a listing in pages may have files of
        an index before and after it was built again.
        """
        if not self._unconfirmed:
            return frozenset()
        config = load_config(self._storage)
        listed, self._unconfirmed = self._unconfirmed, set()
        has_changes = config.index_changes != self._table.index_changes
        again = listed - {FILES} if has_changes else self._find_built_again(listed)
        dropped = frozenset(self.ready).difference(config.metadata_partitions, self.stale) | again
        self.do_without(dropped, CHANGED)
        return dropped

    def _find_built_again(self, listed: Iterable[str]) -> frozenset[str]:
        """Those of the listed partitions that were built by an instant that completed after this snapshot.

        Reserved instants are the oldest. So one that is not on the timeline of the snapshot may be archived, forgotten
        by the archive, or new. Only if it may be new, the timeline is loaded again.
        """
        unknown = {partition: self._unknown_builds(self._slices.get(partition, ())) for partition in listed}
        if not any(unknown.values()):
            return frozenset()
        seen = self.timeline.last_completed_at or ""
        now = Snapshot(load_timeline(self._storage, self._config, ROOT), Archive(self._storage, self._config, ROOT))
        newer = {p for p, builds in unknown.items() if any((now.completion_of(i) or "") > seen for i in builds)}
        return frozenset(newer)

    def _unknown_builds(self, slices: Iterable[FileSlice]) -> list[InstantTime]:
        """Reserved instants of files of which it is not known that they had completed when this snapshot was taken."""
        files = (file for each in slices for file in (each.base, *each.logs) if file is not None)
        builds = {file.instant for file in files if is_reserved(file.instant)}
        seen = self.timeline.last_completed_at or ""
        unlisted = (i for i in builds if self.timeline.completion_of(i) is None)
        return [i for i in unlisted if not i < (self._snapshot.completion_of(i) or "") <= seen]

    def has_changed(self) -> bool:
        """Whether the MDT was written to, or lost a partition, since this snapshot."""
        named = load_config(self._storage).metadata_partitions
        return not {*named} >= {*self.ready} or load_timeline(self._storage, self._config, ROOT) != self.timeline

    def do_without(self, partitions: Iterable[str], reason: str) -> None:
        """Treats these partitions as not ready from now on."""
        self.stale = {**self.stale, **dict.fromkeys(partitions, reason)}

    def slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest slice of each file group of an MDT partition, in the order of their file ids."""
        if partition not in self._slices:
            self._unconfirmed.add(partition)
            self._slices[partition] = self._list_slices(partition)
        return self._slices[partition]

    def shard(self, partition: str, file_id: str) -> Shard:
        """One file group of an MDT partition."""
        key = (partition, file_id)
        if key not in self._shards:
            file_slice = next(s for s in self.slices(partition) if s.group.file_id == file_id)
            self._shards[key] = self._load_shard(file_slice)
        return self._shards[key]

    def shards(self, partition: str) -> tuple[Shard, ...]:
        """All file groups of an MDT partition, in the order of their file ids: entry i holds the keys of shard i."""
        return tuple(self.shard(partition, s.group.file_id) for s in self.slices(partition))

    def find_many(self, partition: str, keys: Iterable[str]) -> dict[str, list[StoredValue]]:
        """Looks up keys of an MDT partition, each in the shard that it hashes to; values oldest first."""
        file_ids = [file_slice.group.file_id for file_slice in self.slices(partition)]
        by_shard: dict[str, list[str]] = {}
        for key in keys:
            by_shard.setdefault(file_ids[shard_of(key, len(file_ids))], []).append(key)
        found: dict[str, list[StoredValue]] = {}
        for file_id, of_shard in by_shard.items():
            found.update(self.shard(partition, file_id).find_many(of_shard))
        return found

    def shard_files(self, partition: str) -> tuple[ShardFiles, ...] | None:
        """The files of all shards, in shard order; None if files alone do not tell what is visible.

        In timeline layout 1, a log file has blocks of several instants, and their visibility changes.
        """
        if self._config.timeline_layout == 1:
            return None
        return tuple(self._files_of(file_slice) for file_slice in self.slices(partition))

    def shard_after(self, files: ShardFiles, count: int) -> Shard:
        """The shard made of all its files except the oldest `count`."""
        parts = zip(parts_of(files.file_slice), files.completions, strict=True)
        return shard_of_files([self._open_file(part, at) for part, at in islice(parts, count, None)])

    def _load_shard(self, file_slice: FileSlice) -> Shard:
        """Loads a shard, from cached files if they were opened before."""
        if self._config.timeline_layout == 1:
            return load_shard(self._storage, file_slice, layout=1, counts=self._counts, root=ROOT)
        parts = [*zip(parts_of(file_slice), self._files_of(file_slice).completions, strict=True)]
        merged = self._snapshot.timeline.log_compactions
        merges = [self._open_file(part, at) for part, at in parts if _instant_of(part) in merged]
        # Files that a log compaction merged are skipped, earlier log compactions are not: only they name theirs.
        hidden = frozenset[str]().union(*(file.replaced for file in merges)) - merged
        opened = [self._open_file(part, at) for part, at in parts if part.base or _instant_of(part) not in hidden]
        return shard_of_files(opened)

    def _open_file(self, part: FileSlice, completed_at: InstantTime) -> OpenFile:
        """Opens a file through the cache. The key has the completion time, because a recreated table reuses names."""
        file = part.base or part.logs[0]
        # A base file keeps the storage that opened it, which counts its requests.
        key = (part.path(file.name), file.size, completed_at, id(self._storage) if part.base else None)
        return self.cache.find(key, OpenFile, lambda: open_file(self._storage, part, root=ROOT))

    def newest_delta_commit(self) -> CommitMetadata | None:
        """Metadata of the latest visible delta commit, ignoring log compactions."""
        timeline = self._snapshot.timeline
        done = [i for i in timeline.completed() if i.action is Action.DELTA_COMMIT]
        writes = (i for i in done if i.requested_at not in timeline.log_compactions and self._counts(i.requested_at))
        newest = max(writes, key=lambda i: i.completed_at or "", default=None)
        return None if newest is None else self.documents.commit(newest)

    def _files_of(self, file_slice: FileSlice) -> ShardFiles:
        files = ((file_slice.base,) if file_slice.base else ()) + file_slice.logs
        completions = (self._completion_of(file.instant) for file in files)
        return ShardFiles(self._storage, file_slice, tuple(t for t in completions if t is not None))

    def _list_slices(self, partition: str) -> tuple[FileSlice, ...]:
        slices = self._in_window(partition, self._find_slices(partition))
        self._check_defined(partition, (each.group.file_id for each in slices))
        if not slices and not self._may_be_empty(partition):
            raise CorruptTableError(
                f"the table config lists {partition}, but the metadata table has no files for it",
                path=f"{ROOT}{partition}",
                hint="read with the option hoodie.metadata.enable=false, and let a writer rebuild the metadata table",
            )
        # By number, not by name: `%04d` runs over after 9999.
        found = sorted((data_partition_of_group(s.group.file_id) or "", _number(s), s) for s in slices)
        _check_numbers([(of_partition, number) for of_partition, number, _ in found], f"{ROOT}{partition}")
        return tuple(file_slice for _, _, file_slice in found)

    def _find_slices(self, partition: str) -> tuple[FileSlice, ...]:
        """The newest slices. If they were cleaned since this snapshot, the timeline of the MDT is reloaded."""
        for _ in range(_LOOKS):
            files = self.list_files(partition)
            self._snapshot.prefetch(file.instant for file in files)
            slices = self._slices_of(partition, files)
            newer = _newer_bases(files, slices, self._completion_of)
            if not newer:
                return slices
            timeline = load_timeline(self._storage, self._config, ROOT)
            present = {file.name for file in files}
            gone = [f for f in self._cleaned_after(timeline, min(newer), partition) if f.name not in present]
            if self._slices_of(partition, [*files, *gone]) == slices:
                return slices
            if timeline == self._snapshot.timeline:
                break
            self._look_at(timeline)
        raise SnapshotExpiredError(
            f"{ROOT}{partition}: the metadata table was compacted and cleaned since this snapshot was taken",
            hint="run the call again: it will use the current state of the table",
        )

    def _slices_of(self, partition: str, files: Sequence[BaseFile | LogFile]) -> tuple[FileSlice, ...]:
        return latest_slices({partition: files}, self._completion_of, layout=self._config.timeline_layout)

    def _cleaned_after(self, timeline: Timeline, base: InstantTime, partition: str) -> list[BaseFile | LogFile]:
        """Files of a partition that cleans requested after a base file have deleted or may have deleted."""
        begun = (i for i in timeline if i.action is Action.CLEAN and i.state is not State.REQUESTED)
        names = {
            name.rpartition("/")[2]
            for clean in begun
            if clean.requested_at > base
            for name in self.documents.planned_files(clean.requested_at).get(partition, ())
        }
        found = (decode_data_file_name(name, folder=f"{ROOT}{partition}") for name in sorted(names))
        return [file for file in found if file is not None]

    def list_files(self, partition: str) -> list[BaseFile | LogFile]:
        """All files of an MDT partition right now, visible or not."""
        return list_partition_files(self._storage, partition)

    def _in_window(self, partition: str, slices: tuple[FileSlice, ...]) -> tuple[FileSlice, ...]:
        """Drops shards of data partitions outside the window of an index: they are not maintained."""
        definition = self.definitions.get(partition)
        window = definition.window if definition is not None else None
        if window is None:
            return slices
        return tuple(s for s in slices if window.holds(data_partition_of_group(s.group.file_id) or ""))

    def check_defined(self, partition: str) -> None:
        """Raises CorruptTableError if the index has shards per data partition, but no definition."""
        self._check_defined(partition, (file.file_id for file in self.list_files(partition)))

    def _check_defined(self, partition: str, file_ids: Iterable[str]) -> None:
        """Without a definition the index would be taken for a global one, and keys looked up in wrong shards."""
        if partition not in self.definitions and any(data_partition_of_group(id_) is not None for id_ in file_ids):
            raise CorruptTableError(
                f"it does not define {partition}, which has shards for each data partition",
                path=self._table.index_definitions_path,
                hint=f"lakebed doctor {self._storage.url} --repair restores the definition",
            )

    def _may_be_empty(self, partition: str) -> bool:
        """Whether no shards are needed yet: a partitioned index gets them with its data partitions."""
        definition = self.definitions.get(partition)
        return definition is not None and definition.is_partitioned

    def _counts(self, requested_at: str) -> bool:
        return self._completion_of(InstantTime(requested_at)) is not None


def list_partition_files(storage: Storage, partition: str) -> list[BaseFile | LogFile]:
    """All files of an MDT partition, visible or not, even while it is being built."""
    folder = f"{ROOT}{partition}"
    found = (
        decode_data_file_name(listed.path.rpartition("/")[2], size=listed.size, folder=folder)
        for listed in storage.list(folder)
    )
    return [file for file in found if file is not None and is_group_of(file.file_id, partition)]


def _newer_bases(
    files: Sequence[BaseFile | LogFile], slices: Sequence[FileSlice], completion_of: Completions
) -> set[InstantTime]:
    """Instants of invisible base files that would supersede a visible slice."""
    used = {each.group.file_id: each.base.instant if each.base else "" for each in slices}
    return {
        file.instant
        for file in files
        if isinstance(file, BaseFile)
        and file.instant > used.get(file.file_id, "")
        and completion_of(file.instant) is None
    }


def _instant_of(part: FileSlice) -> InstantTime:
    """The instant of the only file of a slice."""
    return (part.base or part.logs[0]).instant


def _number(file_slice: FileSlice) -> int:
    return group_index(file_slice.group.file_id) or 0


def _check_numbers(numbers: list[tuple[str, int]], path: str) -> None:
    """Raises if a shard is missing: keys would then be looked up in wrong shards."""
    expected: tuple[str, int] | None = None
    for partition, number in numbers:
        if (partition, number) != (expected if expected is not None and expected[0] == partition else (partition, 0)):
            raise CorruptTableError(
                f"shard {number} exists, but an earlier shard is missing",
                path=path,
                hint="open the table again; if the error persists, rebuild the index with rebuild=True",
            )
        expected = (partition, number + 1)


_HIDE_NOTHING = (Action.SAVEPOINT, Action.INDEXING)
"""Actions that hide nothing in the metadata table while they are pending.

A savepoint has the time of a completed write. Apache Hudi builds an index under the time of its plan, which stays
pending for a while after the index is ready; the table config decides whether the index can be used.
"""


def metadata_completions(
    storage: Storage, config: TableConfig, data_timeline: Timeline, timeline: Timeline, known: Completions | None = None
) -> Completions:
    """Completion times of MDT instants; None for instants that are invisible from that data timeline.

    Invisible are instants that are pending on the data timeline, writes that completed after it was read, and
    compactions or log compactions that merged such a write: their entries may point to file groups that this reader
    does not see.
    """
    completion_of = known or timeline.completion_of
    hidden = {i.requested_at for i in data_timeline.pending() if i.action not in _HIDE_NOTHING}
    late = _completed_later(storage, config, data_timeline, timeline)
    if late:
        first = min(i.completed_at or "" for i in late)
        merging = (
            i for i in timeline.commits() if i.action is Action.COMMIT or i.requested_at in timeline.log_compactions
        )
        swallowed = (i for i in merging if i.requested_at > first)
        hidden.update(i.requested_at for i in (*late, *swallowed))
    return lambda requested_at: None if requested_at in hidden else completion_of(requested_at)


def _completed_later(
    storage: Storage, config: TableConfig, data_timeline: Timeline, timeline: Timeline
) -> tuple[Instant, ...]:
    """MDT delta commits of writes that had not completed yet when this data timeline was read."""
    if config.timeline_layout == 1:
        return ()  # Without completion times this is unknown.
    newest = data_timeline.last_completed_at or ""
    # A savepoint has the time of its write, which may have completed after this snapshot.
    done = {i.requested_at for i in data_timeline.completed() if i.action is not Action.SAVEPOINT}
    after = [i for i in timeline.commits() if (i.completed_at or "") > newest and i.requested_at not in done]
    if all(i.action is not Action.DELTA_COMMIT for i in after):
        return ()
    # Index builds are delta commits too, but have the time of no write.
    writes = {i.requested_at for i in list_instants(storage, config) if i.action is not Action.INDEXING}
    return tuple(i for i in after if i.action is Action.DELTA_COMMIT and i.requested_at in writes)


def find_metadata_table(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    definitions: Mapping[str, IndexDefinition],
    cache: FileCache | None = None,
    metadata_timeline: Timeline | None = None,
) -> MetadataTable | Unusable:
    """The metadata table of a data table, or why it cannot be used. Its files are opened through the `cache`.

    Pass `metadata_timeline` if it was read together with `timeline`, under the lock.
    """
    if FILES not in config.metadata_partitions:
        return Unusable("the table config lists no metadata table partition `files`")
    data = storage.find(_PROPERTIES)
    if data is None:
        return Unusable(f"the table config lists a metadata table, but {_PROPERTIES} is missing")
    mdt_config = decode_config(data, _PROPERTIES)
    mdt_timeline = metadata_timeline or load_timeline(storage, mdt_config, ROOT)
    found = MetadataTable(storage, mdt_config, mdt_timeline, timeline, definitions, config, cache)
    if config.own_partitions:
        newest = found.newest_delta_commit()
        if newest is None or not newest.extra_metadata.items() >= WINDOW_KEPT.items():
            found.stale = dict.fromkeys(config.own_partitions, "another engine has written since it was built")
    return found
