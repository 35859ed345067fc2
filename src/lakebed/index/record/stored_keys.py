"""Record keys that a large write added or removed, staged in files by shard of the record index.

So many keys never fit into one process: the entries of a shard are made from its own keys alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from lakebed.engine.exchange import Label, Run, Shelf, StagedFile, runs
from lakebed.format.arrow import ArrowArray
from lakebed.format.java import shards_of
from lakebed.format.metadata.keys import data_partition_of_group, group_file_id
from lakebed.index.record.entries import KeyChanges, record_index_shards
from lakebed.kernels.ordering import group_rows
from lakebed.metadata.entries import Entries
from lakebed.model.index import IndexWindow

_KEY, _ORDERING = "key", "ordering"


@dataclass(frozen=True, slots=True)
class ShardSets:
    """The shards of a data partition: those of `whole` for a global index, else the partition's own.

    Partitions outside the `window` have none.
    """

    whole: tuple[str, ...] = ()
    by_partition: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_partitioned: bool = False
    shards_of_new: int = 1
    window: IndexWindow | None = None

    def __call__(self, partition: str) -> tuple[str, ...]:
        """File ids of the shards of a data partition, in shard order; for a new partition those that it will get."""
        if not self.is_partitioned:
            return self.whole
        if self.window is not None and not self.window.holds(partition):
            return ()
        new = (group_file_id("record_index", number, partition) for number in range(self.shards_of_new))
        return self.by_partition.get(partition) or tuple(new)


def shard_sets(
    file_ids: Sequence[str], *, is_partitioned: bool, shards_of_new: int = 1, window: IndexWindow | None = None
) -> ShardSets:
    """The shards of an index, grouped by data partition; `file_ids` are in shard order."""
    if not is_partitioned:
        return ShardSets(whole=tuple(file_ids))
    found: dict[str, tuple[str, ...]] = {}
    for file_id in file_ids:
        partition = data_partition_of_group(file_id) or ""
        found[partition] = (*found.get(partition, ()), file_id)
    return ShardSets(by_partition=found, is_partitioned=True, shards_of_new=shards_of_new, window=window)


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Keys added to a file group or removed from it. Labels: number of the shard, whether removed."""

    partition: str
    file_id: str
    shards: tuple[str, ...]
    file: StagedFile


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The keys of all file groups of a write."""

    shelf: Shelf
    groups: tuple[StoredKeys, ...]

    def by_shard(self, *, instant_ms: int, has_ordering: bool = False) -> dict[str, StoredKeyEntries]:
        """The entries of each shard that has any, by file id; for the arguments see `record_index_shards`."""
        found: dict[str, list[tuple[StoredKeys, Run, Run]]] = {}
        for group in self.groups:
            of_label = runs([group.file])
            for number in sorted({number for number, _ in of_label}):
                pair = of_label.get((number, False), Run(())), of_label.get((number, True), Run(()))
                found.setdefault(group.shards[number], []).append((group, *pair))
        sizes = self._bytes_by_shard()
        return {
            shard: StoredKeyEntries(self.shelf, shard, tuple(parts), sizes[shard], instant_ms, has_ordering)
            for shard, parts in sorted(found.items())
        }

    def _bytes_by_shard(self) -> Counter[str]:
        sizes: Counter[str] = Counter()
        for group in self.groups:
            for (number, _), (first, last) in zip(group.file.labels, pairwise(group.file.starts), strict=True):
                sizes[group.shards[number]] += (last - first) * group.file.bytes // group.file.rows
        return sizes


@dataclass(frozen=True, slots=True)
class StoredKeyEntries:
    """The entries of one shard, not read yet: per file group, runs of added and of removed keys."""

    shelf: Shelf
    shard: str
    parts: tuple[tuple[StoredKeys, Run, Run], ...]
    bytes: int
    instant_ms: int
    has_ordering: bool

    def load(self) -> Entries:
        """Reads the entries."""
        found = record_index_shards(
            self._changes(), lambda _: (self.shard,), instant_ms=self.instant_ms, has_ordering=self.has_ordering
        )
        return found.get(self.shard, Entries.of({}))

    def _changes(self) -> Iterator[KeyChanges]:
        for group, came, left in self.parts:
            here, gone = self._columns(came), self._columns(left)
            yield KeyChanges(group.partition, group.file_id, here.get(_KEY), gone.get(_KEY), here.get(_ORDERING))

    def _columns(self, run: Run) -> dict[str, ArrowArray]:
        tables = list(self.shelf.read(run.cut(0, len(run))))
        table = pa.concat_tables(tables) if tables else pa.table({})
        return {name: table[name].combine_chunks() for name in table.column_names}


def store_keys(shelf: Shelf, change: KeyChanges, shards: tuple[str, ...]) -> StoredKeys | None:
    """Stages the keys of a file group for the commit; None if there are none."""
    came, left = _keys_table(change.inserted, change.ordering), _keys_table(change.deleted)
    parts = [*_by_shard(came, len(shards), left=False), *_by_shard(left, len(shards), left=True)]
    if not parts:
        return None
    table = pa.concat_tables([keys for _, keys in parts], promote_options="default")
    starts = np.cumsum([0, *(keys.num_rows for _, keys in parts)]).tolist()
    file = shelf.put(table, [label for label, _ in parts], starts)
    return StoredKeys(change.partition, change.file_id, shards, file)


def _keys_table(keys: ArrowArray | None, ordering: ArrowArray | None = None) -> pa.Table:
    columns = {_KEY: pa.array([], pa.string()) if keys is None else keys}
    return pa.table(columns if ordering is None else {**columns, _ORDERING: ordering}).combine_chunks()


def _by_shard(keys: pa.Table, shards: int, *, left: bool) -> Iterator[tuple[Label, pa.Table]]:
    if not keys.num_rows:
        return
    order, bounds = group_rows(shards_of(keys[_KEY].combine_chunks(), shards), shards)
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        yield (number, left), keys.take(pa.array(order[bounds[number] : bounds[number + 1]]))
