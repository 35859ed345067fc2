"""The two ways to read on Spark, and the two to write, on one table: methods of the table, and `format("lakebed")`.

1,000,000 rows of about 90 bytes in 10 partitions, in a session of two cores. Reads are of a copy-on-write table, all
columns to a sink that drops them, or the sum of one. Each save is of a batch of upserts to a table of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, Batches, make_batches
from benchmarks.report import WARM_UPS, Line, alternate, faster_by, print_lines, stopwatch
from benchmarks.settings import Settings
from lakebed.engine.session import local_session

ROUNDS = 7


def main(settings: Settings) -> None:
    """Prints one table."""
    batches, folder = make_batches(settings.rows, settings.batch_rows), BENCH / "ways"
    shutil.rmtree(folder, ignore_errors=True)
    spark = local_session("benchmarks", cores=2, options={"spark.driver.memory": "3g"})
    lakebed.register(spark)
    try:
        tables = {name: _load(folder / name, batches) for name in ("methods", "format")}
        rounds = settings.rounds or ROUNDS
        lines = [*_reads(spark, tables["methods"], rounds), _writes(spark, tables, batches, rounds)]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print_lines(
        f"methods of the table beside format, {settings.rows:,} rows, batches of {settings.batch_rows:,}", lines
    )


def _load(path: Path, batches: Batches) -> str:
    rows = pq.read_table(batches.load)
    table = lakebed.create_table(path, schema=rows.schema, key=KEY, partition_by=PARTITION, ordering=ORDERING)
    table.bulk_insert(rows)
    return str(path)


def _reads(spark: SparkSession, path: str, rounds: int) -> list[Line]:
    def to_spark() -> DataFrame:
        return lakebed.open_table(path, spark=spark).to_spark()

    def by_format() -> DataFrame:
        return spark.read.format("lakebed").load(path)

    uses: dict[str, Callable[[DataFrame], object]] = {
        "all columns": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "the sum of one column": lambda frame: frame.selectExpr("sum(amount)").collect(),
        "a count": lambda frame: frame.count(),
    }
    lines = []
    for what, use in uses.items():
        ours, theirs = alternate(
            stopwatch(lambda use=use: use(to_spark())), stopwatch(lambda use=use: use(by_format())), rounds
        )
        lines.append(Line(f"{what}, to_spark", str(ours), "format, load", str(theirs), faster_by(ours, theirs)))
    return lines


def _writes(spark: SparkSession, tables: dict[str, str], batches: Batches, rounds: int) -> Line:
    numbers = {name: count() for name in tables}

    def batch(name: str) -> DataFrame:
        return spark.read.parquet(batches.batch(next(numbers[name])))

    def upsert() -> None:
        lakebed.open_table(tables["methods"]).upsert(batch("methods"))

    def save() -> None:
        batch("format").write.format("lakebed").mode("append").save(tables["format"])

    for number in range(rounds + WARM_UPS):  # Made before anything is measured.
        batches.batch(number)
    ours, theirs = alternate(stopwatch(upsert), stopwatch(save), rounds)
    return Line("upsert of a batch, upsert", str(ours), "format, save", str(theirs), faster_by(ours, theirs))
