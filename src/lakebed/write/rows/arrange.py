"""What becomes of prepared rows before they are written: keys, one row per key, their order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lakebed.model.config import TableConfig
from lakebed.model.instant import InstantTime
from lakebed.model.words import RECORD_KEY
from lakebed.write.rows.dedupe import combine_duplicates
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
