"""Planning a large write, whose rows are staged in files.

plan_split      rows are staged in buckets: all rows of a key in one, and few shards of the record index in each
TagLot          one task tags all rows of some buckets, and stages them by target file group
plan_staged     assigns ranges of staged rows to file groups; the driver handles only counts
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.engines import InProcess
from lakebed.engine.exchange import Label, RowRange, Run, Shelf, Split, StagedFile, runs
from lakebed.format.arrow import ArrowArray
from lakebed.format.java import shards_of
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.key_batches import ProbeCounts, default_cache
from lakebed.index.keys import KEY_INDEX, find_key_index
from lakebed.kernels.buffers import Int64s
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.index import IndexWindow
from lakebed.model.instant import InstantTime
from lakebed.model.words import RECORD_KEY
from lakebed.table import TableState
from lakebed.write.assign import FileIds, Room, fill_files
from lakebed.write.operations import Operation
from lakebed.write.plan import Finder, TagRule, WritePlan, inserts_by_partition, new_keys, replaced_by, with_partition
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.staging import Staged
from lakebed.write.tag.deleted import spaces_without_deletes
from lakebed.write.tag.files import NO_TAGS, Tagged, rows_by_partition
from lakebed.write.tag.index import KeyIndex, tag_by_index
from lakebed.write.tag.window import tag_in_window
from lakebed.write.values import DELETED, IS_DELETE, IS_INSERT, POSITION, WriteContext, WriteTask

_BUCKETS, _BUCKETS_OF_PARTITION = 256, 16
"""Minimum number of buckets, in total and per partition. A task takes as many as fit, but always whole ones."""
_SHORT_MAX = 2**15 - 1


def plan_split(state: TableState, operation: Operation, rule: TagRule, arrangement: Arrangement) -> Split:
    """How rows are staged: by key, if keys are looked up or combined; else by partition."""
    if not operation.finds_keys and not arrangement.combines:
        return split_inserts
    metadata = find_key_index(state) if operation.finds_keys and rule.by_index else None
    if metadata is None:
        return KeyBuckets(arrangement.by_partition)
    file_ids = (file_slice.group.file_id for file_slice in metadata.slices(KEY_INDEX))
    # File ids of a global index contain no partition.
    return KeyBuckets(arrangement.by_partition, Counter(data_partition_of_group(id_) or "" for id_ in file_ids))


def split_inserts(rows: pa.Table) -> Iterable[tuple[Label, Int64s]]:
    """Row numbers of inserts, by partition."""
    return sorted(inserts_by_partition(rows).items())


@dataclass(frozen=True, slots=True)
class KeyBuckets:
    """Splits rows by the hash of the record index, so that a bucket is a shard or a part of one.

    All rows of a key are in one bucket; with `by_partition`, all rows of a key and partition. `shards` is the number
    of shards by partition; without `by_partition`, the total under "".
    """

    by_partition: bool
    shards: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, rows: pa.Table) -> Iterator[tuple[Label, Int64s]]:
        """Row numbers by bucket number, or by partition and bucket number."""
        keys = rows[RECORD_KEY].combine_chunks()
        if not self.by_partition:
            yield from _numbered(keys, self.shards.get("", 1), _BUCKETS)
            return
        for partition, numbers in sorted(rows_by_partition(rows).items()):
            here = keys.take(pa.array(numbers))
            for bucket, some in _numbered(here, self.shards.get(partition, 1), _BUCKETS_OF_PARTITION):
                yield (partition, bucket), numbers[some]


def _numbered(keys: ArrowArray, shards: int, least: int) -> Iterator[tuple[int, Int64s]]:
    """The rows of each bucket that has any; the buckets of a shard have consecutive numbers."""
    share = -(-least // shards)
    hashed = shards_of(keys, shards * share)
    numbers = hashed % shards * share + hashed // shards
    if shards * share <= _SHORT_MAX:
        numbers = numbers.astype(np.int16)  # Sorts five times as fast.
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        yield int(numbers[order[start]]), order[start:end]


@dataclass(frozen=True, slots=True)
class TaggedLot:
    """The tagged rows of some buckets.

    Labels in `rows` are slice numbers, or partitions of new rows; positions are a column. `partitions` are those of all
    incoming rows. `new_keys` are as in `WritePlan`.
    """

    rows: StagedFile
    partitions: tuple[str, ...]
    counts: ProbeCounts | None
    new_keys: StagedFile | None


@dataclass(frozen=True, slots=True)
class TagLot:
    """Combines the rows of some buckets, tags them unless `find` is None, and stages them by target."""

    shelf: Shelf
    arrangement: Arrangement
    find: Finder | None

    def __call__(self, lot: tuple[RowRange, ...]) -> TaggedLot:
        """Tags the rows; each call writes new files."""
        rows = pa.concat_tables(self.shelf.read(lot)).unify_dictionaries()
        rows = self.arrangement.combined(rows)
        tagged = self.find(rows) if self.find else Tagged(rows, NO_TAGS)
        inserts = inserts_by_partition(tagged.rows, tagged.tags)
        keys = None if tagged.counts is None else new_keys(tagged, inserts)
        return TaggedLot(
            self._stage(tagged, inserts),
            tuple(rows_by_partition(rows)),
            tagged.counts,
            self.shelf.put(keys, [RECORD_KEY], [0, keys.num_rows]) if keys is not None and keys.num_rows else None,
        )

    def _stage(self, tagged: Tagged, inserts: Mapping[str, Int64s]) -> StagedFile:
        tags = tagged.tags
        order = np.argsort(tags.targets, kind="stable")
        targets, counts = np.unique(tags.targets, return_counts=True)
        numbers = np.concatenate([tags.rows[order], *inserts.values()])
        positions = np.full(len(numbers), -1, np.int64)
        positions[: len(order)] = tags.positions[order]
        rows = tagged.rows.combine_chunks().take(pa.array(numbers)).append_column(POSITION, pa.array(positions))
        starts = np.cumsum([0, *counts, *map(len, inserts.values())]).tolist()
        return self.shelf.put(rows, [*targets.tolist(), *inserts], starts)


def tag_in_worker(rows: pa.Table, index: KeyIndex, window: IndexWindow | None = None) -> Tagged:
    """Tags rows through the index, with the key-table cache of the worker's host."""
    index = replace(index, cache=default_cache())
    return tag_by_index(rows, index) if window is None else tag_in_window(rows, index, window)


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The staged rows of one file group. Generated keys contain the number of the `task`."""

    shelf: Shelf
    arrangement: Arrangement
    instant: InstantTime
    task: int
    partition: str
    updates: tuple[RowRange, ...] = ()
    inserts: tuple[RowRange, ...] = ()

    @property
    def count(self) -> int:
        """Number of rows."""
        return sum(each.rows for each in (*self.updates, *self.inserts))

    def read(self) -> pa.Table:
        """The rows, with positions and the partition path."""
        tables = (with_partition(table, self.partition) for table in self._tables())
        # Only files with moved rows have a column of deletes.
        rows = pa.concat_tables(tables, promote_options="default")
        rows = self.arrangement.sorted(self.arrangement.with_keys(rows, self.instant, self.task))
        if IS_DELETE in rows.column_names and rows[IS_DELETE].null_count:
            at = rows.column_names.index(IS_DELETE)
            rows = rows.set_column(at, rows.schema.field(at), pc.fill_null(rows[IS_DELETE], False))
        if POSITION not in rows.column_names:
            rows = rows.append_column(POSITION, pa.array(np.full(rows.num_rows, -1)))
        is_insert = np.arange(rows.num_rows) >= sum(each.rows for each in self.updates)
        is_insert |= rows[POSITION].to_numpy() == DELETED
        return rows.append_column(IS_INSERT, pa.array(is_insert))

    def _tables(self) -> Iterator[pa.Table]:
        yield from self.shelf.read(self.updates)
        yield from self.shelf.read(self.inserts)


def plan_staged(
    staged: Staged,
    lots: Sequence[TaggedLot],
    operation: Operation,
    context: WriteContext,
    slices: Sequence[FileSlice],
    arrangement: Arrangement,
    *,
    room: Room,
    new_file_id: FileIds,
) -> WritePlan:
    """Plans the tasks that write staged rows. Labels are slice numbers, or partitions of new rows."""
    files, partitions = staged.files, {label for file in staged.files for label in file.labels}
    counts = [lot.counts for lot in lots if lot.counts is not None]
    keys = tuple(lot.new_keys for lot in lots if lot.new_keys is not None)
    if lots:
        files, partitions = tuple(lot.rows for lot in lots), {name for lot in lots for name in lot.partitions}

    # Row keys are not known here, so files whose logs delete keys are left out.
    room = replace(room, spaces=spaces_without_deletes(room.spaces, slices, context, InProcess()))
    tasks = tuple(
        WriteTask(
            context,
            number,
            share.group,
            share.file_slice,
            GroupRows(staged.shelf, arrangement, context.instant, number, share.group.partition, *share.rows),
            "",
            has_inserts=bool(share.rows[1]),
            is_blind=not operation.finds_keys,
        )
        for number, share in enumerate(_shares(files, slices, room, new_file_id))
    )
    return WritePlan(
        operation,
        tasks,
        replaced_by(operation, slices, partitions),
        staged.engine,
        sum(counts, ProbeCounts()) if counts else None,
        keys if counts else None,
        staged.shelf,
    )


@dataclass(frozen=True, slots=True)
class _Share:
    """The updates and inserts of one file group."""

    group: FileGroupId
    file_slice: FileSlice | None
    rows: tuple[tuple[RowRange, ...], tuple[RowRange, ...]]


def _shares(
    files: Iterable[StagedFile], slices: Sequence[FileSlice], room: Room, new_file_id: FileIds
) -> Iterator[_Share]:
    """Updates go to the file group of their key; inserts to small files, then to new file groups."""
    by_label = runs(files)
    targets = {label: run for label, run in by_label.items() if isinstance(label, int)}
    inserts = {label: run for label, run in by_label.items() if isinstance(label, str)}
    counted = {partition: range(len(run)) for partition, run in inserts.items()}
    filled, new = fill_files(counted, room.spaces, room.rows_per_file)
    for target in sorted(targets.keys() | {target for target, part in filled.items() if len(part)}):
        file_slice, part = slices[target], filled.get(target, range(0))
        updates = targets.get(target, Run(()))
        added = inserts[file_slice.group.partition].cut(part.start, part.stop) if len(part) else ()
        yield _Share(file_slice.group, file_slice, (updates.cut(0, len(updates)), added))
    for partition, parts in new.items():
        for part in parts:
            group = FileGroupId(partition, new_file_id())
            yield _Share(group, None, ((), inserts[partition].cut(part.start, part.stop)))
