"""What an index wants from each written file: bytes made from some columns, by the task that has the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

Gather = Callable[[Sequence[pa.Table]], bytes]
"""Makes bytes from the rows of a file. It gets one table per block, without columns that the block lacks. Picklable."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The `columns` that write tasks pass to `gather`, for the index of a metadata-table partition."""

    partition: str
    columns: tuple[str, ...]
    gather: Gather


def gather_all(wanted: Sequence[Wanted], tables: Sequence[pa.Table]) -> dict[str, bytes]:
    """What indexes want from the rows of a file, by metadata-table partition."""
    return {each.partition: each.gather([_selected(table, each.columns) for table in tables]) for each in wanted}


def _selected(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    return table.select([name for name in columns if name in table.column_names])
