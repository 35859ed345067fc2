"""Planning a large write: its rows lie in files, split by where they are to go, and are only counted here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.engine.engines import InProcess
from lakebed.engine.exchange import RowRange, Run, Shelf, StagedFile, runs
from lakebed.index.key_batches import ProbeCounts
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.instant import InstantTime
from lakebed.write.assign import FileIds, fill_files
from lakebed.write.operations import Operation
from lakebed.write.plan import WritePlan, replaced_by, with_partition
from lakebed.write.room import Room
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.staging import Staged
from lakebed.write.tag.deleted import spaces_without_deletes
from lakebed.write.tag.staged import TaggedLot
from lakebed.write.values import DELETED, IS_DELETE, IS_INSERT, POSITION, WriteContext, WriteTask


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The rows of one file group, in files. Keys that are generated have the number of the `task` in them."""

    shelf: Shelf
    arrangement: Arrangement
    instant: InstantTime
    task: int
    partition: str
    updates: tuple[RowRange, ...] = ()
    inserts: tuple[RowRange, ...] = ()

    @property
    def count(self) -> int:
        """How many they are."""
        return sum(each.rows for each in (*self.updates, *self.inserts))

    def read(self) -> pa.Table:
        """The rows, where their keys are, and the path of the partition that they are written to."""
        tables = (with_partition(table, self.partition) for table in self._tables())
        # Only a task that moved rows has flags for deletes.
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
    """The tasks that write staged rows. Labels are numbers of slices, or the partitions of new rows."""
    files, partitions = staged.files, {label for file in staged.files for label in file.labels}
    counts = [lot.counts for lot in lots if lot.counts is not None]
    keys = tuple(lot.new_keys for lot in lots if lot.new_keys is not None)
    if lots:
        files, partitions = tuple(lot.rows for lot in lots), {name for lot in lots for name in lot.partitions}

    # Which keys the rows have that a file gets is not known here.
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
    """What one file group gets: updates and inserts."""

    group: FileGroupId
    file_slice: FileSlice | None
    rows: tuple[tuple[RowRange, ...], tuple[RowRange, ...]]


def _shares(
    files: Iterable[StagedFile], slices: Sequence[FileSlice], room: Room, new_file_id: FileIds
) -> Iterator[_Share]:
    """Every tagged row goes where it lives; inserts into small files and then new file groups."""
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
