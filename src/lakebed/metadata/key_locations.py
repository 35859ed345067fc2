"""Where many record keys live: each shard of the record index that they hash to is probed once, shards on threads.

A shard is a base file and log files on top, each with a table of its keys (see `shard_cache`). Keys are looked for in
the newest file first; what it says of a key, that it is there or that it is deleted, counts. For a few keys the entries
are looked up where they lie, which reads a few blocks of a shard instead of all of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.engine.threads import map_tasks
from lakebed.format.arrow import ArrowArray
from lakebed.format.grouping import group_rows
from lakebed.format.java_hash import shards_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.format.metadata.record_index import decode_record_index_value
from lakebed.metadata.key_table import GONE, KeyTable, UInt32s, build_key_table, find_entries, fingerprints
from lakebed.metadata.record_index import RECORD_INDEX, KeyShards, is_partitioned
from lakebed.metadata.shard import load_whole_shard, open_file, parts_of
from lakebed.metadata.shard_cache import ShardCache, file_identity, find_or_build
from lakebed.metadata.table import ROOT, ShardFiles
from lakebed.model.files import FileGroupId, FileSlice

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

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
    """Every place of each of `keys`: numbers of keys, ascending, and where those live. A global index has one each."""
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
    return _probe_tables(files, fingerprints(keys, cache.seed), np.arange(len(keys)), cache)


def _probe_tables(files: ShardFiles, prints: UInt32s, rows: Int64s, cache: ShardCache) -> Locations:
    """Where the keys with these numbers live, of all whose fingerprints are given."""
    found = _Found(len(rows))
    open_keys = np.arange(len(rows))
    hits = misses = 0
    for table, was_cached in _tables(files, cache):
        hits, misses = hits + was_cached, misses + (not was_cached)
        entries = find_entries(table, prints, rows[open_keys])
        found.add_entries(open_keys, entries, table)
        open_keys = open_keys[entries == 0]
        if not len(open_keys):
            break
    located = found.locations()
    return replace(located, counts=replace(located.counts, keys=len(rows), shards=1, cached=hits, built=misses))


def _shard_set(metadata: KeyShards, partition: str | None) -> tuple[str, ...]:
    """File ids of the shards for keys of a data partition, in shard order; None: all."""
    file_ids = (file_slice.group.file_id for file_slice in metadata.slices(RECORD_INDEX))
    return tuple(f for f in file_ids if partition is None or data_partition_of_group(f) == partition)


def _locate(metadata: KeyShards, keys: ArrowArray, shards: tuple[str, ...], cache: ShardCache) -> Locations:
    """Where keys live, by the shards that they hash to."""
    by_id = {files.file_slice.group.file_id: files for files in metadata.shard_files(RECORD_INDEX) or ()}
    order, bounds = group_rows(_hashed(keys, partial(shards_of, shards=len(shards))), len(shards))
    tasks = [
        _Probe(metadata, shard, by_id.get(shard), keys, order[first:last])
        for shard, first, last in zip(shards, bounds, bounds[1:], strict=False)
        if first < last
    ]
    wanted = any(not task.is_few for task in tasks)
    prints = _hashed(keys, partial(fingerprints, seed=cache.seed)) if wanted else np.empty(0, np.uint32)
    found = _Found(len(keys))
    threads = 1 if len(keys) <= _FEW_KEYS and metadata.is_near else None
    run = partial(_run_probe, prints=prints, cache=cache)
    for task, located in zip(tasks, map_tasks(tasks, run, threads=threads), strict=True):
        found.add(task.rows, located)
    return found.locations()


def _hashed(keys: ArrowArray, hash_some: Callable[[ArrowArray], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """What becomes of keys one by one, of many on threads."""
    size = max(_FEW_KEYS, -(-len(keys) // (os.cpu_count() or 1)))
    parts = [keys.slice(start, size) for start in range(0, len(keys), size)]
    return hash_some(keys) if len(parts) <= 1 else np.concatenate([*map_tasks(parts, hash_some)])


@dataclass(frozen=True, slots=True)
class _Probe:
    """The `rows` of keys to look for in one shard. `files` is None if only the metadata table can read it."""

    metadata: KeyShards
    shard: str
    files: ShardFiles | None
    keys: ArrowArray
    rows: Int64s

    @property
    def is_few(self) -> bool:
        """Whether the keys are looked up one by one."""
        if self.files is None:
            return True
        base, logs = self.files.file_slice.base, self.files.file_slice.logs
        size = sum(file.size or 0 for file in ((base,) if base else ()) + logs)
        few = max(POINT_KEYS_MAX + size // POINT_BYTES, _KEYS_OF_SMALL_MAX if size <= SMALL_BYTES else 0)
        return len(self.rows) <= few


def _run_probe(probe: _Probe, *, prints: UInt32s, cache: ShardCache) -> Locations:
    if probe.files is None or probe.is_few:
        return _look_up(probe)
    return _probe_tables(probe.files, prints, probe.rows, cache)


def _look_up(probe: _Probe) -> Locations:
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


def _tables(files: ShardFiles, cache: ShardCache) -> list[tuple[KeyTable, bool]]:
    """The tables of a shard's files, newest first, and whether the cache had them."""
    tables = [
        find_or_build(cache, _identity(files, part, completed_at), partial(_build, files, part))
        for part, completed_at in reversed([*zip(parts_of(files.file_slice), files.completions, strict=True)])
    ]
    if any(table.replaces_others for table, _ in tables):
        # Blocks of some log files are hidden by those of another: only all together say what counts.
        logs = load_whole_shard(files.storage, replace(files.file_slice, base=None), root=ROOT)
        base = tables[-1:] if files.file_slice.base else []
        return [(build_key_table(logs.layers(), cache.seed), False), *base]
    return tables


def _identity(files: ShardFiles, part: FileSlice, completed_at: str) -> str | None:
    file = part.base or part.logs[0]
    return file_identity(files.storage, part.path(file.name), file.size, completed_at)


def _build(files: ShardFiles, part: FileSlice, seed: bytes) -> KeyTable:
    """The table of one file."""
    opened = open_file(files.storage, part, root=ROOT)
    return build_key_table(opened.layers, seed, replaces_others=bool(opened.replaced))


class _Found:
    """Locations of keys as they come in, place numbers of several sources made one."""

    def __init__(self, count: int) -> None:
        self._codes = np.full(count, -1, np.int32)
        self._instants = np.full(count, -1, np.int64)
        self._ordering = np.full(count, NO_ORDERING)
        self._places: dict[FileGroupId, int] = {}
        self._counts = ProbeCounts()

    def add(self, rows: Int64s, found: Locations) -> None:
        """Take over the locations of the keys `rows`."""
        self._codes[rows] = self._numbers(found.places)[found.codes]
        self._instants[rows] = found.instants_ms
        self._ordering[rows] = found.ordering
        self._counts += found.counts

    def add_entries(self, rows: Int64s, entries: UInt32s, table: KeyTable) -> None:
        """Take over what a table says of the keys `rows`."""
        hit = np.flatnonzero((entries != 0) & (entries != GONE))
        numbers = entries[hit].astype(np.int64) - 1
        self._codes[rows[hit]] = self._numbers(table.places)[table.place_of[numbers]]
        self._instants[rows[hit]] = table.instants_ms[numbers]
        if len(table.ordering):
            self._ordering[rows[hit]] = table.ordering[numbers]
        self._counts += ProbeCounts(hits=len(hit))

    def _numbers(self, places: tuple[FileGroupId, ...]) -> Int32s:
        """The number of each place here; code -1, taken from the end, stays -1."""
        numbers = [self._places.setdefault(place, len(self._places)) for place in places]
        return np.array([*numbers, -1], np.int32)

    def locations(self) -> Locations:
        """All that came in."""
        return Locations(self._codes, self._instants, self._ordering, tuple(self._places), self._counts)
