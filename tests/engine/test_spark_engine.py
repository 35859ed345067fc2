"""Writes from DataFrames on a local session: what they do, that they evaluate their input once, how they fail."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lakebed
from engine import spark_writes
from engine.spark_servers import run_checks
from engine.spark_writes import (
    all_types,
    check_errors,
    check_left_nothing,
    check_same_as_arrow,
    new_table,
    tasks_on_spark,
)
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@contextmanager
def settings(spark: SparkSession, **given: str) -> Iterator[None]:
    """Settings of the session, put back afterwards."""
    names = {name: name.replace("__", ".") for name in given}
    before = {name: spark.conf.get(name) for name in names.values()}
    for name, value in given.items():
        spark.conf.set(names[name], value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class TestRows:
    """Rows of all types are what they are from Arrow, wherever the work is done and whatever the session is set to."""

    def test_tasks_on_spark_copy_on_write(self, spark: SparkSession, tmp_path: Path) -> None:
        with settings(spark, spark__sql__session__timeZone="America/Los_Angeles"), tasks_on_spark():
            check_same_as_arrow(spark, tmp_path, "cow")

    def test_tasks_on_spark_merge_on_read(self, spark: SparkSession, tmp_path: Path) -> None:
        with settings(spark, spark__sql__execution__arrow__useLargeVarTypes="true"), tasks_on_spark():
            check_same_as_arrow(spark, tmp_path, "mor")

    def test_tasks_in_the_driver(self, spark: SparkSession, tmp_path: Path) -> None:
        with settings(spark, spark__sql__execution__arrow__maxRecordsPerBatch="3"):
            check_same_as_arrow(spark, tmp_path, "mor")

    def test_what_was_read_can_be_written_back(self, spark: SparkSession, tmp_path: Path) -> None:
        table = new_table(spark, tmp_path / "table", "mor")
        table.upsert(all_types(spark, 0, 4, ts=1).toArrow())
        before = table.to_arrow().drop_columns(spark_writes.UNLIKE)
        assert table.upsert(table.to_spark(where="number < 2")).updated == 2
        after = table.to_arrow().drop_columns(spark_writes.UNLIKE)
        data = [name for name in before.column_names if name != "_hoodie_commit_time"]
        # Values alone: Spark calls fields of structs nullable, and so they become.
        assert after.select(data).sort_by("id").to_pylist() == before.select(data).sort_by("id").to_pylist()
        assert len(after["_hoodie_commit_time"].unique()) == 2

    def test_no_rows(self, spark: SparkSession, tmp_path: Path) -> None:
        table = new_table(spark, tmp_path / "table")
        with tasks_on_spark():
            result = table.upsert(all_types(spark, 0, 4, ts=1).where("rand() > 2"))
        assert (result.inserted, result.files) == (0, ())
        assert table.to_arrow().num_rows == 0
        check_left_nothing(tmp_path / "table")


class TestOnce:
    """Input is evaluated once: a value that is drawn by chance is the one that is stored."""

    def test_every_row_is_evaluated_once(self, spark: SparkSession, tmp_path: Path) -> None:
        table = lakebed.create_table(
            tmp_path / "table", schema=drawn(spark, tmp_path).schema, key="id", partition_by="city", indexes=["record"]
        )
        for run in ("first", "second"):
            notes = tmp_path / run
            notes.mkdir()
            with tasks_on_spark():
                table.upsert(drawn(spark, notes))
            check_drawn(table, noted(notes))

    def test_deletes_by_key_alone_evaluate_once(self, spark: SparkSession, tmp_path: Path) -> None:
        table = lakebed.create_table(
            tmp_path / "table", schema=drawn(spark, tmp_path).schema, key="id", partition_by="city"
        )
        notes = tmp_path / "notes"
        notes.mkdir()
        table.upsert([{"id": number, "city": "oslo", "value": 0.0} for number in range(40)])
        table.delete(drawn(spark, notes).where("value >= 0.5").select("id"))
        found = noted(notes)
        assert Counter(number for number, _ in found) == Counter(range(40))
        kept = table.to_arrow(columns=["id"])["id"].to_pylist()
        assert sorted(kept) == sorted(number for number, value in found if value < 0.5)


def drawn(spark: SparkSession, notes: Path) -> DataFrame:
    """Forty rows with a value by chance, shuffled once on their way; each evaluation of one is noted in a file."""
    from pyspark.sql import functions

    folder = str(notes)

    def note(number, value):  # Without types, which Spark would take for those of arrays.
        with open(f"{folder}/{os.getpid()}", "a") as file:
            file.write(json.dumps([number, value]) + "\n")
        return value

    once = functions.udf(note, "double").asNondeterministic()
    rows = spark.range(0, 40, 1, 2).select(
        "id",
        functions.expr("if(id % 2 = 0, 'oslo', 'lima')").alias("city"),
        once("id", functions.rand()).alias("value"),
    )
    return rows.repartition(2, "city")


def noted(notes: Path) -> list[tuple[int, float]]:
    """The evaluations of rows that were noted."""
    return [tuple(json.loads(line)) for path in notes.iterdir() for line in path.read_text().splitlines()]


def check_drawn(table: lakebed.Table, notes: list[tuple[int, float]]) -> None:
    assert Counter(number for number, _ in notes) == Counter(range(40))
    stored = table.to_arrow(columns=["id", "value"]).to_pylist()
    assert sorted((row["id"], row["value"]) for row in stored) == sorted(notes)


class TestFailures:
    """What is wrong arrives as what it is, and nothing is left of the write."""

    def test_errors_of_workers_arrive_typed(self, spark: SparkSession, tmp_path: Path) -> None:
        check_errors(spark, tmp_path)

    def test_errors_of_the_input_end_the_write(self, spark: SparkSession, tmp_path: Path) -> None:
        folder = tmp_path / "table"
        table = new_table(spark, folder)
        with pytest.raises(Exception, match="not this row"):
            table.upsert(all_types(spark, 0, 4, ts=1).where("assert_true(number < 3, 'not this row') is null"))
        check_left_nothing(folder)

    @pytest.mark.parametrize(
        ("query", "why"),
        [
            ("select 'a' as id, 'oslo' as city, 1L as ts, interval 1 day as took", "took.*interval"),
            ("select 'a' as id, 'oslo' as city, 1L as ts, parse_json('1') as any", "any.*variant"),
            ("select 'a' as id, 'oslo' as city, 1L as ts, null as nothing", "nothing.*void"),
            ("select 'a' as id, 'oslo' as city, 1L as ts, 2L as ts", "several columns named 'ts'"),
            ("select 'oslo' as city, 1L as ts", "id"),
        ],
    )
    def test_columns_that_cannot_be_written_start_no_job(
        self, spark: SparkSession, tmp_path: Path, query: str, why: str
    ) -> None:
        table = new_table(spark, tmp_path / "table")
        with pytest.raises(InvalidInputError, match=why):
            table.upsert(spark.sql(query))
        assert not table.timeline.instants


def test_work_of_failed_attempts_is_left_out(tmp_path: Path) -> None:
    # A local session retries only if its master says so, and that of this process does not.
    run_checks("retries", tmp_path, {"spark.master": "local[2,3]"})
