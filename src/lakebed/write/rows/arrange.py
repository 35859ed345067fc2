"""What is done to prepared rows before they are written: generated keys, one row per key, sort order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels.buffers import Bools, Int64s
from lakebed.kernels.key_numbers import number_keys
from lakebed.model.config import TableConfig
from lakebed.model.instant import InstantTime
from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.read.merge import rank_rows
from lakebed.write.rows.columns import joined
from lakebed.write.rows.keys import generate_keys


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the rows of a write are arranged. Picklable.

    `combines`: keeps one row per key, or per key and partition if `by_partition`. `sorts`: sorts by key. `generates`:
    generates keys.
    """

    config: TableConfig
    combines: bool = False
    by_partition: bool = True
    sorts: bool = False
    generates: bool = False

    def whole(self, rows: pa.Table, instant: InstantTime) -> pa.Table:
        """Arranges all rows of a write."""
        return self.sorted(self.combined(self.with_keys(rows, instant, 0)))

    def with_keys(self, rows: pa.Table, instant: InstantTime, task: int) -> pa.Table:
        """Rows of a task, with keys unique to the task if the table generates keys."""
        return generate_keys(rows, instant, task) if self.generates else rows

    def combined(self, rows: pa.Table) -> pa.Table:
        """Rows combined to one per key, if `combines`."""
        if not self.combines:
            return rows
        config = self.config
        return combine_duplicates(rows, config.ordering_fields, config.merge_mode, by_partition=self.by_partition)

    def sorted(self, rows: pa.Table) -> pa.Table:
        """Rows sorted by key, if `sorts`. Files keep this order, so both of Hudi's sort modes are the same here."""
        return rows.sort_by([(RECORD_KEY, "ascending")]) if self.sorts else rows


def combine_duplicates(
    rows: pa.Table, ordering_fields: Sequence[str], mode: MergeMode, *, by_partition: bool
) -> pa.Table:
    """Keeps one row per key, or per key and partition path, in the order of the input.

    With event-time ordering, the row with the greatest ordering value wins; several fields compare lexicographically,
    null is lowest. Of equal rows, and with commit-time ordering, the last wins. Partial updates are not combined: the
    winner is kept as it is. Rows without ordering columns, such as deletes by key, count as equal.
    """
    assert mode is not MergeMode.CUSTOM
    groups, count = _number_keys(rows, by_partition=by_partition)
    if count == rows.num_rows:
        return rows
    present = [name for name in ordering_fields if name in rows.column_names]
    if mode is MergeMode.COMMIT_TIME_ORDERING or not present:
        winners = np.empty(count, np.int64)
        winners[groups] = np.arange(len(groups))  # Of repeated indices, the last assignment wins.
        return rows.take(pa.array(np.sort(winners)))
    return rows.filter(pa.array(_newest(rows, groups, present)))


def _newest(rows: pa.Table, groups: Int64s, ordering: Sequence[str]) -> Bools:
    """Which rows win; compares only those with a repeated key."""
    repeated = np.bincount(groups)[groups] > 1
    numbers = np.flatnonzero(repeated)
    some = rows.select(list(ordering)).take(pa.array(numbers))
    ranks = rank_rows([some[name] for name in ordering], some.num_rows)
    order = np.lexsort((numbers, ranks, groups[numbers]))
    in_order = groups[numbers][order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    keep = ~repeated
    keep[numbers[order[is_last]]] = True
    return keep


def _number_keys(rows: pa.Table, *, by_partition: bool) -> tuple[Int64s, int]:
    """The number of each row's key, and the number of distinct keys."""
    keys = joined(rows[RECORD_KEY])
    paths = _path_codes(rows) if by_partition else np.empty(0, np.int64)
    return number_keys(*binary_buffers(keys), paths)


def _path_codes(rows: pa.Table) -> Int64s:
    """A code per row, equal for equal partition paths; empty if all rows have the same path."""
    encoded = joined(rows[PARTITION_PATH].unify_dictionaries())
    if len(encoded.dictionary) <= 1:
        return np.empty(0, np.int64)
    codes: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return codes
