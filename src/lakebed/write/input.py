"""What a write is given, and where it therefore runs: Arrow and pandas in this process, Spark on its cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lakebed.engine.engines import InProcess
from lakebed.engine.spark import OnSpark
from lakebed.model.instant import InstantTime
from lakebed.model.words import META_COLUMNS
from lakebed.storage import Storage
from lakebed.write.inputs import arrow_batches, to_arrow_schema
from lakebed.write.prepare import PreparePlan
from lakebed.write.staging import Prepared, RowSource, StageTask, prepare_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_DRIVER_BYTES = 256 << 20
"""Rows that need no more are written by the driver: Spark jobs would take longer than the work."""


class Input(Protocol):
    """Rows that are about to be written. They are evaluated once."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns, without meta columns."""
        ...

    @property
    def jobs(self) -> int:
        """How many Spark jobs the work on them took so far."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in this process."""
        ...

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """What gives the prepared rows once the write has begun. Rows at hand are checked before it begins."""
        ...


@dataclass(frozen=True, slots=True)
class ArrowInput:
    """Rows in this process."""

    schema: pa.Schema
    source: Iterator[pa.RecordBatch]

    @property
    def jobs(self) -> int:
        """None: nothing runs on Spark."""
        return 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        return self.source

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """Prepares the rows at once: what is wrong with them shows before anything is written."""
        del storage
        prepared = Prepared(prepare_batches(self.source, plan), InProcess())
        return lambda _: prepared


@dataclass(frozen=True, slots=True)
class SparkInput:
    """A DataFrame. Workers prepare its rows and stage them, so that it is evaluated once, whatever it is made of."""

    schema: pa.Schema
    frame: DataFrame
    engine: OnSpark

    @property
    def jobs(self) -> int:
        """How many Spark jobs there were so far."""
        return self.engine.jobs

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, brought to the driver."""
        yield from self.frame.toArrow().to_batches()

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        """Stages the rows once the write has begun; what is wrong with them then ends the write."""

        def prepared(instant: InstantTime) -> Prepared:
            staged = self.engine.fold(self.frame, StageTask(storage, instant, plan))
            parts = [part for part in staged if part is not None]
            tables = [part.read() for part in parts]
            rows = pa.concat_tables(tables).unify_dictionaries() if tables else plan.schema.empty_table()
            is_small = sum(part.bytes for part in parts) <= _DRIVER_BYTES
            return Prepared(rows, InProcess() if is_small else self.engine)

        return prepared


def open_input(rows: object) -> Input:
    """Rows of any kind that a write takes; InvalidInputError for others."""
    if _is_spark_frame(rows):
        return _open_frame(rows)
    schema, batches = arrow_batches(rows)
    return ArrowInput(schema, batches)


def _open_frame(frame: Any) -> SparkInput:
    meta = [name for name in frame.columns if name in META_COLUMNS]
    if len(meta) == len(META_COLUMNS):
        frame = frame.drop(*meta)
    schema, _ = arrow_batches(to_arrow_schema(frame.schema).empty_table())
    return SparkInput(schema, frame, OnSpark(frame.sparkSession))


def _is_spark_frame(rows: object) -> bool:
    kind = type(rows)
    return kind.__module__.partition(".")[0] == "pyspark" and kind.__name__ == "DataFrame"
