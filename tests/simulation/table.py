"""The table that actors write and read: rows are lists of the numbers of the writes that changed them.

A write appends its number to the list of each key that it touches, so that what is read reveals which writes came
before. A deleted row keeps its list. Data files have real names and hold {key: (numbers, is alive)}.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lakebed.format.file_names import decode_data_file_name, encode_base_file_name
from lakebed.format.properties import encode_properties, table_checksum
from lakebed.metadata.table import metadata_completions
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, FileGroupId, LogFile
from lakebed.model.instant import Instant, InstantTime
from lakebed.timeline import Timeline, load_timeline
from lakebed.timeline.config import PROPERTIES, load_config
from lakebed.transaction.section import METADATA
from lakebed.view import latest_slices

from .codecs import Codec
from .world import Store, World

Value = tuple[tuple[int, ...], bool]
Rows = dict[str, Value]

FIRST = InstantTime("20240101000000000")
FIRST_DONE = InstantTime("20240101000000500")
FILES = "files"
STATS = "column_stats"
"""A partition of the metadata table that another engine may add: every commit must then write there too."""
Places = dict[str, tuple[str, str]]
"""Where each key lives: its partition and file id, as a record index has it."""


def encode_rows(rows: Mapping[str, Value]) -> bytes:
    """The content of a data file."""
    return marshal.dumps(dict(rows))


def decode_rows(data: bytes) -> Rows:
    """The rows of a data file."""
    return marshal.loads(data)


@lru_cache(maxsize=100_000)
def data_file(name: str) -> BaseFile | LogFile | None:
    """The data file of a name."""
    return decode_data_file_name(name)


@dataclass(frozen=True, slots=True)
class Shape:
    """What table is made for a schedule."""

    is_cow: bool
    has_metadata: bool
    partitions: tuple[str, ...]
    groups: int
    keys: int


def new_table(shape: Shape, encode_commit: object) -> Store:
    """A table with one commit that inserted the first keys."""
    store = Store()
    store.put(PROPERTIES, _properties(shape), 0)
    stats: dict[str, list[WriteStat]] = {}
    for number in range(shape.groups):
        partition = shape.partitions[number % len(shape.partitions)]
        rows: Rows = {f"k{key}": ((0,), True) for key in range(number, shape.keys, shape.groups)}
        name = encode_base_file_name(f"g{number}", "0-0-0", FIRST)
        store.put(f"{partition}/{name}", encode_rows(rows), 0)
        stats.setdefault(partition, []).append(WriteStat(f"g{number}", f"{partition}/{name}", partition))
    metadata = CommitMetadata({key: tuple(value) for key, value in stats.items()}, operation="INSERT")
    action = "commit" if shape.is_cow else "deltacommit"
    document = encode_commit(metadata, replace=False)  # type: ignore[operator]
    inflight = "inflight" if shape.is_cow else "deltacommit.inflight"
    for root, what in (("", action), *(((METADATA, "deltacommit"),) if shape.has_metadata else ())):
        folder = f"{root}.hoodie/timeline"
        store.put(f"{folder}/{FIRST}.{what}.requested", b"", 0)
        store.put(f"{folder}/{FIRST}.{'deltacommit.inflight' if root else inflight}", b"", 0)
        done = "20240101000000400" if root else FIRST_DONE
        store.put(f"{folder}/{FIRST}_{done}.{what}", document, 0)
    if shape.has_metadata:
        paths = [stat.path for stat in metadata.stats]
        places = {
            f"k{key}": (shape.partitions[key % shape.groups % len(shape.partitions)], f"g{key % shape.groups}")
            for key in range(shape.keys)
        }
        store.put(f"{METADATA}{FILES}/.files-0000-0_{FIRST}.log.1_0-0-0", encode_entries(paths, places), 0)
    return store


def encode_entries(paths: Iterable[str], places: Places) -> bytes:
    """The content of a file of the metadata table: data files, and where keys live."""
    return marshal.dumps((list(paths), places))


def decode_entries(data: bytes) -> tuple[list[str], Places]:
    """What was encoded."""
    return marshal.loads(data)


def _properties(shape: Shape) -> bytes:
    properties = {
        "hoodie.table.name": "sim",
        "hoodie.table.type": "COPY_ON_WRITE" if shape.is_cow else "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.metadata.partitions": FILES if shape.has_metadata else "",
    }
    properties["hoodie.table.checksum"] = str(table_checksum(properties))
    return encode_properties(properties, comment="simulated", date="today")


@dataclass(slots=True)
class Group:
    """The newest slice of a file group, as a snapshot has it."""

    group: FileGroupId
    base: BaseFile | None
    logs: tuple[LogFile, ...]
    rows: Rows

    @property
    def last(self) -> str:
        """The instant of the newest file."""
        times = [file.instant for file in (self.base, *self.logs) if file is not None]
        return max(times)


@dataclass(slots=True)
class View:
    """What one reader sees."""

    config: TableConfig
    timeline: Timeline
    groups: dict[FileGroupId, Group]
    places: Places | None = None
    """Where the metadata table says that keys live; None if there is none."""
    listed: set[str] = field(default_factory=set)
    """Every file that was listed, whether it counts or not."""

    @property
    def seen(self) -> frozenset[InstantTime]:
        """The writes in the snapshot."""
        return frozenset([instant.requested_at for instant in self.timeline.commits()])

    def rows(self) -> Rows:
        """All rows. A key that is in two file groups has both lists, one after the other."""
        found: Rows = {}
        for group in self.groups.values():
            for key, (numbers, alive) in group.rows.items():
                if key in found:
                    raise DuplicateKeyError(f"{key} is in {group.group} and elsewhere")
                found[key] = (numbers, alive)
        return found

    def misplaced(self) -> list[str]:
        """I30: the keys that the index does not find where they are."""
        if self.places is None:
            return []
        return [
            f"{key} is in {group.group} and the index says {self.places.get(key)}"
            for group in self.groups.values()
            for key in group.rows
            if self.places.get(key) != (group.group.partition, group.group.file_id)
        ]


class DuplicateKeyError(Exception):
    """One key in two file groups."""


class MissingFileError(Exception):
    """A file that a completed write names is not there, or not listed."""


def load_view(world: World, storage: object, codec: Codec) -> View:
    """A snapshot, read as readers do: the timeline listed twice, then files by the metadata table or by listing.

    Whoever is so slow that the metadata table is cleaned meanwhile looks again.
    """
    while True:
        cleaned = world.reached["metadata clean"]
        try:
            return _load_view(world, storage, codec)
        except MissingFileError:
            if cleaned == world.reached["metadata clean"]:
                raise


def _load_view(world: World, storage: object, codec: Codec) -> View:
    config = load_config(storage)  # type: ignore[arg-type]
    timeline = load_timeline(storage, config)  # type: ignore[arg-type]
    contents = {instant.requested_at: _content(world, codec, instant) for instant in timeline.commits()}
    places: Places | None = None
    if config.metadata_partitions:
        paths, places = read_metadata(world, storage, config, timeline)
    else:
        paths = _listed_in_folders(storage, contents.values())
    return View(config, timeline, slice_files(world.store, timeline, contents, paths), places, paths)


def _content(world: World, codec: Codec, instant: Instant) -> CommitMetadata:
    """What a completed write says. It never changes, so that reading it is no scheduling point."""
    path = f".hoodie/timeline/{instant.requested_at}_{instant.completed_at}.{instant.action}"
    stored = world.store.get(path)
    if stored is None:
        raise MissingFileError(f"{path} was taken back")
    return codec.decode_commit(stored.data, path=path)


def read_metadata(world: World, storage: object, config: TableConfig, timeline: Timeline) -> tuple[set[str], Places]:
    """Files that the metadata table lists and where it has keys, by what counts for this snapshot (I13)."""
    completion_of = metadata_completions(storage, config, timeline, load_timeline(storage, config, METADATA))  # type: ignore[arg-type]
    files = [data_file(listed.path.rpartition("/")[2]) for listed in storage.list(f"{METADATA}{FILES}")]  # type: ignore[attr-defined]
    found = {FILES: [file for file in files if file is not None]}
    paths: set[str] = set()
    places: Places = {}
    for file_slice in latest_slices(found, completion_of, layout=2):
        for file in (file_slice.base, *file_slice.logs):
            if file is not None:
                stored = world.store.get(f"{METADATA}{FILES}/{file.name}")
                if stored is None:
                    raise MissingFileError(f"{file.name} of the metadata table is listed and not there")
                more, moved = decode_entries(stored.data)
                paths.update(more)
                places.update(moved)
    return paths, places


def _listed_in_folders(storage: object, contents: Iterable[CommitMetadata]) -> set[str]:
    folders = sorted({partition for metadata in contents for partition in metadata.write_stats})
    return {listed.path for folder in folders for listed in storage.list(folder)}  # type: ignore[attr-defined]


def slice_files(
    store: Store, timeline: Timeline, contents: Mapping[InstantTime, CommitMetadata], paths: Iterable[str]
) -> dict[FileGroupId, Group]:
    """The newest slice of each file group: of files whose write counts, in file groups that are not replaced."""
    files: dict[str, list[BaseFile | LogFile]] = {}
    for path in sorted(paths):
        partition, _, name = path.rpartition("/")
        file = data_file(name)
        if file is not None:
            files.setdefault(partition, []).append(file)
    replaced = frozenset(
        [
            FileGroupId(partition, file_id)
            for metadata in contents.values()
            for partition, ids in metadata.replaced_file_ids.items()
            for file_id in ids
        ]
    )
    _check_files(timeline, contents, paths, replaced)
    slices = latest_slices(files, timeline.completion_of, layout=2, replaced=replaced)
    return {each.group: _read_slice(store, each.group, each.base, each.logs) for each in slices}


def _check_files(
    timeline: Timeline,
    contents: Mapping[InstantTime, CommitMetadata],
    paths: Iterable[str],
    replaced: frozenset[FileGroupId],
) -> None:
    known = set(paths)
    for instant in timeline.commits():
        for stat in contents[instant.requested_at].stats:
            if stat.path not in known and FileGroupId(stat.partition, stat.file_id) not in replaced:
                raise MissingFileError(f"{stat.path} of {instant.requested_at} is not listed")


def _read_slice(store: Store, group: FileGroupId, base: BaseFile | None, logs: tuple[LogFile, ...]) -> Group:
    rows: Rows = {}
    for file in (base, *logs):
        if file is not None:
            stored = store.get(f"{group.partition}/{file.name}")
            if stored is None:
                raise MissingFileError(f"{group.partition}/{file.name} is listed and not there")
            rows.update(decode_rows(stored.data))
    return Group(group, base, logs, rows)
