"""Collects the facts about data files: which exist, and which instants own them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lakebed.format.file_names import decode_data_file_name
from lakebed.format.timeline.metadata import decode_rollback
from lakebed.metadata import MetadataTable
from lakebed.metadata.files import read_metadata_files
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.doctor.look import path_of
from lakebed.storage import Listed
from lakebed.table import TableState
from lakebed.timeline import Archive, Snapshot, Timeline
from lakebed.transaction.section import METADATA
from lakebed.view import latest_slices
from lakebed.view.slices import parse_data_files


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A data file in storage, and the instant in its name."""

    path: str
    size: int
    modified: datetime
    instant: InstantTime

    @property
    def name(self) -> str:
        """The file name."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Commits:
    """Files according to completed instants of the active timeline.

    `names` are file names by write, `sizes` are sizes by path. `undone` are writes that were rolled back, `cleaned`
    the paths that cleans removed.
    """

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    undone: frozenset[str] = frozenset()
    cleaned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """All facts that decide about files. All paths are in the data table, or all in the metadata table.

    `held` are instants that are not over: pending, about to be rolled back, or with a heartbeat. `is_completed` tells
    whether another instant is visible, `archived` are those in the history. `indexed` are sizes by path in the metadata
    table, None without one. `needed` are the files of the newest snapshot.
    """

    found: Mapping[str, FoundFile]
    held: frozenset[str]
    is_completed: Callable[[InstantTime], bool]
    archived: frozenset[str]
    commits: Commits
    indexed: Mapping[str, int] | None = None
    needed: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    """Paths that a pending clean will delete or has deleted."""


def list_files(state: TableState) -> dict[str, FoundFile]:
    """All data files below the table's root, in any folder."""
    return _found(state.storage.list("", recursive=True), lambda path: not path.startswith(".hoodie/"))


def list_metadata_table_files(state: TableState) -> dict[str, FoundFile]:
    """All files of shards in the metadata table."""
    inner = f"{METADATA}.hoodie/"
    return _found(state.storage.list(METADATA.rstrip("/"), recursive=True), lambda path: not path.startswith(inner))


def _found(files: Iterable[Listed], counts: Callable[[str], bool]) -> dict[str, FoundFile]:
    found = {}
    for listed in files:
        folder, _, name = listed.path.rpartition("/")
        file = decode_data_file_name(name, folder=folder) if counts(listed.path) else None
        if file is not None:
            found[listed.path] = FoundFile(listed.path, listed.size, listed.modified, file.instant)
    return found


def gather_facts(
    state: TableState,
    metadata: MetadataTable | None,
    found: Mapping[str, FoundFile],
    held: Collection[str],
    leaving: Collection[str] = (),
) -> ListedFiles:
    """The facts about files of the data table, found or expected."""
    instants = {file.instant for file in found.values()}
    state.latest.prefetch(instants)
    commits = _commits(state)
    indexed = None if metadata is None else dict(_indexed(state, metadata))
    needed = {path for file_slice in state.latest_slices for path in file_slice.paths} if metadata else set()
    return ListedFiles(
        found,
        frozenset(held),
        lambda instant: state.latest.completion_of(instant) is not None,
        frozenset(state.archive.completions(instants)),
        commits,
        indexed,
        frozenset(needed | set(_promised(state, commits))),
        frozenset(leaving),
    )


def gather_metadata_facts(
    state: TableState, timeline: Timeline, found: Mapping[str, FoundFile], held: Collection[str]
) -> ListedFiles:
    """The facts about files of the metadata table, which only folder listings list."""
    archive = Archive(state.storage, state.config, METADATA)
    snapshot = Snapshot(timeline, archive)
    instants = {file.instant for file in found.values()}
    snapshot.prefetch(instants)
    return ListedFiles(
        found,
        frozenset(held),
        lambda instant: snapshot.completion_of(instant) is not None,
        frozenset(archive.completions(instants)),
        Commits(),
    )


def _indexed(state: TableState, metadata: MetadataTable) -> Iterator[tuple[str, int]]:
    for partition, files in read_metadata_files(metadata).items():
        for file in files:
            if state.config.timeline_layout == 1 or state.latest.completion_of(file.instant) is not None:
                yield path_of(partition, file.name), file.size or 0


def _commits(state: TableState) -> Commits:
    names: dict[str, frozenset[str]] = {}
    sizes: dict[str, int] = {}
    undone: set[str] = set()
    cleaned: set[str] = set()
    for instant in state.timeline.completed():
        if instant.action.changes_data:
            metadata = state.documents.commit(instant)
            names[instant.requested_at] = frozenset(_names(metadata))
            sizes |= {stat.path: stat.file_size for stat in metadata.stats if stat.path}
        elif instant.action is Action.ROLLBACK:
            path = state.documents.path(instant)
            undone.update(decode_rollback(state.storage.get(path), path=path).commits)
        elif instant.action is Action.CLEAN:
            for partition, deleted in state.documents.clean(instant).deleted_files.items():
                bare = (name.rpartition("/")[2] for name in deleted)
                cleaned.update(path_of(partition, name) for name in bare)
    return Commits(names, sizes, frozenset(undone - names.keys()), frozenset(cleaned))


def _names(metadata: CommitMetadata) -> Iterator[str]:
    for stat in metadata.stats:
        yield from (path.rpartition("/")[2] for path in (stat.path, *stat.log_files, *stat.cdc_stats) if path)


def _promised(state: TableState, commits: Commits) -> Iterator[str]:
    """Paths in the newest slices, according to commit metadata of the active timeline."""
    if state.config.timeline_layout == 1:
        return
    by_partition: dict[str, dict[str, int]] = {}
    for path in commits.sizes.keys() - commits.cleaned:
        partition, _, name = path.rpartition("/")
        by_partition.setdefault(partition, {})[name] = commits.sizes[path]
    files = {partition: parse_data_files(names, partition) for partition, names in by_partition.items()}
    slices = latest_slices(files, state.timeline.completion_of, layout=2, replaced=state.replaced(state.latest))
    yield from (path for file_slice in slices for path in file_slice.paths)
