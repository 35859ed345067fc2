"""Room for new rows: how many a file takes, and which small files can take some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.index.keys import is_shared
from lakebed.model.config import TableConfig
from lakebed.model.files import FileGroupId, FileSlice
from lakebed.model.words import TableType
from lakebed.table import TableState
from lakebed.transaction.pending import pending_rivals
from lakebed.write.assign import Space, small_files
from lakebed.write.operations import Operation
from lakebed.write.values import WriteContext

_TYPICAL_FILE_BYTES = 1 << 20
"""Base files below this size are mostly footer and say nothing about the size of a row."""
_ENCODED_SHARE = 0.4
"""What is left of Arrow's bytes in a base file, where no earlier file tells."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows new files take, and the small files, by partition, that have room for more."""

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
    """Where the new rows of a write fit. All of its rows, as they are in memory, take `rows_bytes`."""
    row_bytes = _row_bytes(state, rows_bytes, rows)
    rows_per_file = max(int(context.files.target_bytes / row_bytes), 1)
    if not operation.fills_files:
        return Room(rows_per_file, {})
    with_logs = operation.finds_keys and logs_inserts(context.config)
    spaces = small_files(slices, context.files, row_bytes, excluded=_busy_groups(state), with_logs=with_logs)
    return Room(rows_per_file, spaces)


def logs_inserts(config: TableConfig) -> bool:
    """Whether new keys may lie in log files alone: where a record index tells everyone that they are there.

    Apache Hudi's other indexes look for keys in base files only, and would insert such a key again.
    """
    return config.table_type is TableType.MERGE_ON_READ and is_shared(config)


def _busy_groups(state: TableState) -> frozenset[FileGroupId]:
    """File groups that a compaction or clustering is planned for."""
    rivals = pending_rivals(state.storage, state.config, state.timeline)
    return frozenset(group for rival in rivals for group in rival.writes.rewritten)


def _row_bytes(state: TableState, size: int, rows: int) -> float:
    """What a row needs on disk: as in the newest commit with a file that is large enough to tell."""
    for instant in reversed(state.timeline.commits()):
        stats = [
            stat
            for stat in state.documents.commit(instant).stats
            if stat.file_size >= _TYPICAL_FILE_BYTES and stat.num_writes and stat.path.endswith(".parquet")
        ]
        if stats:
            return sum(stat.file_size for stat in stats) / sum(stat.num_writes for stat in stats)
    return max(size * _ENCODED_SHARE / max(rows, 1), 1.0)
