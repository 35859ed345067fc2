"""Tagging through the record index: which file group holds each key, without reading a data file.

A global index also finds keys in another partition than that of the incoming row. Such a row moves: one commit deletes
it there and inserts it here. If the table has an ordering field, the stored row may be newer; the incoming one is then
late and is dropped. An entry that carries an ordering value is a lower bound of the stored row's value: an incoming row
below it is late (`drop_late`). Without such a value the stored row is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.engine.engines import Engine
from lakebed.errors import InvalidInputError
from lakebed.format.arrow import pc
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.index.key_batches import Locations, ProbeCounts, ShardCache, locate_everywhere, locate_keys
from lakebed.index.keys import KeyShards, is_partitioned, ordering_numbers
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId
from lakebed.model.index import EntryOrdering
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.write.rows.arrange import combine_duplicates
from lakebed.write.rows.columns import joined
from lakebed.write.tag.files import Tagged, Tags
from lakebed.write.values import IS_DELETE

_NUMBER = "lakebed.number"


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The record index of a snapshot whose slices `scans` read. `moves`: rows whose partition changed are moved.

    `ordering` is set if entries carry ordering values, and says whether these equal those of the stored rows.
    """

    metadata: KeyShards
    config: TableConfig
    scans: Sequence[SliceTask]
    engine: Engine
    cache: ShardCache
    moves: bool = True
    ordering: EntryOrdering | None = None

    @property
    def is_global(self) -> bool:
        """Whether a key is in one partition at most."""
        return not is_partitioned(self.metadata)


def tag_by_index(rows: pa.Table, index: KeyIndex, *, everywhere: bool = False) -> Tagged:
    """Tags rows with the slices that hold their keys, in the row's partition or, if `everywhere`, in any."""
    numbers, found = _locate(rows, index, everywhere=everywhere)
    targets = _slice_numbers(found.places, index.scans)[found.codes]
    # Ignores entries of file groups that no longer exist.
    known = targets >= 0
    tags = Tags(numbers[known], targets[known], np.full(int(known.sum()), -1))
    if everywhere:
        return Tagged(rows, tags, found.counts)
    timely = drop_late(rows, tags, found.ordering[known], index.ordering)
    counts = found.counts + ProbeCounts(late=timely.late)
    if not index.is_global:
        return Tagged(timely.rows, timely.tags, counts)
    tagged = _move_rows(timely, index)
    return replace(tagged, counts=counts + (tagged.counts or ProbeCounts()))


def find_taken(keys: pa.Array, partitions: pa.Array, metadata: KeyShards, cache: ShardCache) -> pa.Array:
    """The keys that have an index entry by now, because another write inserted them."""
    found = locate_keys(metadata, keys, partitions, cache=cache)
    return keys.filter(pa.array(found.codes >= 0))


def _locate(rows: pa.Table, index: KeyIndex, *, everywhere: bool) -> tuple[Int64s, Locations]:
    """The numbers of the rows whose keys are in the index, and their locations."""
    keys = joined(rows[RECORD_KEY])
    if everywhere:
        return locate_everywhere(index.metadata, keys, cache=index.cache)
    found = locate_keys(index.metadata, keys, _paths(rows), cache=index.cache)
    numbers = np.flatnonzero(found.codes >= 0)
    return numbers, found.take(numbers)


def _slice_numbers(places: Sequence[FileGroupId], scans: Sequence[SliceTask]) -> Int64s:
    """The number of the slice of each file group; -1 if there is none."""
    numbers = {scan.file_slice.group: number for number, scan in enumerate(scans)}
    return np.array([*(numbers.get(place, -1) for place in places), -1], np.int64)


@dataclass(frozen=True, slots=True)
class Timely:
    """Rows without the `late` ones, which are counted; `is_newer`: tagged rows known to be newer than stored ones."""

    rows: pa.Table
    tags: Tags
    is_newer: Bools
    late: int


def drop_late(rows: pa.Table, tags: Tags, bounds: Int64s, ordering: EntryOrdering | None) -> Timely:
    """Drops rows below the bound of their entry. `bounds` has one per tag; a row has at most one tag.

    A row stays if its own value or its entry's is unknown, but does not count as newer.
    """
    if ordering is None or (bounds == NO_ORDERING).all():
        return Timely(rows, tags, np.zeros(len(bounds), bool), 0)
    numbers = pc.fill_null(ordering_numbers(rows, ordering), NO_ORDERING).to_numpy(zero_copy_only=False)[tags.rows]
    is_known = (numbers != NO_ORDERING) & (bounds != NO_ORDERING)
    is_late = is_known & (numbers < bounds)
    is_newer = is_known & ordering.is_current
    if not is_late.any():
        return Timely(rows, tags, is_newer, 0)
    kept = np.ones(rows.num_rows, bool)
    kept[tags.rows[is_late]] = False
    new_number = np.cumsum(kept) - 1
    left = Tags(new_number[tags.rows[~is_late]], tags.targets[~is_late], tags.positions[~is_late])
    return Timely(rows.filter(pa.array(kept)), left, is_newer[~is_late], int(is_late.sum()))


def _move_rows(timely: Timely, index: KeyIndex) -> Tagged:
    rows, tags = timely.rows, timely.tags
    is_moved = _is_elsewhere(rows, tags, index.scans)
    if not index.moves or not is_moved.any():
        return Tagged(rows, tags)
    moved, targets = tags.rows[is_moved], tags.targets[is_moved]
    _check_whole(rows, index)
    is_late = np.zeros(len(moved), bool)
    is_open = ~timely.is_newer[is_moved] & _has_ordering(index.config)
    if is_open.any():
        is_late[is_open] = _is_late(rows, moved[is_open], targets[is_open], index)
    kept = np.ones(rows.num_rows, bool)
    kept[moved[is_late]] = False
    new_number = np.cumsum(kept) - 1
    staying, going = new_number[tags.rows[~is_moved]], np.count_nonzero(kept) + np.arange(np.count_nonzero(~is_late))
    return Tagged(
        pa.concat_tables(
            [_flagged(rows.filter(pa.array(kept))), _as_deletes(rows.take(pa.array(moved[~is_late])), index.config)]
        ),
        Tags(
            np.concatenate([staying, going]),
            np.concatenate([tags.targets[~is_moved], targets[~is_late]]),
            np.full(len(staying) + len(going), -1),
        ),
        ProbeCounts(late=int(is_late.sum()), records_read=int(is_open.sum())),
        moved=new_number[moved[~is_late]],
    )


def _has_ordering(config: TableConfig) -> bool:
    return config.merge_mode is MergeMode.EVENT_TIME_ORDERING and bool(config.ordering_fields)


def _is_elsewhere(rows: pa.Table, tags: Tags, scans: Sequence[SliceTask]) -> Bools:
    """Which tagged rows are for another partition than that of their key. Deletes are for any partition."""
    paths = _paths(rows)
    codes = {path: code for code, path in enumerate(paths.dictionary.to_pylist())}
    stored = np.array([*(codes.get(scan.file_slice.group.partition, -1) for scan in scans), -1], np.int64)
    differs: Bools = paths.indices.to_numpy()[tags.rows] != stored[tags.targets]
    if IS_DELETE in rows.column_names:
        differs &= ~rows[IS_DELETE].to_numpy()[tags.rows]
    return differs


def _is_late(rows: pa.Table, moved: Int64s, targets: Int64s, index: KeyIndex) -> Bools:
    """Which of the moved rows are older than the stored rows, which are read."""
    ordering = index.config.ordering_fields
    columns = [RECORD_KEY, *ordering]
    incoming = rows.select(columns).take(pa.array(moved)).append_column(_NUMBER, pa.array(np.arange(len(moved))))
    stored = _stored(incoming[RECORD_KEY], targets, columns, index)
    stored = stored.append_column(_NUMBER, pa.array(np.full(stored.num_rows, -1)))
    both = pa.concat_tables([stored, incoming], promote_options="permissive")
    newest = combine_duplicates(both, ordering, index.config.merge_mode, by_partition=False)
    is_late = np.ones(len(moved) + 1, bool)
    is_late[newest[_NUMBER].to_numpy()] = False
    return is_late[:-1]


def _stored(keys: pa.ChunkedArray, targets: Int64s, columns: Sequence[str], index: KeyIndex) -> pa.Table:
    """Reads the stored rows of keys from their slices."""
    tasks = []
    for target in np.unique(targets):
        here = keys.filter(pa.array(targets == target)).to_pylist()
        tasks.append(replace(index.scans[target], columns=tuple(columns), keys=frozenset(here)))
    return pa.concat_tables(index.engine.map(tasks, read_slice))


def _check_whole(rows: pa.Table, index: KeyIndex) -> None:
    """Raises InvalidInputError if moved rows, which are inserted whole, lack a column."""
    missing = [name for name in index.scans[0].schema.names if name not in rows.column_names]
    missing = [name for name in missing if not name.startswith("_hoodie_")]
    if missing:
        raise InvalidInputError(
            f"a partial update would move rows to another partition, but lacks their column {missing[0]!r}",
            hint="give all columns of rows whose partition changes, or leave their partition as it is",
        )


def _flagged(rows: pa.Table) -> pa.Table:
    """Rows with the column `IS_DELETE`."""
    if IS_DELETE in rows.column_names:
        return rows
    return rows.append_column(pa.field(IS_DELETE, pa.bool_()), pa.repeat(pa.scalar(False), rows.num_rows))


def _as_deletes(rows: pa.Table, config: TableConfig) -> pa.Table:
    """Deletes for rows that move, without ordering values, so that they do not hide rows that move back later."""
    rows = _flagged(rows)
    for name in config.ordering_fields:
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
    deletes = pa.repeat(pa.scalar(True), rows.num_rows)
    return rows.set_column(rows.column_names.index(IS_DELETE), pa.field(IS_DELETE, pa.bool_()), deletes)


def _paths(rows: pa.Table) -> pa.DictionaryArray:
    return joined(rows[PARTITION_PATH].unify_dictionaries())
