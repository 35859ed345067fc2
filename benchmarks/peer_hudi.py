"""Apache Hudi on Spark 3.5, and hudi-rs, behind a line protocol: a JSON request in, a JSON answer out.

usage: python -m benchmarks.peer_hudi BUNDLE_JAR FOLDER

Runs on the peer's interpreter. Times are taken here, around what a user would call. Ends when its input does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, SparkSession

from benchmarks.serving import serve

WRITES = {
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.bulkinsert.shuffle.parallelism": "4",
    "hoodie.insert.shuffle.parallelism": "4",
    "hoodie.upsert.shuffle.parallelism": "4",
    "hoodie.table.name": "bench",
}
"""Options of the writes that are measured: no table services, few tasks, the metadata table as by default."""
INDEXES = {
    False: {"hoodie.index.type": "SIMPLE"},
    True: {"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.global.record.level.index.enable": "true"},
}
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


def main(jar: Path, folder: Path) -> None:
    """Answers requests until there are no more."""
    serve(lambda: HudiPeer(make_session(jar, folder)))


def make_session(jar: Path, folder: Path) -> SparkSession:
    """Two cores and 3 GB, as the session of lakebed in these benchmarks."""
    settings = {
        "spark.jars": str(jar),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={folder / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("benchmarks")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of some work, and what it gave."""
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


class HudiPeer:
    """What can be asked for; each method is a request."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.rows: DataFrame | None = None

    def take(self, rows: str) -> dict[str, Any]:
        """Names the rows of the next write, which reads them."""
        self.rows = self.spark.read.parquet(rows)
        return {}

    def first_load(self, path: str, table_type: str, record_index: bool) -> dict[str, Any]:
        """Makes a table of the rows."""
        return self.write_rows(path, "bulk_insert", table_type, record_index)

    def upsert(self, path: str, table_type: str, record_index: bool) -> dict[str, Any]:
        """Upserts the rows."""
        return self.write_rows(path, "upsert", table_type, record_index)

    def write_rows(self, path: str, operation: str, table_type: str, record_index: bool) -> dict[str, Any]:
        """Writes the rows that were taken."""
        assert self.rows is not None
        named = {
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.table.type": TYPES[table_type],
        }
        writer = self.rows.write.format("hudi").options(**WRITES, **INDEXES[record_index], **named).mode("append")
        seconds, _ = timed(lambda: writer.save(path))
        return {"seconds": seconds}

    def cluster(self, path: str, order: str, record_index: bool) -> dict[str, Any]:
        """Plans and executes a clustering, with all indexes of the table kept up to date."""
        options = {"hoodie.metadata.index.column.stats.enable": "true", **(INDEXES[True] if record_index else {})}
        text = ",".join(f"{key}={value}" for key, value in options.items())
        call = f"call run_clustering(path => '{path}', order => '{order}', options => '{text}')"
        seconds, _ = timed(lambda: self.spark.sql(call).collect())
        return {"seconds": seconds}

    def totals(self, path: str) -> dict[str, Any]:
        """Numbers that tell whether another table has the same rows."""
        return {"totals": self.digest(path, ["count(*)", "sum(ts)"])["digest"]}

    def write(self, path: str, rows: str, mode: str, options: dict[str, str]) -> dict[str, Any]:
        """Writes the rows of a Parquet file to a table."""
        frame = self.spark.read.parquet(rows)
        seconds, _ = timed(lambda: frame.write.format("hudi").options(**options).mode(mode).save(path))
        return {"seconds": seconds}

    def compact(self, path: str) -> dict[str, Any]:
        """Plans a compaction of all slices that have logs, and executes it."""
        due = "options => 'hoodie.compact.inline.max.delta.commits=1'"

        def work() -> None:
            for operation in ("schedule", "execute"):
                self.spark.sql(f"call run_compaction(op => '{operation}', path => '{path}', {due})").collect()

        seconds, _ = timed(work)
        return {"seconds": seconds}

    def digest(self, path: str, columns: list[str]) -> dict[str, Any]:
        """Sums over a table, to tell whether another reader saw the same rows."""
        return {"digest": [int(value) for value in self.load(path).selectExpr(*columns).first()]}

    def scan(self, path: str) -> dict[str, Any]:
        """Opens a table, reads all of it and drops the rows."""
        seconds, _ = timed(lambda: self.load(path).write.format("noop").mode("overwrite").save())
        return {"seconds": seconds}

    def find(self, path: str, key: str) -> dict[str, Any]:
        """Opens a table and reads the row of a key, through the record index."""
        seconds, rows = timed(lambda: self.load(path).filter(f"uuid = '{key}'").collect())
        return {"seconds": seconds, "rows": len(rows)}

    def scan_rs(self, path: str) -> dict[str, Any]:
        """Opens a table with hudi-rs and reads all of it to Arrow."""
        seconds, batches = timed(lambda: HudiTableBuilder.from_base_uri(path).build().read())
        return {"seconds": seconds, "rows": sum(batch.num_rows for batch in batches)}

    def load(self, path: str) -> DataFrame:
        """A table, with the indexes of its metadata table in use."""
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
        return self.spark.read.format("hudi").options(**options).load(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
