"""Scans of a table for indexes that are made of rows."""

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
        """What is read."""
        return self.task.file_slice

    @property
    def config(self) -> TableConfig:
        """The table's configuration."""
        return self.task.config

    def read(self, columns: Sequence[str] | None = None, keys: frozenset[str] | None = None) -> pa.Table:
        """The rows, with other columns or of some keys only if that is asked for."""
        task = self.task if columns is None else replace(self.task, columns=tuple(columns))
        return read_slice(task if keys is None else replace(task, keys=keys))


def scan_table(state: TableState, columns: Sequence[str]) -> list[SliceScan]:
    """A scan of each file slice of the newest snapshot."""
    slices = state.latest_slices
    scans = plan_slices(state, state.latest, slices, columns=columns, where=None, is_latest=True)
    return [*map(SliceScan, scans.tasks)]
