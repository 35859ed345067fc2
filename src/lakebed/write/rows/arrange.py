"""What is done to prepared rows before they are written: generated keys, one row per key, sort order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.hfile.order import binary_buffers
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.kernels.key_numbers import number_keys
from lakebed.model.config import TableConfig
from lakebed.model.instant import InstantTime
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.write.rows.columns import joined
from lakebed.write.rows.keys import generate_keys


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the rows of a write are arranged. Picklable.

    It `combines` rows of one key, or `by_partition` of one key and partition; `sorts` them by key; `generates` keys.
    """

    config: TableConfig
    combines: bool = False
    by_partition: bool = True
    sorts: bool = False
    generates: bool = False

    def whole(self, rows: pa.Table, instant: InstantTime) -> pa.Table:
        """All rows of a write, arranged."""
        return self.sorted(self.combined(self.with_keys(rows, instant, 0)))

    def with_keys(self, rows: pa.Table, instant: InstantTime, task: int) -> pa.Table:
        """Rows of a task, with keys that no other task makes, if the table has none of its own."""
        return generate_keys(rows, instant, task) if self.generates else rows

    def combined(self, rows: pa.Table) -> pa.Table:
        """One row per key, if the write wants that."""
        if not self.combines:
            return rows
        config = self.config
        return combine_duplicates(rows, config.ordering_fields, config.merge_mode, by_partition=self.by_partition)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows by key; writing keeps their order inside each file, so both sort modes come to the same."""
        return rows.sort_by([(RECORD_KEY, "ascending")]) if self.sorts else rows


def combine_duplicates(
    rows: pa.Table, ordering_fields: Sequence[str], mode: MergeMode, *, by_partition: bool
) -> pa.Table:
    """Prepared rows, one per key, or per key and partition path; those that stay keep their order.

    Under event-time ordering the row with the greatest ordering value stays, several fields compared one after the
    other and null below all; of equal ones, and under commit-time ordering, the last. A row stays or goes as a whole,
    also where it updates some columns only. Rows without ordering columns, as deletes by key are, count as equal.
    """
    assert mode is not MergeMode.CUSTOM
    groups, count = _number_keys(rows, by_partition=by_partition)
    if count == rows.num_rows:
        return rows
    present = [name for name in ordering_fields if name in rows.column_names]
    if mode is MergeMode.COMMIT_TIME_ORDERING or not present:
        winners = np.empty(count, np.int64)
        winners[groups] = np.arange(len(groups))  # Of repeated places, the last assignment stays.
        return rows.take(pa.array(np.sort(winners)))
    return rows.filter(pa.array(_newest(rows, groups, present)))


def _newest(rows: pa.Table, groups: Int64s, ordering: Sequence[str]) -> Bools:
    """Which rows stay; only those whose key is repeated are compared."""
    repeated = np.bincount(groups)[groups] > 1
    numbers = np.flatnonzero(repeated)
    some = rows.select(list(ordering)).take(pa.array(numbers))
    ranks = _ranks([some[name] for name in ordering])
    order = np.lexsort((numbers, ranks, groups[numbers]))
    in_order = groups[numbers][order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    keep = ~repeated
    keep[numbers[order[is_last]]] = True
    return keep


def _ranks(columns: Sequence[pa.ChunkedArray]) -> Int64s:
    """Numbers that compare as the columns do, one after the other; null is lowest."""
    ranks = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        dense = _dense_rank(column)
        dense[pc.is_null(column).to_numpy()] = 0
        ranks = _dense_rank(pa.array(ranks * (dense.max(initial=0) + 1) + dense))
    return ranks


def _dense_rank(values: pa.Array | pa.ChunkedArray) -> Int64s:
    ranks: Int64s = pc.rank(values, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    return ranks


def _number_keys(rows: pa.Table, *, by_partition: bool) -> tuple[Int64s, int]:
    """For each row the number of its key, and how many keys there are."""
    keys = joined(rows[RECORD_KEY])
    paths = _path_codes(rows) if by_partition else np.empty(0, np.int64)
    return number_keys(*binary_buffers(keys), paths)


def _path_codes(rows: pa.Table) -> Int64s:
    """A number per row, equal for equal partition paths; none if all rows have the same."""
    encoded = joined(rows[PARTITION_PATH].unify_dictionaries())
    if len(encoded.dictionary) <= 1:
        return np.empty(0, np.int64)
    codes: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return codes
