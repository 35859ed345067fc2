"""Scans of a table, for building and checking indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.model.config import TableConfig
from lakebed.model.files import FileSlice
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import plan_slices
from lakebed.table import TableState


@dataclass(frozen=True, slots=True)
class SliceScan:
    """A scan of one file slice."""

    task: SliceTask

    @property
    def file_slice(self) -> FileSlice:
        """The file slice to read."""
        return self.task.file_slice

    @property
    def config(self) -> TableConfig:
        """The table's configuration."""
        return self.task.config

    def read(self, columns: Sequence[str] | None = None, keys: frozenset[str] | None = None) -> pa.Table:
        """Reads the rows; `columns` and `keys` override those of the scan."""
        task = self.task if columns is None else replace(self.task, columns=tuple(columns))
        return read_slice(task if keys is None else replace(task, keys=keys))


def scan_table(state: TableState, columns: Sequence[str]) -> list[SliceScan]:
    """One scan per file slice of the newest snapshot."""
    slices = state.latest_slices
    scans = plan_slices(state, state.latest, slices, columns=columns, where=None, is_latest=True)
    return [*map(SliceScan, scans.tasks)]
