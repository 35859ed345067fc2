"""Rows of a table as reports: the first of a read, or those of record keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.api import Table, handle_of
from lakebed.engine.engines import map_tasks
from lakebed.model.words import RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.read.scan import SNAPSHOT, plan_scan


@dataclass(frozen=True, slots=True)
class RowsReport:
    """Rows of a table. `more` says that the table has others, which were not asked for."""

    table: str
    rows: pa.Table
    more: bool = False


@dataclass(frozen=True, slots=True)
class LookupReport:
    """The rows of record keys, and the keys that the table does not have."""

    table: str
    rows: pa.Table
    missing: tuple[str, ...]


def rows_report(
    table: Table,
    *,
    limit: int,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    as_of: str | None = None,
    mode: str = SNAPSHOT,
) -> RowsReport:
    """The first `limit` rows of a read; slices that they do not need are not opened."""
    plan = plan_scan(handle_of(table).state(), columns=columns, where=where, as_of=as_of, mode=mode)
    parts = [plan.schema.empty_table()]
    count = 0
    for part in _read_in_waves(plan.tasks):
        parts.append(part)
        count += part.num_rows
        if count > limit:
            break
    return RowsReport(table.config.name, pa.concat_tables(parts).slice(0, limit), more=count > limit)


def lookup_report(table: Table, keys: Sequence[str], columns: Sequence[str] | None = None) -> LookupReport:
    """The rows of record keys, and which keys have none."""
    asked = None if columns is None else list(dict.fromkeys([*columns, RECORD_KEY]))
    rows = table.lookup(keys, asked)
    found = set(rows[RECORD_KEY].to_pylist())
    missing = tuple(key for key in dict.fromkeys(keys) if key not in found)
    return LookupReport(table.config.name, rows if columns is None else rows.select(columns), missing)


def _read_in_waves(tasks: Sequence[SliceTask]) -> Iterator[pa.Table]:
    """The slices' rows in order: one slice, then two at once, then four, so that few rows cost little."""
    start, wave = 0, 1
    while start < len(tasks):
        yield from map_tasks(tasks[start : start + wave], read_slice)
        start, wave = start + wave, wave * 2
