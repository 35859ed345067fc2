"""Tagging without a record index: incoming rows are joined with the key columns of the files that may hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hfile.order import binary_buffers
from lakebed.format.parquet_footer import decode_parquet_footer
from lakebed.index.key_batches import ProbeCounts
from lakebed.kernels.buffers import Int64s
from lakebed.kernels.grouping import group_rows
from lakebed.kernels.key_numbers import place_keys
from lakebed.model.files import FileSlice
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_keys, read_slice
from lakebed.write.rows.columns import joined
from lakebed.write.values import DELETED

_ASKED_BYTES_MIN = 16 << 20
"""The keys of a smaller file are read in the time that reading a footer, and its filter, takes."""
_NOWHERE = -3
_ASKED_FIRST = 64
"""Keys out of many: if the filter of a file knows one of them, the others need not be asked for."""


@dataclass(frozen=True, slots=True)
class Tags:
    """Where incoming rows live: row `rows[i]` is in file slice `targets[i]`, at `positions[i]` of its base file.

    A row that no slice holds is not mentioned, one that several hold once for each. Position -1 is unknown: the row may
    even be new to the slice, which a merge finds out. Position `DELETED`: log files of the slice have deleted the key.
    """

    rows: Int64s
    targets: Int64s
    positions: Int64s


NO_TAGS = Tags(*(np.empty(0, np.int64) for _ in range(3)))
"""No row is anywhere yet."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """Rows to write, with their tags, and what it took to find them in the record index.

    They are the rows that came in, unless some move to another partition or are found to be late. Without `counts` the
    index was not asked.
    """

    rows: pa.Table
    tags: Tags
    counts: ProbeCounts | None = None
    moved: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows that are inserted where they are to be, and deleted where they were, by another row."""


@dataclass(frozen=True, slots=True)
class FindTask:
    """Which of `keys` a file slice holds. `prune` first asks the key range and bloom filter of its base file."""

    scan: SliceTask
    keys: pa.Array
    prune: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file slice that may hold keys: its number, the task that looks, and the rows whose keys it looks for."""

    number: int
    task: FindTask
    rows: Int64s


def plan_finds(rows: pa.Table, scans: Sequence[SliceTask], *, everywhere: bool, prune: bool) -> tuple[Candidate, ...]:
    """Candidates for the keys of `rows`: slices of the key's own partition, or `everywhere`.

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
    """Indices of the keys that the slice holds, and their row numbers in its base file; -1 where logs lie on top.

    A key that logs have deleted is still the slice's: its base file may have it, where others would find it, and a row
    that is older than the delete must not be seen.
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
    """As `find_keys`, where nobody looks: every row may be in the slice, wherever."""
    return np.arange(len(candidate.rows)), np.full(len(candidate.rows), -1)


def join_finds(candidates: Sequence[Candidate], found: Sequence[tuple[Int64s, Int64s]]) -> Tags:
    """The tags that the results of the candidates' tasks amount to."""
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
    """Tags without those of slices that have deleted a key which lives in another, or which another has deleted, too.

    Of several slices of a partition that have deleted a key, the first has it.
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
    """Row numbers, ascending, of each partition path that occurs; of those of the `numbers`, if there are any."""
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
    """Whether a footer tells all keys of a slice, and takes much less time to read than they do."""
    base = file_slice.base
    return base is not None and not file_slice.logs and (base.size is None or base.size > _ASKED_BYTES_MIN)


def _may_hold(task: FindTask) -> Int64s:
    """The keys that the base file may hold, by its key range and bloom filter."""
    base = task.scan.file_slice.base
    assert base is not None, "a slice without logs has a base file"
    path = task.scan.file_slice.path(base.name)
    with task.scan.storage.arrow_file(path) as file:
        footer = decode_parquet_footer(file, path=path)
    bloom, every = footer.bloom, np.arange(len(task.keys))
    if bloom is None or footer.key_min is None or footer.key_max is None:
        return every
    # A file that surely holds some key is read anyway, and looking a key up in what was read is quicker than asking.
    few = every[:: max(1, len(every) // _ASKED_FIRST)]
    if len(few) < len(every) and bloom.might_contain_many(task.keys.take(pa.array(few))).any():
        return every
    # Bounds are in the order of Java strings, which is that of UTF-8 unless a bound has a character above U+D7FF.
    if max(footer.key_min + footer.key_max, default="") > "\ud7ff":
        return np.flatnonzero(bloom.might_contain_many(task.keys))
    inside = pc.and_(pc.greater_equal(task.keys, footer.key_min), pc.less_equal(task.keys, footer.key_max))
    candidates: Int64s = np.flatnonzero(inside.to_numpy(zero_copy_only=False))
    if not len(candidates):
        return candidates
    return candidates[bloom.might_contain_many(task.keys.take(pa.array(candidates)))]


def find_places(stored: pa.Array, wanted: pa.Array) -> Int64s:
    """The place of each wanted key among the stored ones, the first of several; -1 if it is not there.

    Of wanted keys that are equal, the first has a place.
    """
    if stored.null_count or wanted.null_count:
        return _find_with_nulls(stored, wanted)
    return place_keys(*binary_buffers(stored), *binary_buffers(wanted))


def _find_with_nulls(stored: pa.Array, wanted: pa.Array) -> Int64s:
    numbers = pc.fill_null(pc.index_in(stored, value_set=wanted), -1).to_numpy(zero_copy_only=False)
    found = np.flatnonzero(numbers >= 0)[::-1]
    places = np.full(len(wanted), -1)
    places[numbers[found]] = found  # Of repeated places, the last assignment stays: that of the first.
    return places
