"""Delta on Spark behind the line protocol. Runs on an interpreter of its own.

usage: peer_delta.py FOLDER JAR...
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.serving import serve, timed

MERGE = """
MERGE INTO delta.`{path}` t USING incoming s ON t.city = s.city AND t.uuid = s.uuid
WHEN MATCHED AND s.ts >= t.ts THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""


class DeltaPeer:
    """What can be asked for; each method is a request."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def take(self, rows: str) -> dict[str, Any]:
        """Names the rows of the next write, which reads them."""
        self.spark.read.parquet(rows).createOrReplaceTempView("incoming")
        return {}

    def first_load(self, path: str, table_type: str, **_: object) -> dict[str, Any]:
        """Makes a table of the rows. Instead of merging on read, Delta has deletion vectors."""
        vectors = "true" if table_type == "mor" else "false"
        writer = self.spark.table("incoming").write.format("delta").partitionBy("city")
        return timed(lambda: writer.option("delta.enableDeletionVectors", vectors).save(path))

    def upsert(self, path: str, **_: object) -> dict[str, Any]:
        """Merges the rows; a key is looked for in its own partition, as lakebed does."""
        return timed(lambda: self.spark.sql(MERGE.format(path=path)))

    def totals(self, path: str) -> dict[str, Any]:
        """Numbers that tell whether another table has the same rows."""
        found = self.spark.read.format("delta").load(path).selectExpr("count(*)", "sum(ts)").first()
        return {"totals": [int(value) for value in found]}


def make_session(folder: str, jars: list[str]) -> SparkSession:
    """Two cores and 3 GB, as the session of lakebed in these benchmarks, and as many shuffle partitions as Hudi has."""
    settings = {
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={folder}/derby",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    serve(lambda: DeltaPeer(make_session(sys.argv[1], sys.argv[2:])))
