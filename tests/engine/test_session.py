from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def interpreter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([sys.executable] * len(batch))], names=["python"])


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    rows = spark.range(2).mapInArrow(interpreter, "python string").toArrow()
    assert set(rows["python"].to_pylist()) == {sys.executable}


def test_timestamps_are_shown_in_utc(spark: SparkSession) -> None:
    [row] = spark.sql("select cast(timestamp'2024-01-02 03:04:05+01:00' as string) as at").collect()
    assert row.at == "2024-01-02 02:04:05"


def test_nothing_listens_beyond_this_machine(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"


def test_arrow_goes_in_and_comes_out(spark: SparkSession) -> None:
    rows = pa.table({"id": ["a", "b"], "n": [1, None]})
    assert spark.createDataFrame(rows).toArrow().to_pydict() == rows.to_pydict()
