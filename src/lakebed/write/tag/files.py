"""Tagging without a record index: incoming rows are joined with the key columns of the files that may hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.index.key_batches import ProbeCounts
from lakebed.kernels.buffers import Int64s
from lakebed.kernels.key_numbers import place_keys
from lakebed.kernels.ordering import group_rows
from lakebed.model.files import FileSlice
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_keys, read_slice
from lakebed.write.rows.columns import joined
from lakebed.write.values import DELETED

_ASKED_BYTES_MIN = 16 << 20
"""Minimum bytes of a file whose footer is read first; the keys of a smaller one are read as fast as its footer."""
_NOWHERE = -3
_ASKED_FIRST = 64
"""Number of keys that are probed first; if the Bloom filter has one of them, the file is read anyway."""


@dataclass(frozen=True, slots=True)
class Tags:
    """Locations of incoming rows: the key of `rows[i]` is in slice `targets[i]`, at `positions[i]` of its base file.

    A row has no tag if its key is in no slice, and one per slice that has it. Position -1 is unknown; the key may even
    be new to the slice, which the merge finds out. Position `DELETED`: log files of the slice have deleted the key.
    """

    rows: Int64s
    targets: Int64s
    positions: Int64s


NO_TAGS = Tags(*(np.empty(0, np.int64) for _ in range(3)))
"""No row has a location."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Rows to write, with their tags, and counts of the lookup in the record index (None if it was not used).

    They are the incoming rows, except that some may move to another partition, or be dropped as late.
    """

    rows: pa.Table
    tags: Tags
    counts: ProbeCounts | None = None
    moved: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows that move: inserted here; another row deletes the key in its old partition."""


@dataclass(frozen=True, slots=True)
class FindTask:
    """Finds which of `keys` are in a file slice. `prune` first checks key range and Bloom filter of its base file."""

    scan: SliceTask
    keys: pa.Array
    prune: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file slice that may hold keys: its number, the task that looks them up, and the numbers of their rows."""

    number: int
    task: FindTask
    rows: Int64s


def plan_finds(rows: pa.Table, scans: Sequence[SliceTask], *, everywhere: bool, prune: bool) -> tuple[Candidate, ...]:
    """Candidates for the keys of `rows`: slices of the row's partition, or of all if `everywhere`.

    `scans` read the record key of every slice of the snapshot.
    """
    keys = joined(rows[RECORD_KEY])
    if everywhere:
        every = np.arange(rows.num_rows)
        return tuple(Candidate(number, FindTask(scan, keys, prune), every) for number, scan in enumerate(scans))
    by_partition = rows_by_partition(rows)
    wanted = {partition: keys.take(pa.array(numbers)) for partition, numbers in by_partition.items()}
    candidates = []
    for number, scan in enumerate(scans):
        partition = scan.file_slice.group.partition
        if partition in wanted:
            candidates.append(Candidate(number, FindTask(scan, wanted[partition], prune), by_partition[partition]))
    return tuple(candidates)


def find_keys(task: FindTask) -> tuple[Int64s, Int64s]:
    """Indices of the keys that the slice holds, and their row numbers in its base file; -1 if the slice has log files.

    A key that log files have deleted still belongs to the slice: other engines may find it in the base file, and a row
    that is older than the delete must not become visible.
    """
    if task.scan.file_slice.logs:
        return _find_under_logs(task)
    candidates = np.arange(len(task.keys))
    if task.prune and _is_worth_asking(task.scan.file_slice):
        candidates = _may_hold(task)
        if not len(candidates):
            return candidates, candidates
    wanted = task.keys if len(candidates) == len(task.keys) else task.keys.take(pa.array(candidates))
    places = find_places(joined(read_slice(task.scan)[RECORD_KEY]), wanted)
    found = np.flatnonzero(places >= 0)
    return candidates[found], places[found]


def _find_under_logs(task: FindTask) -> tuple[Int64s, Int64s]:
    stored = read_keys(task.scan)
    positions = np.where(find_places(stored.live, task.keys) >= 0, -1, _NOWHERE)
    missing = np.flatnonzero(positions == _NOWHERE)
    if len(missing) and len(stored.deleted):
        is_deleted = pc.is_in(task.keys.take(pa.array(missing)), value_set=stored.deleted)
        positions[missing[is_deleted.to_numpy(zero_copy_only=False)]] = DELETED
    found = np.flatnonzero(positions != _NOWHERE)
    return found, positions[found]


def all_rows(candidate: Candidate) -> tuple[Int64s, Int64s]:
    """Like `find_keys` without looking: every row may be in the slice, at an unknown position."""
    return np.arange(len(candidate.rows)), np.full(len(candidate.rows), -1)


def join_finds(candidates: Sequence[Candidate], found: Sequence[tuple[Int64s, Int64s]]) -> Tags:
    """Combines the results of the candidates' tasks into tags."""
    if not candidates:
        return NO_TAGS
    pairs = list(zip(candidates, found, strict=True))
    tags = Tags(
        np.concatenate([candidate.rows[keys] for candidate, (keys, _) in pairs]),
        np.concatenate([np.full(len(keys), candidate.number) for candidate, (keys, _) in pairs]),
        np.concatenate([positions for _, positions in found]),
    )
    partitions = {candidate.number: candidate.task.scan.file_slice.group.partition for candidate in candidates}
    return _settled(tags, partitions)


def _settled(tags: Tags, partitions: Mapping[int, str]) -> Tags:
    """Drops the tags of slices that have deleted a key if another slice has the key.

    Of several slices of a partition that have deleted the same key, the first keeps its tag.
    """
    deleted = np.flatnonzero(tags.positions == DELETED)
    if not len(deleted):
        return tags
    deleted = deleted[~np.isin(tags.rows[deleted], tags.rows[tags.positions != DELETED])]
    _, codes = np.unique([partitions[target] for target in tags.targets[deleted].tolist()], return_inverse=True)
    _, first = np.unique(np.column_stack([tags.rows[deleted], codes]), axis=0, return_index=True)
    kept = tags.positions != DELETED
    kept[deleted[first]] = True
    return Tags(tags.rows[kept], tags.targets[kept], tags.positions[kept])


def rows_by_partition(rows: pa.Table, numbers: Int64s | None = None) -> dict[str, Int64s]:
    """Ascending row numbers by partition path, of all rows or of those in `numbers`."""
    encoded = joined(rows[PARTITION_PATH].unify_dictionaries())
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order, bounds = group_rows(codes if numbers is None else codes[numbers], len(encoded.dictionary))
    order = order if numbers is None else numbers[order]
    partitions = encoded.dictionary.to_pylist()
    return {
        partition: order[bounds[code] : bounds[code + 1]]
        for code, partition in enumerate(partitions)
        if bounds[code] < bounds[code + 1]
    }


def _is_worth_asking(file_slice: FileSlice) -> bool:
    """Whether reading the footer can save time: it covers all keys of the slice, and the file is large."""
    base = file_slice.base
    return base is not None and not file_slice.logs and (base.size is None or base.size > _ASKED_BYTES_MIN)


def _may_hold(task: FindTask) -> Int64s:
    """The keys that the base file may hold, by its key range and Bloom filter."""
    base = task.scan.file_slice.base
    assert base is not None, "a slice without logs has a base file"
    path = task.scan.file_slice.path(base.name)
    with task.scan.storage.arrow_file(path) as file:
        footer = decode_parquet_footer(file, path=path)
    bloom, every = footer.bloom, np.arange(len(task.keys))
    if bloom is None or footer.key_min is None or footer.key_max is None:
        return every
    # A file with some of the keys is read anyway, and then a join is faster than probing the filter.
    few = every[:: max(1, len(every) // _ASKED_FIRST)]
    if len(few) < len(every) and bloom.might_contain_many(task.keys.take(pa.array(few))).any():
        return every
    # Bounds are ordered as Java strings, which differs from UTF-8 only for characters above U+D7FF.
    if max(footer.key_min + footer.key_max, default="") > "\ud7ff":
        return np.flatnonzero(bloom.might_contain_many(task.keys))
    inside = pc.and_(pc.greater_equal(task.keys, footer.key_min), pc.less_equal(task.keys, footer.key_max))
    candidates: Int64s = np.flatnonzero(inside.to_numpy(zero_copy_only=False))
    if not len(candidates):
        return candidates
    return candidates[bloom.might_contain_many(task.keys.take(pa.array(candidates)))]


def find_places(stored: pa.Array, wanted: pa.Array) -> Int64s:
    """Joins keys: the position of each wanted key among the stored ones, the first of several; -1 if absent.

    Of equal wanted keys, only the first gets a position.
    """
    if stored.null_count or wanted.null_count:
        return _find_with_nulls(stored, wanted)
    return place_keys(*binary_buffers(stored), *binary_buffers(wanted))


def _find_with_nulls(stored: pa.Array, wanted: pa.Array) -> Int64s:
    numbers = pc.fill_null(pc.index_in(stored, value_set=wanted), -1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(numbers >= 0)[::-1]
    places = np.full(len(wanted), -1)
    places[numbers[found]] = found  # Of repeated indices the last assignment wins, here that of the first position.
    return places
