"""Locates many record keys at once: one kernel probes the shards of the record index, on threads.

A shard is a base file with log files on top. Each file has a key table (see `shard_cache`), and the newest file that
has an entry or a delete of a key decides. A few keys of a shard are looked up in the files instead, which reads a few
blocks rather than all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import map_tasks, start
from lakebed.format.arrow import ArrowArray
from lakebed.format.java import shards_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.format.metadata.record_index import decode_record_index_value
from lakebed.index.record.key_table import HashedKeys, KeyTable, KeyTables, build_key_table, fingerprints
from lakebed.index.record.probe import RECORD_INDEX, KeyShards, is_partitioned
from lakebed.index.record.shard_cache import ShardCache, file_identity, find_or_build
from lakebed.kernels.buffers import Int32s, Int64s, UInt32s
from lakebed.kernels.key_table import find_entries
from lakebed.kernels.ordering import group_rows
from lakebed.metadata.shard import load_whole_shard, open_file
from lakebed.metadata.table import ROOT, ShardFiles
from lakebed.model.files import BaseFile, FileGroupId, LogFile

POINT_KEYS_MAX = 16
"""Maximum number of keys per shard to look up one by one, plus one per `POINT_BYTES` of the shard.

A lookup reads a block, in half a millisecond or more; building the table of a shard of 100,000 keys takes 35 ms.
"""
POINT_BYTES = 8 << 20
SMALL_BYTES, _KEYS_OF_SMALL_MAX = 1 << 19, 256
"""Size in bytes of a small shard, and the maximum number of keys to look up in it: faster than building its tables."""
_FEW_KEYS = 1000
"""Number of keys up to which threads do not help, unless storage is remote; also the minimum per thread."""


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Counters of locating keys: keys asked for and found, shards probed, and their files by how they were read."""

    keys: int = 0
    hits: int = 0
    shards: int = 0
    cached: int = 0
    """Files whose table was cached."""
    built: int = 0
    """Files whose table was built."""
    point_keys: int = 0
    """Keys that were looked up one by one."""
    late: int = 0
    """Incoming rows dropped because the table has newer ones."""
    records_read: int = 0
    """Incoming rows whose stored row was read, to compare ordering values."""
    outside: int = 0
    """Incoming rows for partitions outside the window of the index."""

    @property
    def uses_tables(self) -> bool:
        """Whether key tables were probed."""
        return self.cached + self.built > 0

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        return ProbeCounts(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Locations:
    """Locations of keys: key i is in file group `places[codes[i]]` since `instants_ms[i]`; code -1: it has no entry.

    `ordering[i]` is a lower bound of its row's ordering value, `NO_ORDERING` if the entry has none. Some of the places
    may hold none of the keys.
    """

    codes: Int32s
    instants_ms: Int64s
    ordering: Int64s
    places: tuple[FileGroupId, ...]
    counts: ProbeCounts = field(default_factory=ProbeCounts)

    def take(self, rows: Int64s) -> Locations:
        """The locations of the keys with these numbers, in that order."""
        return replace(self, codes=self.codes[rows], instants_ms=self.instants_ms[rows], ordering=self.ordering[rows])


def locate_keys(
    metadata: KeyShards, keys: ArrowArray, partitions: ArrowArray | None = None, *, cache: ShardCache
) -> Locations:
    """The location of each of `keys` (strings without nulls).

    A partitioned index needs the data partition of each key: `partitions`, a dictionary array.
    """
    if not is_partitioned(metadata):
        return _locate(metadata, keys, _shard_set(metadata, None), cache)
    assert partitions is not None, "a partitioned record index needs partitions"
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
    """Locations of `keys` that all hash to one shard. Runs in this process or in a worker."""
    found = _Found(len(keys))
    probe = _Probe.of([_load_tables(files, cache)], found, np.arange(len(keys)), np.array([0, len(keys)]))
    probe.run(fingerprints(keys, cache.seed), threads=1)
    return found.locations()


def _shard_set(metadata: KeyShards, partition: str | None) -> tuple[str, ...]:
    """File ids of the shards of a data partition (None: all shards), in shard order."""
    file_ids = (file_slice.group.file_id for file_slice in metadata.slices(RECORD_INDEX))
    return tuple(f for f in file_ids if partition is None or data_partition_of_group(f) == partition)


def _locate(metadata: KeyShards, keys: ArrowArray, shards: tuple[str, ...], cache: ShardCache) -> Locations:
    """Locations of keys, given all shards of their set."""
    by_id = {files.file_slice.group.file_id: files for files in metadata.shard_files(RECORD_INDEX) or ()}
    # With that many keys, some shard is surely probed by tables: compute both hashes in one pass.
    are_many = len(keys) > sum(_few_max(by_id.get(shard)) for shard in shards)
    hashed, held = None, _Held(cache)
    if are_many:
        # Which tables are in memory does not depend on the hashes: find out meanwhile.
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
    """Hashes keys, many of them on threads; calls `meanwhile` on this thread until these are done."""
    hashed = HashedKeys.of(keys, shards, seed)
    begun = start(_spans(len(keys)), hashed.fill)
    meanwhile()
    for part in begun:
        part.result()
    return hashed


def _spans(count: int) -> list[tuple[int, int]]:
    """Splits so many keys into spans, one per core unless they are few."""
    size = max(_FEW_KEYS, -(-count // (os.cpu_count() or 1)))
    return [(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True, slots=True)
class _Keys:
    """The `rows` of keys to locate in one shard. `files` is None if only the metadata table can read the shard."""

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
    """Maximum number of keys to look up one by one in a shard; no limit if only the metadata table can read it."""
    if files is None:
        return math.inf
    base, logs = files.file_slice.base, files.file_slice.logs
    size = sum(file.size or 0 for file in ((base,) if base else ()) + logs)
    return max(POINT_KEYS_MAX + size // POINT_BYTES, _KEYS_OF_SMALL_MAX if size <= SMALL_BYTES else 0)


def _look_up(probe: _Keys) -> Locations:
    """Locations of a few keys, read from the blocks that hold their entries."""
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
    """The key tables of a shard, and how many of them were cached or built."""

    tables: KeyTables
    cached: int
    built: int


class _Held:
    """Remembers which shards have all their tables in memory."""

    def __init__(self, cache: ShardCache) -> None:
        self.cache = cache
        self._known: dict[FileGroupId, _Tables | None] = {}

    def look(self, shards: Iterable[ShardFiles]) -> None:
        """Looks up several shards."""
        for files in shards:
            self.find(files)

    def find(self, files: ShardFiles) -> _Tables | None:
        """The tables of a shard, if all are in memory."""
        group = files.file_slice.group
        if group not in self._known:
            self._known[group] = _held_tables(_Parts.of(files, self.cache), self.cache)
        return self._known[group]


def _load_all(shards: Sequence[_Keys], held: _Held, threads: int | None) -> list[_Tables]:
    """The tables of shards; those that must be read or built are loaded on threads."""
    found = [held.find(_files_of(keys)) for keys in shards]
    missing = [_files_of(keys) for keys, tables in zip(shards, found, strict=True) if tables is None]
    loaded = map_tasks(missing, partial(_load_tables, cache=held.cache), threads=threads)
    return [next(loaded) if tables is None else tables for tables in found]


def _files_of(keys: _Keys) -> ShardFiles:
    """The files of the shard of many keys."""
    assert keys.files is not None, "keys of a shard without files count as few"
    return keys.files


@dataclass(frozen=True, slots=True)
class _Parts:
    """The files of a shard, newest first, with their cache identities; tables of the `older` ones are in memory."""

    files: tuple[BaseFile | LogFile, ...]
    identities: tuple[str, ...] | None
    older: KeyTables | None

    @classmethod
    def of(cls, files: ShardFiles, cache: ShardCache) -> _Parts:
        """The files of a shard."""
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
        """The files whose tables are still missing."""
        return self.files[: len(self.files) - (len(self.older.tables) if self.older is not None else 0)]

    def join(self, newer: Sequence[KeyTable], cache: ShardCache) -> KeyTables:
        """All tables joined; the cache keeps them joined for the next call."""
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
    """The tables of a shard in which blocks of a log file replace those of others: its log files get one joint table.

    Of the tables `found`, newest first, only that of the base file is used.
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
    """Collects locations of keys from several sources, with common place numbers."""

    def __init__(self, count: int) -> None:
        self.codes = np.full(count, -1, np.int32)
        self.instants = np.full(count, -1, np.int64)
        self.ordering = np.full(count, NO_ORDERING)
        self._places: dict[FileGroupId, int] = {}
        self._counts = ProbeCounts()

    def add(self, rows: Int64s, found: Locations) -> None:
        """Adds the locations of the keys `rows`."""
        # Code -1 indexes the last element, which is -1.
        self.codes[rows] = np.array([*self.numbers(found.places), -1], np.int32)[found.codes]
        self.instants[rows] = found.instants_ms
        self.ordering[rows] = found.ordering
        self.count(found.counts)

    def count(self, counts: ProbeCounts) -> None:
        """Adds to the counters."""
        self._counts += counts

    def numbers(self, places: Iterable[FileGroupId]) -> list[int]:
        """The common number of each place."""
        return [self._places.setdefault(place, len(self._places)) for place in places]

    def locations(self) -> Locations:
        """All locations collected."""
        return Locations(self.codes, self.instants, self.ordering, tuple(self._places), self._counts)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Probes the tables of several shards and adds the locations to `found`.

    `order` has the numbers of the keys, sorted by shard; `bounds` has the start and end of each shard in it.
    """

    found: _Found
    loaded: Sequence[_Tables]
    order: Int64s
    bounds: Int64s
    numbers: Int32s
    """For each place of all shards, its common number."""

    @classmethod
    def of(cls, loaded: Sequence[_Tables], found: _Found, order: Int64s, bounds: Int64s) -> _Probe:
        """A probe of these shards."""
        numbers = found.numbers(place for shard in loaded for place in shard.tables.places)
        return cls(found, loaded, order, bounds, np.array(numbers, np.int32))

    def run(self, prints: UInt32s, *, threads: int | None) -> None:
        """Probes with the fingerprints of all keys, many of them on threads."""
        shards = [each.tables for each in self.loaded]
        numbers_of = np.cumsum([0, *(len(shard.places) for shard in shards)])
        found = (self.found.codes, self.found.instants, self.found.ordering)

        def find(span: tuple[int, int]) -> int:
            return find_entries(shards, self.numbers, numbers_of, prints, self.order, self.bounds, span, found)

        hits = sum(map_tasks(_spans(len(self.order)), find, threads=threads))
        cached, built = (sum(getattr(each, name) for each in self.loaded) for name in ("cached", "built"))
        self.found.count(ProbeCounts(len(self.order), hits, len(shards), cached=cached, built=built))
