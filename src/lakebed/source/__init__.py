"""`format("lakebed")`: tables for Spark's own readers and writers, with the options of Hudi jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.engine.session import ensure_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `spark.read.format("lakebed")` and `df.write.format("lakebed")` known to a Spark session.

    They take the `hoodie.*` options of Hudi jobs. Raises InvalidInputError if Spark is too old, or its workers cannot
    run lakebed.
    """
    ensure_workers(spark)  # Checks the release of Spark, without which the import fails.
    from lakebed.source.source import LakebedSource

    spark.dataSource.register(LakebedSource)
