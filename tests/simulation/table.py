"""The table that actors write and read: rows are lists of the numbers of the writes that changed them.

A write appends its number to the list of each key that it touches, so that what is read reveals which writes came
before. A deleted row keeps its list. Data files have real names and hold {key: (numbers, is alive)}.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any
from zlib import crc32

from lakebed.errors import CorruptTableError
from lakebed.format.file_names import decode_data_file_name, encode_base_file_name
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock
from lakebed.format.properties import PARTITION_METAFILE, encode_properties, table_checksum
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import group_ids
from lakebed.metadata.shard_writes import FIRST_TOKEN
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.read.snapshot import take_snapshot
from lakebed.table import TableHandle, TableState
from lakebed.timeline import Timeline
from lakebed.timeline.config import PROPERTIES
from lakebed.transaction.section import METADATA
from lakebed.view.blocks import FiledBlock, without_replaced

from .world import Store, World

Value = tuple[tuple[int, ...], bool]
Rows = dict[str, Value]

FIRST = InstantTime("20240101000000000")
FIRST_DONE = InstantTime("20240101000000500")
FILES = "files"
STATS = "bloom_filters"
"""A partition of the metadata table that another engine may add: every commit must then write there too."""
INDEX = "sim_index"
"""The index of keys that tables may have, and that is created and dropped while writers go on."""
BUILT = "record_index"
"""The index of keys that another engine builds while writers go on."""
SCHEMA_JSON = '{"type":"record","name":"sim","fields":[{"name":"key","type":["null","string"],"default":null}]}'
"""The columns of the table, as its configuration declares them."""
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
    shards: int = 0
    """Shards of the index of keys; 0: there is none. Without a metadata table there is none either."""

    @property
    def indexes(self) -> tuple[str, ...]:
        """The partitions of the metadata table."""
        return () if not self.has_metadata else (FILES, INDEX) if self.shards else (FILES,)


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
    for partition in shape.partitions:
        store.put(f"{partition}/{PARTITION_METAFILE}", b"", 0)
    if shape.has_metadata:
        store.put(f"{METADATA}.hoodie/hoodie.properties", _properties(shape), 0)
        paths = [stat.path for stat in metadata.stats]
        places = {
            f"k{key}": (shape.partitions[key % shape.groups % len(shape.partitions)], f"g{key % shape.groups}")
            for key in range(shape.keys)
        }
        store.put(f"{METADATA}{FILES}/.files-0000-0_{FIRST}.log.1_0-0-1", encode_entries(paths), 0)
        for number, file_id in enumerate(group_ids(INDEX, shape.shards)):
            here = {key: place for key, place in places.items() if shard_of_key(key, shape.shards) == number}
            store.put(f"{METADATA}{INDEX}/.{file_id}_{FIRST}.log.1_0-0-1", encode_entries((), here), 0)
    return store


def shard_of_key(key: str, shards: int) -> int:
    """Where an index of so many shards has a key."""
    return crc32(key.encode()) % shards


def encode_entries(paths: Iterable[str], places: Places | None = None, gone: Iterable[str] = ()) -> bytes:
    """The content of a file of the metadata table: data files, where keys live, and data files that are no more."""
    return marshal.dumps((list(paths), dict(places or {}), list(gone)))


def encode_merged(contents: Iterable[bytes | memoryview], replaced: Iterable[str]) -> bytes:
    """The content of a log file that stands for others, whatever lies below: what is gone goes first."""
    logs = [*contents]
    paths, places = merge_entries(logs)
    gone = {path for content in logs for path in marshal.loads(content)[2]}
    return marshal.dumps((sorted(paths), places, sorted(gone), [*replaced]))


def merge_entries(contents: Iterable[bytes | memoryview]) -> tuple[set[str], Places]:
    """What files of the metadata table say together, in merge order."""
    paths: set[str] = set()
    places: Places = {}
    for content in contents:
        more, moved, gone, *replaced = marshal.loads(content)
        if not replaced:
            paths.update(more)
        paths.difference_update(gone)
        for folder in [path for path in gone if path.endswith("/")]:
            paths = {path for path in paths if not path.startswith(folder)}
        if replaced:
            paths.update(more)
        places.update(moved)
    return paths, places


def counted_logs(file_slice: FileSlice, read: Callable[[str], bytes]) -> tuple[FiledBlock, ...]:
    """The log files of a slice of the metadata table that count beside those that stand for others, in merge order."""
    blocks = []
    for log in file_slice.logs:
        if log.write_token == FIRST_TOKEN:
            continue  # It only says that the shard is there.
        content = read(file_slice.path(log.name))
        replaced = marshal.loads(content)[3:]
        header = {HeaderKey.INSTANT_TIME: str(log.instant)}
        if replaced:
            header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(replaced[0])
        blocks.append(FiledBlock(LogBlock(BlockKind.HFILE_DATA, header, memoryview(content), 0, 0), log.name))
    return without_replaced(blocks)


def slice_contents(file_slice: FileSlice, read: Callable[[str], bytes]) -> list[bytes | memoryview]:
    """What is in the files of a slice of the metadata table that count, in merge order."""
    base = [read(file_slice.path(file_slice.base.name))] if file_slice.base else []
    return [*base, *(filed.block.content for filed in counted_logs(file_slice, read))]


def _properties(shape: Shape) -> bytes:
    properties = {
        "hoodie.table.name": "sim",
        "hoodie.table.type": "COPY_ON_WRITE" if shape.is_cow else "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.metadata.partitions": ",".join(shape.indexes),
        "hoodie.table.create.schema": SCHEMA_JSON,
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

    timeline: Timeline
    groups: dict[FileGroupId, Group]
    archived: frozenset[InstantTime]
    """Writes that are archived, and completed before the newest that the reader saw."""
    places: Mapping[str, Places] = field(default_factory=dict)
    """Where keys live, by index of keys."""
    listed: frozenset[str] = frozenset()
    """Every file that was listed, whether it counts or not."""
    needed: frozenset[str] = frozenset()
    """The files that hold what the reader sees."""

    @property
    def seen(self) -> frozenset[InstantTime]:
        """The writes in the snapshot that are on the active timeline."""
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
        """I30: the keys that an index does not find where they are."""
        return [
            f"{key} is in {group.group} and {index} says {places.get(key)}"
            for index, places in self.places.items()
            for group in self.groups.values()
            for key in group.rows
            if places.get(key) != (group.group.partition, group.group.file_id)
        ]


class DuplicateKeyError(Exception):
    """One key in two file groups."""


class MissingFileError(CorruptTableError):
    """A file that a completed write names is not there, or not listed."""


def load_view(world: World, handle: TableHandle, state: TableState | None = None) -> View:
    """A snapshot, of a state or of now, read as readers do.

    Whoever is so slow that the metadata table is cleaned meanwhile looks again.
    """
    while True:
        cleaned = world.reached["metadata clean"]
        try:
            return _read_view(world, state or handle.state())
        except MissingFileError:
            if cleaned == world.reached["metadata clean"]:
                raise
            handle.forget()
            state = None


def _read_view(world: World, state: TableState) -> View:
    take_snapshot(state, None)
    slices = state.latest_slices
    groups = {each.group: _read_slice(world.store, each) for each in slices}
    listed = frozenset([f"{name}/{file.name}" for name, files in state.files.items() for file in files])
    needed = frozenset([path for each in slices for path in each.paths])
    _check_files(world, state, listed)
    return View(state.timeline, groups, _archived(state), _places(state), listed, needed)


def _places(state: TableState) -> dict[str, Places]:
    """What indexes of keys say. One that was dropped or built anew since the table was looked at is done without."""
    metadata, found = state.metadata, {}
    for index in (INDEX, BUILT):
        if isinstance(metadata, MetadataTable) and metadata.has(index):
            try:
                found[index] = _read_places(metadata, index)
            except CorruptTableError:
                if not metadata.has_changed():
                    raise
            metadata.leave_out_changed()
            if not metadata.has(index):
                found.pop(index, None)
    return found


def _read_places(metadata: MetadataTable, index: str) -> Places:
    """I18: a key is looked for in its shard, by the number of shards that there are."""
    slices = metadata.slices(index)
    found: Places = {}
    for number, file_slice in enumerate(slices):
        read = partial(_metadata_content, metadata._storage)
        here = merge_entries(slice_contents(file_slice, read))[1]
        found.update({key: place for key, place in here.items() if shard_of_key(key, len(slices)) == number})
    return found


def _archived(state: TableState) -> frozenset[InstantTime]:
    """Archived writes that had completed by the newest that the reader took into account."""
    newest = max((i.completed_at or "" for i in state.timeline.commits()), default="")
    newest = max(newest, *(completed_at or "" for completed_at in state.latest._archived.values()), "")
    known = state.archive.writes_completed_after(InstantTime(""))
    return frozenset([requested_at for requested_at, completed_at in known.items() if completed_at <= newest])


def list_entries(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path, from a simulated metadata table."""
    files: dict[str, list[BaseFile | LogFile]] = {}
    for path in sorted(metadata_entries(metadata)):
        partition, _, name = path.rpartition("/")
        file = data_file(name)
        assert file is not None
        files.setdefault(partition, []).append(file)
    return {partition: tuple(of_partition) for partition, of_partition in files.items()}


def metadata_entries(metadata: MetadataTable) -> set[str]:
    """Files that the metadata table lists, by what counts for its reader."""
    known: set[str] | None = vars(metadata).get("simulated")
    if known is None:
        storage, slices = metadata._storage, metadata.slices(FILES)
        by_time = [_content(storage, f"{METADATA}{path}") for each in slices for path in each.paths]
        known = merge_entries(by_time)[0]
        if any(marshal.loads(content)[3:] for content in by_time):
            # Apache Hudi reads all log files by their times unless told otherwise; we leave out what was merged.
            read = partial(_metadata_content, storage)
            ours = merge_entries(content for each in slices for content in slice_contents(each, read))[0]
            assert ours == known, "readers of merged log files differ"
        vars(metadata)["simulated"] = known
    return known


def _metadata_content(storage: Any, path: str) -> bytes:
    return _content(storage, f"{METADATA}{path}")


def _content(storage: Any, path: str) -> bytes:
    """What a file of a slice holds. Slices are read in one go, so that reading one is no scheduling point."""
    stored = storage.world.store.get(path)
    if stored is None:
        raise MissingFileError("listed and not there", path=path)
    return stored.data


def _check_files(world: World, state: TableState, listed: frozenset[str]) -> None:
    """Files of completed writes are listed unless they were replaced or a clean may have taken them."""
    replaced = state.replaced(state.latest)
    for instant in state.timeline.commits():
        for stat in state.documents.commit(instant).stats:
            is_known = stat.path in listed or stat.path in world.cleaned
            if not is_known and FileGroupId(stat.partition, stat.file_id) not in replaced:
                raise MissingFileError(f"{instant.requested_at} wrote a file that is not listed", path=stat.path)


def _read_slice(store: Store, file_slice: FileSlice) -> Group:
    rows: Rows = {}
    for path in file_slice.paths:
        stored = store.get(path)
        if stored is None:
            raise MissingFileError("listed and not there", path=path)
        rows.update(decode_rows(stored.data))
    return Group(file_slice.group, file_slice.base, file_slice.logs, rows)
