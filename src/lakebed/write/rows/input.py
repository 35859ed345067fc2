"""Input of a write, which decides where it runs: Arrow and pandas in this process, Spark DataFrames on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakebed.engine.engines import InProcess
from lakebed.engine.exchange import Split
from lakebed.engine.spark import OnSpark
from lakebed.model.instant import InstantTime
from lakebed.model.words import META_COLUMNS
from lakebed.storage import Storage
from lakebed.write.rows.prepare import PreparePlan
from lakebed.write.rows.sources import arrow_batches, first_gaps, to_arrow_schema
from lakebed.write.staging import (
    Prepared,
    RowSource,
    Staged,
    StageTask,
    complete_columns,
    prepared_tables,
    shelf_of,
    stage_tables,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_DRIVER_BYTES = 256 << 20
"""Bytes of rows up to which the driver writes them itself, which is faster than Spark jobs."""
_READER_BYTES = 1 << 30
"""Bytes of prepared rows of a reader that are kept in memory; if there are more, all are staged."""


class Input(Protocol):
    """Rows to write. They are evaluated once."""

    @property
    def schema(self) -> pa.Schema:
        """Columns without meta columns."""
        ...

    @property
    def jobs(self) -> int:
        """Number of Spark jobs so far."""
        ...

    @property
    def gaps(self) -> Mapping[str, int]:
        """Columns that some rows lack, with the first row that lacks each."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in this process."""
        ...

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """A function that returns the prepared rows once the write has begun. Rows in memory are checked before."""
        ...


@dataclass(frozen=True, slots=True)
class ArrowInput:
    """Rows in this process. Beyond `bytes_max` they are staged: a reader may have more than fits into memory."""

    schema: pa.Schema
    source: Iterator[pa.RecordBatch]
    bytes_max: int | None = None
    gaps: Mapping[str, int] = field(default_factory=dict)

    @property
    def jobs(self) -> int:
        """Zero: nothing runs on Spark."""
        return 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return self.source

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """Prepares the rows at once, so that invalid rows are reported before anything is written.

        Rows that do not fit into memory are staged once the write has begun.
        """
        tables = prepared_tables(self.source, plan)
        held, is_all = _held(tables, self.bytes_max)
        if is_all:
            prepared = _joined(held, plan)
            return lambda *_: prepared

        def staged(instant: InstantTime, split: Split) -> Staged:
            shelf = shelf_of(storage, instant)
            part = stage_tables(shelf, chain(_let_go(held), tables), split, plan)
            return Staged(shelf, part.files, InProcess(), part.complete)

        return staged


@dataclass(frozen=True, slots=True)
class SparkInput:
    """A DataFrame. Workers prepare and stage its rows, so that it is evaluated only once."""

    schema: pa.Schema
    frame: DataFrame
    engine: OnSpark

    @property
    def jobs(self) -> int:
        """Number of Spark jobs so far."""
        return self.engine.jobs

    @property
    def gaps(self) -> Mapping[str, int]:
        """Empty: rows of a DataFrame have all columns."""
        return {}

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, collected on the driver."""
        yield from self.frame.toArrow().to_batches()

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """Stages the rows once the write has begun; invalid rows then fail the write."""

        def staged(instant: InstantTime, split: Split) -> Prepared | Staged:
            shelf = shelf_of(storage, instant)
            parts = self.engine.fold(self.frame, StageTask(shelf, plan, split))
            complete = plan.required.intersection(*(part.complete for part in parts))
            rows = Staged(shelf, tuple(file for part in parts for file in part.files), self.engine, complete)
            if rows.bytes > _DRIVER_BYTES:
                return rows
            return _joined([shelf.read_unsplit(file) for file in rows.files], plan)

        return staged


def open_input(rows: object) -> Input:
    """Input from rows of any supported type; raises InvalidInputError for others."""
    if _is_spark_frame(rows):
        return _open_frame(rows)
    schema, batches = arrow_batches(rows)
    bytes_max = _READER_BYTES if isinstance(rows, pa.RecordBatchReader) else None
    return ArrowInput(schema, batches, bytes_max, first_gaps(rows))


def _held(tables: Iterator[pa.Table], bytes_max: int | None) -> tuple[list[pa.Table], bool]:
    """The first tables, up to the limit, and whether these are all."""
    held, size = [], 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if bytes_max is not None and size > bytes_max:
            return held, False
    return held, True


def _let_go(held: list[pa.Table]) -> Iterator[pa.Table]:
    """Yields the tables, and releases each."""
    while held:
        yield held.pop(0)


def _joined(tables: list[pa.Table], plan: PreparePlan) -> Prepared:
    rows = pa.concat_tables(tables).unify_dictionaries() if tables else plan.schema.empty_table()
    return Prepared(rows, complete_columns(rows, plan.required))


def _open_frame(frame: Any) -> SparkInput:
    engine = OnSpark(frame.sparkSession)
    meta = [name for name in frame.columns if name in META_COLUMNS]
    if len(meta) == len(META_COLUMNS):
        frame = frame.drop(*meta)
    schema, _ = arrow_batches(to_arrow_schema(frame.schema).empty_table())
    return SparkInput(schema, frame, engine)


def _is_spark_frame(rows: object) -> bool:
    kind = type(rows)
    return kind.__module__.partition(".")[0] == "pyspark" and kind.__name__ == "DataFrame"
