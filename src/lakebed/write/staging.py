"""Rows on their way between processes: Arrow files in the folder of an instant's markers, gone with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.engines import Engine
from lakebed.engine.randomness import new_token
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.transaction.markers import marker_folder
from lakebed.transaction.settle import create_file
from lakebed.write.prepare import PreparePlan, prepare_batch


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows in a file."""

    storage: Storage
    path: str
    rows: int
    bytes: int

    def read(self) -> pa.Table:
        """The rows."""
        with self.storage.arrow_file(self.path) as file:
            return pa.ipc.open_file(file).read_all()


def stage_table(storage: Storage, instant: InstantTime, table: pa.Table) -> Staged:
    """Puts rows where any process of the write finds them."""
    path = f"{marker_folder(instant)}/rows-{new_token()}.arrow"
    sink = pa.BufferOutputStream()
    # One dictionary per column: the file format has no replacements.
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.unify_dictionaries())
    create_file(storage, path, sink.getvalue().to_pybytes())
    return Staged(storage, path, table.num_rows, table.nbytes)


@dataclass(frozen=True, slots=True)
class StageTask:
    """Prepares rows in a worker and stages them; each call makes a new file, and its result says which."""

    storage: Storage
    instant: InstantTime
    plan: PreparePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Staged | None:
        """The prepared rows of one partition of the input; None if it has none."""
        rows = prepare_batches(batches, self.plan)
        return stage_table(self.storage, self.instant, rows) if rows.num_rows else None


def prepare_batches(batches: Iterator[pa.RecordBatch], plan: PreparePlan) -> pa.Table:
    """The prepared rows of batches, in their order."""
    tables, first_row = [], 0
    for batch in batches:
        tables.append(prepare_batch(batch, plan, first_row=first_row))
        first_row += batch.num_rows
    return pa.concat_tables(tables).unify_dictionaries() if tables else plan.schema.empty_table()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Prepared rows, and where the rest of the work on them is done."""

    rows: pa.Table
    engine: Engine


RowSource = Callable[[InstantTime], Prepared]
"""Gives prepared rows once the instant that writes them has begun."""
