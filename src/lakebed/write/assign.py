"""Assigning: which file group each incoming row is written to. Inserts fill small files first, then new ones.

The free space of small files and the rows that a new file takes are estimated from the newest commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from lakebed.index.keys import is_shared
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.kernels.ordering import group_rows
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.words import TableType
from lakebed.table import TableState
from lakebed.transaction.pending import pending_rivals
from lakebed.write.operations import Operation
from lakebed.write.tag.files import Tags
from lakebed.write.values import DELETED, FileSizing, WriteContext

_COMPACTED_SHARE = {"avro": 0.35, "parquet": 1.0}
"""Size of a base file relative to the log files compacted into it, by log format. Avro's is Apache Hudi's estimate."""
_TYPICAL_FILE_BYTES = 1 << 20
"""Minimum bytes of a base file from which the size of a row is estimated; smaller ones are mostly footer."""
_ENCODED_SHARE = 0.4
"""Size of a base file relative to its rows in Arrow memory, if no earlier file is large enough to tell."""
FileIds = Callable[[], str]
"""Makes a new file id: a UUID and a counter, `<uuid>-0`."""
Numbers = TypeVar("Numbers", Int64s, range)
"""Row numbers, as an array or, for staged rows, as a range."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The rows of one file group: first updates of keys in its slice, then inserts.

    Position `DELETED` marks updates of keys that its log files have deleted.
    """

    group: FileGroupId
    file_slice: FileSlice | None
    updates: Int64s
    positions: Int64s
    inserts: Int64s

    @property
    def rows(self) -> Int64s:
        """All row numbers, in the order in which they are written."""
        return np.concatenate([self.updates, self.inserts])

    @property
    def is_insert(self) -> Bools:
        """Which of `rows` have keys that are not in the slice."""
        return np.concatenate([self.positions == DELETED, np.ones(len(self.inserts), bool)])

    @property
    def revived(self) -> Int64s:
        """The `updates` whose keys were deleted by log files."""
        return self.updates[self.positions == DELETED]


@dataclass(frozen=True, slots=True)
class Space:
    """A small file with free space: the number of its slice, and how many rows fit."""

    target: int
    rows: int


def assign_rows(
    tags: Tags,
    inserts: Mapping[str, Int64s],
    slices: Sequence[FileSlice],
    spaces: Mapping[str, Sequence[Space]],
    rows_per_file: int,
    new_file_id: FileIds,
    take: Callable[[Space, Int64s], tuple[Int64s, Int64s]] | None = None,
) -> tuple[Assignment, ...]:
    """Assigns tagged rows to the file groups of their keys, and `inserts` to small files, then to new file groups.

    `take` splits rows into those that a small file gets and the rest.
    """
    nothing = np.empty(0, np.int64)
    filled, rest = fill_files(inserts, spaces, rows_per_file, take)
    new = [
        Assignment(FileGroupId(partition, new_file_id()), None, nothing, nothing, part)
        for partition, parts in rest.items()
        for part in parts
    ]
    return (*_existing(tags, filled, slices), *new)


def fill_files(
    inserts: Mapping[str, Numbers],
    spaces: Mapping[str, Sequence[Space]],
    rows_per_file: int,
    take: Callable[[Space, Numbers], tuple[Numbers, Numbers]] | None = None,
) -> tuple[dict[int, Numbers], dict[str, list[Numbers]]]:
    """Inserts for small files, by slice number, and inserts for new file groups, by partition."""
    take = take or _take_first
    filled: dict[int, Numbers] = {}
    new: dict[str, list[Numbers]] = {}
    for partition, rows in inserts.items():
        rest = rows
        for space in spaces.get(partition, ()):
            if len(rest):
                filled[space.target], rest = take(space, rest)
        new[partition] = _split(rest, rows_per_file)
    return filled, new


def small_files(
    slices: Sequence[FileSlice],
    sizing: FileSizing,
    row_bytes: float,
    *,
    excluded: frozenset[FileGroupId],
    with_logs: bool = False,
) -> dict[str, list[Space]]:
    """The free space in small slices, by partition, smallest first; `with_logs` includes slices with log files."""
    found: dict[str, list[tuple[float, Space]]] = {}
    for number, file_slice in enumerate(slices):
        size = _size(file_slice, sizing)
        if size is None or file_slice.group in excluded or (file_slice.logs and not with_logs):
            continue
        room = int((sizing.target_bytes - size) / row_bytes)
        if size < sizing.small_bytes and room > 0:
            found.setdefault(file_slice.group.partition, []).append((size, Space(number, room)))
    by_size = {partition: sorted(spaces, key=lambda s: (s[0], s[1].target)) for partition, spaces in found.items()}
    return {partition: [space for _, space in spaces] for partition, spaces in by_size.items()}


def _size(file_slice: FileSlice, sizing: FileSizing) -> float | None:
    """Estimated bytes of the base file that a compaction of the slice would write; None if unknown."""
    base = file_slice.base
    base_bytes = 0 if base is None else base.size
    log_bytes = [log.size for log in file_slice.logs]
    if base_bytes is None or None in log_bytes:
        return None
    return base_bytes + _COMPACTED_SHARE[sizing.log_format] * sum(size or 0 for size in log_bytes)


def _existing(tags: Tags, filled: Mapping[int, Int64s], slices: Sequence[FileSlice]) -> Iterator[Assignment]:
    order, bounds = group_rows(tags.targets, len(slices))
    nothing = np.empty(0, np.int64)
    tagged = np.flatnonzero(np.diff(bounds)).tolist()
    for target in sorted({*tagged, *(target for target, rows in filled.items() if len(rows))}):
        here = order[bounds[target] : bounds[target + 1]]
        file_slice = slices[target]
        yield Assignment(
            file_slice.group, file_slice, tags.rows[here], tags.positions[here], filled.get(target, nothing)
        )


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows fit into a new file, and the small files with free space, by partition."""

    rows_per_file: int
    spaces: Mapping[str, Sequence[Space]]


def find_room(
    state: TableState,
    operation: Operation,
    context: WriteContext,
    slices: Sequence[FileSlice],
    *,
    rows_bytes: int,
    rows: int,
) -> Room:
    """Finds room for the new rows of a write, whose `rows` take `rows_bytes` in memory."""
    row_bytes = _row_bytes(state, rows_bytes, rows)
    rows_per_file = max(int(context.files.target_bytes / row_bytes), 1)
    if not operation.fills_files:
        return Room(rows_per_file, {})
    with_logs = operation.finds_keys and logs_inserts(context.config)
    spaces = small_files(slices, context.files, row_bytes, excluded=_busy_groups(state), with_logs=with_logs)
    return Room(rows_per_file, spaces)


def logs_inserts(config: TableConfig) -> bool:
    """Whether new keys may be written to log files: only if there is a record index that all engines use.

    Apache Hudi's other indexes look for keys in base files only, and would insert such a key again.
    """
    return config.table_type is TableType.MERGE_ON_READ and is_shared(config)


def _busy_groups(state: TableState) -> frozenset[FileGroupId]:
    """File groups with a pending compaction or clustering."""
    rivals = pending_rivals(state.storage, state.config, state.timeline)
    return frozenset(group for rival in rivals for group in rival.writes.rewritten)


def _row_bytes(state: TableState, size: int, rows: int) -> float:
    """Estimated bytes of a row on disk, from the newest commit with a base file that is large enough."""
    for instant in reversed(state.timeline.commits()):
        stats = [
            stat
            for stat in state.documents.commit(instant).stats
            if stat.file_size >= _TYPICAL_FILE_BYTES and stat.num_writes and stat.path.endswith(".parquet")
        ]
        if stats:
            return sum(stat.file_size for stat in stats) / sum(stat.num_writes for stat in stats)
    return max(size * _ENCODED_SHARE / max(rows, 1), 1.0)


def _take_first(space: Space, rows: Numbers) -> tuple[Numbers, Numbers]:
    return rows[: space.rows], rows[space.rows :]


def _split(rows: Numbers, size: int) -> list[Numbers]:
    """Parts of about equal length, none longer than `size`."""
    count = -(-len(rows) // max(size, 1))
    bounds = [len(rows) * part // max(count, 1) for part in range(count + 1)]
    return [rows[first:last] for first, last in pairwise(bounds)]
