"""Planning a write: from prepared rows and a snapshot to one task per file group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import Engine, InProcess
from lakebed.engine.exchange import Shelf, StagedFile
from lakebed.index.key_batches import ProbeCounts
from lakebed.kernels.buffers import Int64s
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, TableType
from lakebed.read.file_slice import SliceTask
from lakebed.transaction.conflicts import WriteKind, WriteSet
from lakebed.write.assign import Assignment, FileIds, Room, Space, assign_rows, logs_inserts
from lakebed.write.operations import Operation, Replaces
from lakebed.write.rows.columns import joined, take_rows
from lakebed.write.tag.deleted import free_rows
from lakebed.write.tag.files import (
    NO_TAGS,
    Candidate,
    Tagged,
    Tags,
    all_rows,
    find_keys,
    join_finds,
    plan_finds,
    rows_by_partition,
)
from lakebed.write.values import IS_DELETE, IS_INSERT, POSITION, WriteContext, WriteTask

_TAKEN_BYTES = 256 << 20
"""Bytes of rows up to which they are sorted by file group at once."""


@dataclass(frozen=True, slots=True)
class TagRule:
    """How keys are looked up: `everywhere` or in their own partition, `by_index` or in files.

    Without an index, `prune` excludes files by their footers first. An index that `is_global` has a key in at most one
    partition; rows whose partition changed are moved if `moves`.
    """

    everywhere: bool = False
    by_index: bool = False
    is_global: bool = False
    prune: bool = True
    moves: bool = True


NO_SPACES: Mapping[str, Sequence[Space]] = {}
Finder = Callable[[pa.Table], Tagged]
"""Tags rows with the slices of a snapshot that hold their keys."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The tasks of a write, their engine, and the file groups that it replaces. A large write stages on `shelf`."""

    operation: Operation
    tasks: tuple[WriteTask, ...]
    replaced: Mapping[str, tuple[str, ...]]
    engine: Engine
    counts: ProbeCounts | None = None
    new_keys: Callable[[], pa.Table] | tuple[StagedFile, ...] | None = None
    """Record keys and partition paths of rows that are not in the record index; None if it was not used."""
    shelf: Shelf | None = None

    @property
    def appends(self) -> tuple[WriteTask, ...]:
        """Tasks whose log files this process writes in batches."""
        return tuple(task for task in self.tasks if isinstance(self.engine, InProcess) and is_append(task))

    @property
    def uses_tables(self) -> bool:
        """Whether keys were looked up in key tables."""
        return self.counts is not None and self.counts.uses_tables

    @property
    def write_set(self) -> WriteSet:
        """The write set, for the conflict check."""
        appended: set[FileGroupId] = set()
        rewritten: set[FileGroupId] = set()
        added: set[FileGroupId] = set()
        for task in self.tasks:
            into = added if task.file_slice is None else appended if is_append(task) else rewritten
            into.add(task.group)
        replaced = self.replaced_groups
        whole = frozenset(self.replaced) if self.operation.replaces is not Replaces.NOTHING else frozenset()
        kind = WriteKind.OVERWRITE if self.operation.replaces is not Replaces.NOTHING else WriteKind.INSERT
        if appended or (rewritten and kind is WriteKind.INSERT):
            kind = WriteKind.UPSERT
        return WriteSet(kind, frozenset(appended), frozenset(rewritten | replaced), frozenset(added), whole)

    @property
    def replaced_groups(self) -> frozenset[FileGroupId]:
        """The file groups that the write hides."""
        return frozenset(FileGroupId(partition, id_) for partition, ids in self.replaced.items() for id_ in ids)

    @property
    def declaration(self) -> CommitMetadata:
        """The content of the inflight file: the file groups that are about to be written."""
        stats: dict[str, list[WriteStat]] = {}
        for task in self.tasks:
            prev = task.file_slice.base_instant if task.file_slice else None
            stats.setdefault(task.group.partition, []).append(
                WriteStat(task.group.file_id, "", task.group.partition, prev_commit=prev)
            )
        return CommitMetadata({key: tuple(value) for key, value in stats.items()}, operation=self.operation.name)


def plan_rows(
    rows: pa.Table,
    operation: Operation,
    context: WriteContext,
    slices: Sequence[FileSlice],
    engine: Engine,
    find: Finder,
    *,
    room: Room,
    new_file_id: FileIds,
) -> WritePlan:
    """Plans the tasks that write `rows`. `find` tags rows with the snapshot's `slices`."""
    tagged = find(rows) if operation.finds_keys else Tagged(rows, NO_TAGS)
    inserts = inserts_by_partition(tagged.rows, tagged.tags)
    take = free_rows(tagged.rows, inserts, room.spaces, slices, context, engine)
    assignments = assign_rows(tagged.tags, inserts, slices, room.spaces, room.rows_per_file, new_file_id, take)
    tasks = _tasks(tagged.rows, assignments, context, is_blind=not operation.finds_keys)
    named = () if operation.replaces is Replaces.NOTHING else rows_by_partition(tagged.rows)
    replaced = replaced_by(operation, slices, named)
    keys = None if tagged.counts is None else partial(new_keys, tagged, inserts)
    return WritePlan(operation, tasks, replaced, engine, tagged.counts, keys)


def is_append(task: WriteTask) -> bool:
    """Whether a task appends a log file to its file group: on merge-on-read tables, if new keys may be in log files.

    Blind inserts may not: in a log file they would be merged with a row of the same key.
    """
    config = task.context.config
    if config.table_type is not TableType.MERGE_ON_READ or task.file_slice is None:
        return False
    return not task.has_inserts or (logs_inserts(config) and not task.is_blind)


def find_in_files(
    rows: pa.Table,
    scans: Sequence[SliceTask],
    engine: Engine,
    rule: TagRule,
    spaces: Mapping[str, Sequence[Space]] = NO_SPACES,
) -> Tagged:
    """Tags rows with the slices that hold their keys, by reading the keys of files through `scans`.

    If a partition has a single file, with `spaces` for all of its rows, they go there without looking for keys; the
    merge tells which are new.
    """
    candidates = plan_finds(rows, scans, everywhere=rule.everywhere, prune=rule.prune)
    sole = set() if rule.everywhere or IS_DELETE in rows.column_names else _sole_files(candidates, scans, spaces)
    asked = [candidate.task for candidate in candidates if candidate.number not in sole]
    found = iter(engine.map(asked, find_keys))
    answers = [all_rows(each) if each.number in sole else next(found) for each in candidates]
    return Tagged(rows, join_finds(candidates, answers))


def _sole_files(
    candidates: Sequence[Candidate], scans: Sequence[SliceTask], spaces: Mapping[str, Sequence[Space]]
) -> set[int]:
    """Candidates that are the only file of their partition, and have room for its rows even if all are new."""
    slices = Counter(scan.file_slice.group.partition for scan in scans)
    room = {space.target: space.rows for partition, some in spaces.items() for space in some if slices[partition] == 1}
    return {candidate.number for candidate in candidates if room.get(candidate.number, -1) >= len(candidate.rows)}


def new_keys(tagged: Tagged, inserts: Mapping[str, Int64s]) -> pa.Table:
    """Record keys and partition paths of inserts, without rows that move between partitions."""
    numbers = np.concatenate([*inserts.values(), np.empty(0, np.int64)])
    numbers = numbers[~np.isin(numbers, tagged.moved)] if len(tagged.moved) else numbers
    return tagged.rows.select([RECORD_KEY, PARTITION_PATH]).take(pa.array(numbers))


def inserts_by_partition(rows: pa.Table, tags: Tags = NO_TAGS) -> dict[str, Int64s]:
    """Rows whose key is in no slice, by partition, without deletes."""
    is_new = np.ones(rows.num_rows, bool)
    is_new[tags.rows] = False
    if IS_DELETE in rows.schema.names:
        is_new &= ~rows[IS_DELETE].to_numpy()
    numbers = np.flatnonzero(is_new)
    return rows_by_partition(rows, numbers) if len(numbers) else {}


def _tasks(
    rows: pa.Table, assignments: Sequence[Assignment], context: WriteContext, *, is_blind: bool
) -> tuple[WriteTask, ...]:
    """Tasks with their rows. Tasks that append log files pick their rows themselves."""
    tasks = [
        WriteTask(context, number, own.group, own.file_slice, Picked(rows, own), "", bool(len(own.inserts)), is_blind)
        for number, own in enumerate(assignments)
    ]
    are_appends = [is_append(task) for task in tasks]
    appended = _keyed(rows, [own for own, is_own in zip(assignments, are_appends, strict=True) if is_own])
    others = _brought_together(rows, [own for own, is_own in zip(assignments, are_appends, strict=True) if not is_own])
    return tuple(
        replace(task, rows=next(appended if is_own else others))
        for task, is_own in zip(tasks, are_appends, strict=True)
    )


def _keyed(rows: pa.Table, assignments: Sequence[Assignment]) -> Iterator[Picked]:
    """Rows that tasks pick later, with the keys that are new to their file groups."""
    whole = rows.combine_chunks()  # Otherwise each pick would combine the chunks again.
    new = [own.rows[own.is_insert] for own in assignments]
    keys, start = joined(whole[RECORD_KEY]).take(pa.array(np.concatenate([np.empty(0, np.int64), *new]))), 0
    for own, rows_of_new in zip(assignments, new, strict=True):
        yield Picked(whole, own, new_keys=keys.slice(start, len(rows_of_new)))
        start += len(rows_of_new)


def _brought_together(rows: pa.Table, assignments: Sequence[Assignment]) -> Iterator[Picked]:
    """The rows of each file group: collected here at once, or by the tasks if there are very many."""
    if rows.nbytes > _TAKEN_BYTES:
        whole = rows.combine_chunks()  # As above.
        yield from (Picked(whole, own) for own in assignments)
        return
    ordered = take_rows(rows, np.concatenate([np.empty(0, np.int64), *(own.rows for own in assignments)]))
    start = 0
    for own in assignments:
        count = len(own.updates) + len(own.inserts)
        table = ordered.slice(start, count)
        yield Picked(table, own, joined(table[RECORD_KEY].slice(len(own.updates))), is_apart=True)
        start += count


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of one file group: picked from a shared table, or in a table apart. `new_keys` if known."""

    table: pa.Table
    assignment: Assignment
    new_keys: pa.Array | None = None
    is_apart: bool = False

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.assignment.updates) + len(self.assignment.inserts)

    @property
    def has_positions(self) -> bool:
        """Whether the position in the base file is known for some rows."""
        return bool((self.assignment.positions >= 0).any())

    def read(self) -> pa.Table:
        """The rows, with positions and the partition path, which deletes by key do not have before."""
        own = self.assignment
        rows = self.table if self.is_apart else take_rows(self.table, own.rows)
        rows = with_partition(rows, own.group.partition)
        positions = np.concatenate([own.positions, np.full(len(own.inserts), -1)])
        return rows.append_column(POSITION, pa.array(positions)).append_column(IS_INSERT, pa.array(own.is_insert))


def with_partition(rows: pa.Table, partition: str) -> pa.Table:
    """`rows` with this partition path."""
    path = pa.array([partition], pa.string())
    paths = pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int32), path)
    return rows.set_column(rows.schema.get_field_index(PARTITION_PATH), PARTITION_PATH, paths)


def replaced_by(
    operation: Operation, slices: Sequence[FileSlice], partitions: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The file groups that an operation with rows for these partitions hides, by partition."""
    if operation.replaces is Replaces.NOTHING:
        return {}
    return replaced_groups(slices, None if operation.replaces is Replaces.TABLE else set(partitions))


def replaced_groups(slices: Sequence[FileSlice], partitions: set[str] | None) -> dict[str, tuple[str, ...]]:
    """File ids of these partitions, or of all, by partition."""
    found: dict[str, tuple[str, ...]] = {}
    for file_slice in slices:
        partition = file_slice.group.partition
        if partitions is None or partition in partitions:
            found[partition] = (*found.get(partition, ()), file_slice.group.file_id)
    return found


def key_scans(tasks: Sequence[SliceTask]) -> tuple[SliceTask, ...]:
    """Scans that read the record key alone."""
    return tuple(replace(task, columns=(RECORD_KEY,)) for task in tasks)
