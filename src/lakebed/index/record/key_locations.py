"""Where many record keys live: all shards of the record index that they hash to are probed by one kernel, on threads.

A shard is a base file and log files on top, each with a table of its keys (see `shard_cache`). Keys are looked for in
the newest file first; what it says of a key, that it is there or that it is deleted, counts. For a few keys the entries
are looked up where they lie, which reads a few blocks of a shard instead of all of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from lakebed.engine.threads import map_tasks, start
from lakebed.format.arrow import ArrowArray
from lakebed.format.java_hash import shards_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.format.metadata.record_index import decode_record_index_value
from lakebed.index.record.key_table import HashedKeys, KeyTable, KeyTables, build_key_table, fingerprints
from lakebed.index.record.probe import RECORD_INDEX, KeyShards, is_partitioned
from lakebed.index.record.shard_cache import ShardCache, file_identity, find_or_build
from lakebed.kernels.buffers import Int32s, Int64s, UInt32s
from lakebed.kernels.grouping import group_rows
from lakebed.kernels.key_table import find_entries
from lakebed.metadata.shard import load_whole_shard, open_file
from lakebed.metadata.table import ROOT, ShardFiles
from lakebed.model.files import BaseFile, FileGroupId, LogFile

POINT_KEYS_MAX = 16
"""Up to so many keys of a shard, and one more per `POINT_BYTES` of it, are looked up one by one.

A key takes half a millisecond or more, the block that holds it; a table of a shard of 100,000 keys 35 to build.
"""
POINT_BYTES = 8 << 20
SMALL_BYTES, _KEYS_OF_SMALL_MAX = 1 << 19, 256
"""A shard up to this size is searched for more keys: it takes less time than to build and keep tables of its files."""
_FEW_KEYS = 1000
"""Up to so many, threads only wait for each other, unless they wait for a store."""


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """What locating keys took: keys asked for and found, shards touched, and files of them by how they were read."""

    keys: int = 0
    hits: int = 0
    shards: int = 0
    cached: int = 0
    """Files whose table the cache had."""
    built: int = 0
    """Files whose table was built."""
    point_keys: int = 0
    """Keys that were looked up one by one."""
    late: int = 0
    """Rows that were left out since the table has newer ones."""
    records_read: int = 0
    """Rows whose stored row was read, to tell which of the two is newer."""
    outside: int = 0
    """Rows for partitions that the index does not know."""

    @property
    def uses_tables(self) -> bool:
        """Whether keys were looked for in tables."""
        return self.cached + self.built > 0

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        return ProbeCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Locations:
    """Where keys live: key i in file group `places[codes[i]]` since `instants_ms[i]`; code -1: it has no entry.

    `ordering[i]` is a lower bound of its row's ordering value, `NO_ORDERING` if its entry has none. Among the places
    may be some that hold none of the keys.
    """

    codes: Int32s
    instants_ms: Int64s
    ordering: Int64s
    places: tuple[FileGroupId, ...]
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def take(self, rows: Int64s) -> Locations:
        """Those of the keys with these numbers, in their order."""
        return replace(self, codes=self.codes[rows], instants_ms=self.instants_ms[rows], ordering=self.ordering[rows])


def locate_keys(
    metadata: KeyShards, keys: ArrowArray, partitions: ArrowArray | None = None, *, cache: ShardCache
) -> Locations:
    """Where each of `keys` (strings without nulls) lives.

    An index that is partitioned is asked for each key in the data partition that `partitions`, a dictionary array,
    gives it; a global one does not need them.
    """
    if not is_partitioned(metadata):
        return _locate(metadata, keys, _shard_set(metadata, None), cache)
    assert partitions is not None, "a partitioned record index is asked by partition"
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    found = _Found(len(keys))
    for code, partition in enumerate(partitions.dictionary.to_pylist()):
        rows = np.flatnonzero(codes == code)
        shards = _shard_set(metadata, partition)
        if len(rows) and shards:
            found.add(rows, _locate(metadata, keys.take(pa.array(rows)), shards, cache))
    return found.locations()


def locate_everywhere(metadata: KeyShards, keys: ArrowArray, *, cache: ShardCache) -> tuple[Int64s, Locations]:
    """All locations of each of `keys`: numbers of keys, ascending, and locations. A global index has one each."""
    sets: dict[str | None, list[str]] = {}
    for file_slice in metadata.slices(RECORD_INDEX):
        partition = data_partition_of_group(file_slice.group.file_id) if is_partitioned(metadata) else None
        sets.setdefault(partition, []).append(file_slice.group.file_id)
    every = [_locate(metadata, keys, tuple(shards), cache) for shards in sets.values()]
    rows = [np.flatnonzero(found.codes >= 0) for found in every]
    joined = _Found(sum(map(len, rows)))
    start = 0
    for found, hits in zip(every, rows, strict=True):
        joined.add(np.arange(start, start + len(hits)), found.take(hits))
        start += len(hits)
    numbers = np.concatenate([*rows, np.empty(0, np.int64)])
    order = np.argsort(numbers, kind="stable")
    return numbers[order], joined.locations().take(order)


def probe_shard(files: ShardFiles, keys: ArrowArray, cache: ShardCache) -> Locations:
    """Where `keys`, all of which hash to one shard, live. Runs in this process or in a worker."""
    found = _Found(len(keys))
    probe = _Probe.of([_load_tables(files, cache)], found, np.arange(len(keys)), np.array([0, len(keys)]))
    probe.run(fingerprints(keys, cache.seed), threads=1)
    return found.locations()


def _shard_set(metadata: KeyShards, partition: str | None) -> tuple[str, ...]:
    """File ids of the shards for keys of a data partition, in shard order; None: all."""
    file_ids = (file_slice.group.file_id for file_slice in metadata.slices(RECORD_INDEX))
    return tuple(f for f in file_ids if partition is None or data_partition_of_group(f) == partition)


def _locate(metadata: KeyShards, keys: ArrowArray, shards: tuple[str, ...], cache: ShardCache) -> Locations:
    """Where keys live, by the shards that they hash to."""
    by_id = {files.file_slice.group.file_id: files for files in metadata.shard_files(RECORD_INDEX) or ()}
    # With more keys than can be few in every shard some are surely looked for in tables: both hashes come in one go.
    are_many = len(keys) > sum(_few_max(by_id.get(shard)) for shard in shards)
    hashed, held = None, _Held(cache)
    if are_many:
        # Tables are at hand or not whatever keys hash to: that is found out meanwhile.
        hashed = _hash_all(keys, len(shards), cache.seed, lambda: held.look(by_id[shard] for shard in shards))
    order, bounds = group_rows(shards_of(keys, len(shards)) if hashed is None else hashed.shards, len(shards))
    tasks = [
        _Keys(metadata, shard, by_id.get(shard), keys, order[first:last])
        for shard, first, last in zip(shards, bounds, bounds[1:], strict=False)
        if first < last
    ]
    found = _Found(len(keys))
    threads = 1 if len(keys) <= _FEW_KEYS and metadata.is_near else None
    few = [task for task in tasks if task.is_few]
    for task, located in zip(few, map_tasks(few, _look_up, threads=threads), strict=True):
        found.add(task.rows, located)
    many = [task for task in tasks if not task.is_few]
    if many:
        loaded = _load_all(many, held, threads)
        if few:
            order = np.concatenate([task.rows for task in many])
        bounds = np.cumsum([0, *(len(task.rows) for task in many)])
        prints = hashed.prints if hashed is not None else fingerprints(keys, cache.seed)
        _Probe.of(loaded, found, order, bounds).run(prints, threads=threads)
    return found.locations()


def _hash_all(keys: ArrowArray, shards: int, seed: bytes, meanwhile: Callable[[], None]) -> HashedKeys:
    """What keys hash to, of many on threads, if these are shared; something else is done `meanwhile`."""
    hashed = HashedKeys.of(keys, shards, seed)
    begun = start(_spans(len(keys)), hashed.fill)
    meanwhile()
    for part in begun:
        part.result()
    return hashed


def _spans(count: int) -> list[tuple[int, int]]:
    """Where parts of so many keys begin and end, of which each core has one, unless there are few."""
    size = max(_FEW_KEYS, -(-count // (os.cpu_count() or 1)))
    return [(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True, slots=True)
class _Keys:
    """The `rows` of keys to look for in one shard. `files` is None if only the metadata table can read it."""

    metadata: KeyShards
    shard: str
    files: ShardFiles | None
    keys: ArrowArray
    rows: Int64s

    @property
    def is_few(self) -> bool:
        """Whether the keys are looked up one by one."""
        return len(self.rows) <= _few_max(self.files)


def _few_max(files: ShardFiles | None) -> float:
    """How many keys of a shard are looked up one by one: all, where only the metadata table can read it."""
    if files is None:
        return math.inf
    base, logs = files.file_slice.base, files.file_slice.logs
    size = sum(file.size or 0 for file in ((base,) if base else ()) + logs)
    return max(POINT_KEYS_MAX + size // POINT_BYTES, _KEYS_OF_SMALL_MAX if size <= SMALL_BYTES else 0)


def _look_up(probe: _Keys) -> Locations:
    """Where a few keys live, by reading the blocks that hold their entries."""
    texts = probe.keys.take(pa.array(probe.rows)).to_pylist()
    stored = probe.metadata.shard(RECORD_INDEX, probe.shard).find_many(texts)
    codes, instants = np.full(len(texts), -1, np.int32), np.full(len(texts), -1, np.int64)
    ordering = np.full(len(texts), NO_ORDERING)
    places: dict[FileGroupId, int] = {}
    for row, text in enumerate(texts):
        if text in stored:
            newest = stored[text][-1]
            location = decode_record_index_value(newest.value, newest.schema, path=newest.path)
            place = FileGroupId(location.partition, location.file_id)
            codes[row], instants[row] = places.setdefault(place, len(places)), location.instant_ms
            ordering[row] = NO_ORDERING if location.ordering is None else location.ordering
    counts = ProbeCounts(len(texts), int(np.count_nonzero(codes >= 0)), 1, point_keys=len(texts))
    return Locations(codes, instants, ordering, tuple(places), counts)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of a shard's files, and how many of them the cache had."""

    tables: KeyTables
    cached: int
    built: int


class _Held:
    """Tables of shards for which nothing must be read, as far as that was looked for."""

    def __init__(self, cache: ShardCache) -> None:
        self.cache = cache
        self._known: dict[FileGroupId, _Tables | None] = {}

    def look(self, shards: Iterable[ShardFiles]) -> None:
        """Looks for the tables of shards."""
        for files in shards:
            self.find(files)

    def find(self, files: ShardFiles) -> _Tables | None:
        """The tables of a shard, if they are held."""
        group = files.file_slice.group
        if group not in self._known:
            self._known[group] = _held_tables(_Parts.of(files, self.cache), self.cache)
        return self._known[group]


def _load_all(shards: Sequence[_Keys], held: _Held, threads: int | None) -> list[_Tables]:
    """The tables of shards; threads are asked where something must be read."""
    found = [held.find(_files_of(keys)) for keys in shards]
    missing = [_files_of(keys) for keys, tables in zip(shards, found, strict=True) if tables is None]
    loaded = map_tasks(missing, partial(_load_tables, cache=held.cache), threads=threads)
    return [next(loaded) if tables is None else tables for tables in found]


def _files_of(keys: _Keys) -> ShardFiles:
    """The files of the shard that keys belong to, which are not few."""
    assert keys.files is not None, "else they are few"
    return keys.files


@dataclass(frozen=True, slots=True)
class _Parts:
    """The files of a shard and what they are called, from the newest on; the tables of the `older` are at hand."""

    files: tuple[BaseFile | LogFile, ...]
    identities: tuple[str, ...] | None
    older: KeyTables | None

    @classmethod
    def of(cls, files: ShardFiles, cache: ShardCache) -> _Parts:
        """Those of a shard."""
        of_slice = files.file_slice
        every = (*reversed(of_slice.logs), *((of_slice.base,) if of_slice.base else ()))
        pairs = zip(every, reversed(files.completions), strict=True)
        names = [file_identity(files.storage, of_slice.path(file.name), file.size, at) for file, at in pairs]
        identities = tuple(name for name in names if name is not None)
        if len(identities) < len(every):
            return cls(every, None, None)
        return cls(every, identities, cache.find_together(identities))

    @property
    def newer(self) -> tuple[BaseFile | LogFile, ...]:
        """The files whose tables are wanted yet."""
        return self.files[: len(self.files) - (len(self.older.tables) if self.older is not None else 0)]

    def join(self, newer: Sequence[KeyTable], cache: ShardCache) -> KeyTables:
        """All tables, to be at hand the next time."""
        if not newer and self.older is not None:
            return self.older
        tables = KeyTables.of(newer, self.older)
        if self.identities is not None:
            cache.keep_together(self.identities, tables)
        return tables


def _held_tables(parts: _Parts, cache: ShardCache) -> _Tables | None:
    """The tables of a shard, if nothing must be read for them."""
    if parts.older is None or parts.identities is None:
        return None
    found = [cache.find_held(identity) for identity in parts.identities[: len(parts.newer)]]
    newer = [table for table in found if table is not None and not table.replaces_others]
    return _Tables(parts.join(newer, cache), len(parts.files), 0) if len(newer) == len(found) else None


def _load_tables(files: ShardFiles, cache: ShardCache) -> _Tables:
    parts = _Parts.of(files, cache)
    names = parts.identities or (None,) * len(parts.files)
    found = [
        find_or_build(cache, name, partial(_build, files, file)) for file, name in zip(parts.newer, names, strict=False)
    ]
    newer = [table for table, _ in found]
    if any(table.replaces_others for table in newer):
        return _tables_of_all(files, found if parts.older is None else [*found, (parts.older.tables[-1], True)], cache)
    built = sum(not was_cached for _, was_cached in found)
    return _Tables(parts.join(newer, cache), len(parts.files) - built, built)


def _tables_of_all(files: ShardFiles, found: Sequence[tuple[KeyTable, bool]], cache: ShardCache) -> _Tables:
    """Tables where blocks of some log files are hidden by those of another: only all together say what counts.

    Of the tables that were `found`, the oldest last, that of the base file does.
    """
    logs = load_whole_shard(files.storage, replace(files.file_slice, base=None), root=ROOT)
    base = found[-1:] if files.file_slice.base else []
    tables = KeyTables.of([build_key_table(logs.layers(), cache.seed), *(table for table, _ in base)])
    cached = sum(was_cached for _, was_cached in base)
    return _Tables(tables, cached, len(tables.tables) - cached)


def _build(files: ShardFiles, file: BaseFile | LogFile, seed: bytes) -> KeyTable:
    """The table of one file."""
    base, logs = (file, ()) if isinstance(file, BaseFile) else (None, (file,))
    part = replace(files.file_slice, base=base, logs=logs)
    opened = open_file(files.storage, part, root=ROOT)
    return build_key_table(opened.layers, seed, replaces_others=bool(opened.replaced))


class _Found:
    """Locations of keys as they come in, place numbers of several sources made one."""

    def __init__(self, count: int) -> None:
        self.codes = np.full(count, -1, np.int32)
        self.instants = np.full(count, -1, np.int64)
        self.ordering = np.full(count, NO_ORDERING)
        self._places: dict[FileGroupId, int] = {}
        self._counts = ProbeCounts()

    def add(self, rows: Int64s, found: Locations) -> None:
        """Take over the locations of the keys `rows`."""
        # Code -1, taken from the end, stays -1.
        self.codes[rows] = np.array([*self.numbers(found.places), -1], np.int32)[found.codes]
        self.instants[rows] = found.instants_ms
        self.ordering[rows] = found.ordering
        self.count(found.counts)

    def count(self, counts: ProbeCounts) -> None:
        """Note what it took."""
        self._counts += counts

    def numbers(self, places: Iterable[FileGroupId]) -> list[int]:
        """The number of each place here."""
        return [self._places.setdefault(place, len(self._places)) for place in places]

    def locations(self) -> Locations:
        """All that came in."""
        return Locations(self.codes, self.instants, self.ordering, tuple(self._places), self._counts)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Looks for keys in the tables of several shards, and fills in what is `found`.

    `order` has the numbers of the keys by shard; `bounds` says where those of each shard begin and end.
    """

    found: _Found
    loaded: Sequence[_Tables]
    order: Int64s
    bounds: Int64s
    numbers: Int32s
    """Of the places of all shards: numbers of what is found."""

    @classmethod
    def of(cls, loaded: Sequence[_Tables], found: _Found, order: Int64s, bounds: Int64s) -> _Probe:
        """What looks for keys in the tables of their shards."""
        numbers = found.numbers(place for shard in loaded for place in shard.tables.places)
        return cls(found, loaded, order, bounds, np.array(numbers, np.int32))

    def run(self, prints: UInt32s, *, threads: int | None) -> None:
        """Does so, by the fingerprints of all keys, of many on threads."""
        shards = [each.tables for each in self.loaded]
        numbers_of = np.cumsum([0, *(len(shard.places) for shard in shards)])
        found = (self.found.codes, self.found.instants, self.found.ordering)

        def find(span: tuple[int, int]) -> int:
            return find_entries(shards, self.numbers, numbers_of, prints, self.order, self.bounds, span, found)

        hits = sum(map_tasks(_spans(len(self.order)), find, threads=threads))
        cached, built = (sum(getattr(each, name) for each in self.loaded) for name in ("cached", "built"))
        self.found.count(ProbeCounts(len(self.order), hits, len(shards), cached=cached, built=built))
