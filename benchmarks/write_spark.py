"""Writes on Spark: a first load and upserts, against Apache Hudi and Delta, each in a session of two cores and 3 GB.

The rows are a DataFrame over a Parquet file, and reading it is in every figure, as is the commit.
"""

from __future__ import annotations

from benchmarks.batches import make_batches
from benchmarks.report import print_lines
from benchmarks.settings import Settings
from benchmarks.write import Contender, compare, measure, title
from benchmarks.writers import running_writers

ROUNDS = 3
LOAD_TIMES_MIN, COW_TIMES_MIN, COW_TIMES_MIN_DELTA, MOR_TIMES_MIN = 6.0, 8.0, 3.0, 10.0


def main(settings: Settings) -> None:
    """Prints one table."""
    batches = make_batches(settings.rows, settings.batch_rows)
    with running_writers(("lakebed", "hudi", "delta"), on_spark=True) as writers:
        contenders = [Contender(writer, kind) for writer in writers.values() for kind in ("cow", "mor")]
        loads, upserts = measure(contenders, batches, settings, settings.rounds or ROUNDS)
    cow, mor = [("hudi", "cow"), ("delta", "cow")], [("hudi", "mor"), ("delta", "mor")]
    bars = {
        ("cow", "hudi"): COW_TIMES_MIN,
        ("cow", "delta"): COW_TIMES_MIN_DELTA,
        ("mor", "hudi"): MOR_TIMES_MIN,
    }
    lines = [
        *compare("first load, COW", ("lakebed", "cow"), cow, loads, {("cow", "hudi"): LOAD_TIMES_MIN}),
        *compare("upsert, COW", ("lakebed", "cow"), cow, upserts, bars),
        *compare("upsert, MOR (Delta: deletion vectors)", ("lakebed", "mor"), mor, upserts, bars),
    ]
    print_lines(title("on Spark, local[2]", settings), lines)
