"""Prepared rows of a write: in memory, or staged in the instant's marker folder, which is deleted with the markers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.engines import Engine
from lakebed.engine.exchange import Shelf, Split, StagedFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.transaction.markers import marker_folder
from lakebed.write.rows.prepare import PreparePlan, prepare_batch

CHUNK_BYTES = 64 << 20
"""Bytes of rows that a task collects before it stages them."""


@dataclass(frozen=True, slots=True)
class StageTask:
    """Prepares rows in a worker and stages them, split; each call writes new files."""

    shelf: Shelf
    plan: PreparePlan
    split: Split

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        """Stages the rows of one partition of the input."""
        return stage_tables(self.shelf, prepared_tables(batches, self.plan), self.split, self.plan)


@dataclass(frozen=True, slots=True)
class StagedPart:
    """Prepared rows that a task has staged, and the required columns that have no nulls in them."""

    files: tuple[StagedFile, ...]
    complete: frozenset[str]


def stage_tables(shelf: Shelf, tables: Iterable[pa.Table], split: Split, plan: PreparePlan) -> StagedPart:
    """Stages prepared rows in chunks."""
    complete, files = plan.required, []
    for chunk in _chunks(tables):
        rows = pa.concat_tables(chunk).unify_dictionaries()
        complete = complete_columns(rows, complete)
        files.append(shelf.put_split(rows, split))
    return StagedPart(tuple(file for file in files if file is not None), complete)


def complete_columns(rows: pa.Table, required: frozenset[str]) -> frozenset[str]:
    """The `required` columns that have no nulls."""
    return frozenset(name for name in required if not rows[name].null_count)


def prepared_tables(batches: Iterator[pa.RecordBatch], plan: PreparePlan) -> Iterator[pa.Table]:
    """The prepared rows of each batch."""
    first_row = 0
    for batch in batches:
        yield prepare_batch(batch, plan, first_row=first_row)
        first_row += batch.num_rows


def shelf_of(storage: Storage, instant: InstantTime) -> Shelf:
    """The staging area of an instant."""
    return Shelf(storage, marker_folder(instant))


def _chunks(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    held, size = [], 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size >= CHUNK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prepared rows in memory, to be written by this process. `complete` is as in `StagedPart`."""

    rows: pa.Table
    complete: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Staged:
    """Staged rows, and the engine that writes them."""

    shelf: Shelf
    files: tuple[StagedFile, ...]
    engine: Engine
    complete: frozenset[str] = frozenset()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Their size in bytes."""
        return sum(file.bytes for file in self.files)


RowSource = Callable[[InstantTime, Split], Prepared | Staged]
"""Returns the prepared rows once the instant has begun: in memory or, if there are too many, staged and split."""
