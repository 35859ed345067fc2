"""The active timeline: a value, loaded from its folder; and snapshots, the writes that a reader sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from lakebed.errors import SnapshotExpiredError
from lakebed.format.file_names import decode_instant_name, encode_instant_name
from lakebed.format.timeline.metadata import decode_clean, decode_commit
from lakebed.format.timeline.plans import decode_clean_plan
from lakebed.model.commit import CleanMetadata, CommitMetadata
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.storage import Storage
from lakebed.storage.cache import FileCache
from lakebed.timeline.archive import Archive


@dataclass(frozen=True, slots=True)
class Timeline:
    """Instants of one table: completed ones in completion order, then pending ones by requested time.

    `pending` holds the furthest state of each unfinished instant. A savepoint shares the requested time of the
    commit it protects, so an instant is identified by time and action together.
    """

    instants: tuple[Instant, ...]
    log_compactions: frozenset[InstantTime] = field(default=frozenset(), repr=False, compare=False)
    """The completed delta commits that merged log files of others and wrote nothing of their own."""
    _pending: tuple[Instant, ...] = field(init=False, repr=False, compare=False)
    _commits: tuple[Instant, ...] = field(init=False, repr=False, compare=False)
    _completions: dict[InstantTime, InstantTime] = field(init=False, repr=False, compare=False)
    first_requested_at: InstantTime | None = field(init=False, repr=False, compare=False)
    """The smallest requested time here: writes before it are archived."""

    def __post_init__(self) -> None:
        changing = [i for i in self.instants if i.action.changes_data]
        commits = [i for i in changing if i.completed_at is not None]
        completions = {i.requested_at: i.completed_at for i in commits}
        first = min((i.requested_at for i in changing), default=None)
        object.__setattr__(self, "_pending", tuple([i for i in self.instants if i.completed_at is None]))
        object.__setattr__(self, "_commits", tuple(commits))
        object.__setattr__(self, "_completions", completions)
        object.__setattr__(self, "first_requested_at", first)

    @classmethod
    def of(cls, instants: Iterable[Instant]) -> Timeline:
        """The timeline of instant files, where one instant may appear in several states."""
        furthest: dict[tuple[InstantTime, Action], Instant] = {}
        planned = set()
        for instant in instants:
            if instant.action is Action.LOG_COMPACTION:
                planned.add(instant.requested_at)
            identity = instant.requested_at, instant.action.when_completed
            known = furthest.get(identity)
            if known is None or _PROGRESS[known.state] < _PROGRESS[instant.state]:
                furthest[identity] = instant
        merged = (time for time in planned if furthest[time, Action.DELTA_COMMIT].is_completed)
        return cls(tuple(sorted(furthest.values(), key=_reading_order)), frozenset(merged))

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    def completed(self) -> tuple[Instant, ...]:
        """Completed instants, in completion order."""
        return tuple(instant for instant in self.instants if instant.is_completed)

    def pending(self) -> tuple[Instant, ...]:
        """Instants that were requested or begun and are neither completed nor rolled back."""
        return self._pending

    def commits(self) -> tuple[Instant, ...]:
        """Completed instants that add or hide data files, in completion order."""
        return self._commits

    def completion_of(self, requested_at: InstantTime) -> InstantTime | None:
        """When the write requested at that time completed; None if it did not, or is not on this timeline."""
        return self._completions.get(requested_at)

    def until(self, completed_at: InstantTime) -> Timeline:
        """The completed instants that a reader saw at that completion time."""
        return Timeline(
            tuple(i for i in self.completed() if i.completed_at is not None and i.completed_at <= completed_at)
        )

    @property
    def last_completed_at(self) -> InstantTime | None:
        """The newest completion time here, ignoring savepoints, which change nothing and may be deleted."""
        ordered = (i for i in self.instants if i.action is not Action.SAVEPOINT)
        return max((i.completed_at for i in ordered if i.completed_at is not None), default=None)


_PROGRESS = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


def _reading_order(instant: Instant) -> tuple[bool, str, str, Action]:
    """Completed ones by their completion, then pending ones."""
    return instant.completed_at is None, instant.completed_at or "", instant.requested_at, instant.action


def load_timeline(
    storage: Storage, config: TableConfig, root: str = "", first: Iterable[Instant] | None = None
) -> Timeline:
    """The active timeline of the table below `root`: a prefix of the instants, in completion order.

    A listing is not atomic: an instant that completes meanwhile may be listed without an earlier one. So the folder is
    listed twice, and only instants that had completed by the newest completion of the `first` listing are returned.
    Savepoints are returned as found: they change nothing, and the time of a deleted one may be drawn again.

    If a completed instant has disappeared, it is being archived or rolled back, and a listing may show a later one
    without it: then the folder is listed once more.
    """
    first = tuple(list_instants(storage, config, root) if first is None else first)
    second = list_instants(storage, config, root)
    while not _completed(first) <= _completed(second):
        first, second = second, list_instants(storage, config, root)
    newest = max((i.completed_at or "" for i in first if _is_ordered(i)), default=None)
    late = {
        (i.requested_at, i.action)
        for i in second
        if _is_ordered(i) and (newest is None or (i.completed_at or "") > newest)
    }
    if not late:
        return Timeline.of(second)
    # An instant that completed after the cut is still pending to this reader: its requested file says so.
    return Timeline.of(i for i in second if not (i.is_completed and (i.requested_at, i.action) in late))


def _completed(instants: Iterable[Instant]) -> frozenset[Instant]:
    return frozenset(instant for instant in instants if _is_ordered(instant))


def _is_ordered(instant: Instant) -> bool:
    return instant.is_completed and instant.action is not Action.SAVEPOINT


def list_instants(storage: Storage, config: TableConfig, root: str = "") -> tuple[Instant, ...]:
    """Every instant file of the active timeline; other names are skipped."""
    folder, layout = f"{root}{config.timeline_path}", config.timeline_layout
    found = [decode_instant_name(name, layout=layout, folder=folder) for name in storage.list_names(folder)]
    return tuple([instant for instant in found if instant is not None])


class Snapshot:
    """The writes that had completed by a point in completion order, active or archived.

    `timeline` is the whole active timeline; `until`, if given, is the completion time of the snapshot.
    """

    def __init__(self, timeline: Timeline, archive: Archive, until: InstantTime | None = None) -> None:
        self.timeline = timeline if until is None else timeline.until(until)
        self.until = until
        self._active = timeline
        self._archive = archive
        self._archived: dict[InstantTime, InstantTime | None] = {}

    def completion_of(self, requested_at: InstantTime) -> InstantTime | None:
        """When that write completed; None if it is not visible to this reader."""
        completed_at = self.timeline.completion_of(requested_at)
        if completed_at is not None or not self._may_be_archived(requested_at):
            return completed_at
        if requested_at not in self._archived:
            self.prefetch([requested_at])
        return self._archived[requested_at]

    @property
    def archived_before(self) -> InstantTime | None:
        """Writes requested before this time are archived; None if nothing is on the active timeline."""
        return self._active.first_requested_at

    def prefetch(self, wanted: Iterable[InstantTime]) -> None:
        """Looks up archived writes in one pass, so that later calls for each are cheap."""
        missing = {t for t in wanted if t not in self._archived and self._may_be_archived(t)}
        if not missing:
            return
        found = self._archive.completions(missing)
        oldest = self._archive.first_requested_at
        for requested_at in missing:
            completed_at = found.get(requested_at)
            if completed_at is None and (oldest is None or requested_at < oldest):
                completed_at = requested_at  # Older than anything the archive remembers: only its files are left.
            visible = completed_at is not None and (self.until is None or completed_at <= self.until)
            self._archived[requested_at] = completed_at if visible else None

    def _may_be_archived(self, requested_at: InstantTime) -> bool:
        first = self._active.first_requested_at
        return (first is None or requested_at < first) and self._active.completion_of(requested_at) is None


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
