"""Apache Hudi on Spark 3.5, and hudi-rs, as readers and writers of given tables: a JSON request in, a JSON answer out.

usage: hudi_server.py BUNDLE_JAR FOLDER

Runs on the peer's interpreter, in one process for all tests: a JVM takes long to start. Rows travel as Parquet files.
Ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema


def main(jar: Path, folder: Path) -> None:
    """Answers requests until there are no more."""
    answers = take_stdout()
    server = HudiServer(make_session(jar, folder))
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(server, request.pop("do"))(**request)
        except Exception as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
            answer = {"error": causes(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    server.spark.stop()


def take_stdout() -> TextIO:
    """Stdout for answers alone: what Java and Rust print goes to stderr from here on."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def make_session(jar: Path, folder: Path) -> SparkSession:
    """One session for all tables, in UTC."""
    settings = {
        "spark.jars": str(jar),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The quick compiler alone: tables are small, and most of the time goes into code that has just been loaded.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC "
        f"-Dderby.system.home={folder / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    load_payload_class(spark)
    return spark


def load_payload_class(spark: SparkSession) -> None:
    """Works around a defect of Apache Hudi 1.2, which has nothing to do with who wrote the table.

    HoodieMetadataPayload tells its schema by identity, from a cache. If the first thing that a process does is to
    compact a metadata table, the cache has another copy by the time that the class is loaded, and every later write
    fails with `ArrayIndexOutOfBoundsException: Index 9 out of bounds for length 7`. So it is loaded first.
    """
    java = spark._jvm.java.lang
    loader = java.Thread.currentThread().getContextClassLoader()
    java.Class.forName("org.apache.hudi.metadata.HoodieMetadataPayload", True, loader)


def causes(error: Exception) -> str:
    """The messages of a Java stack trace without its frames."""
    lines = [
        line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", "An error occurred"))
    ]
    return "\n".join([type(error).__name__, *lines])[:3000]


class HudiServer:
    """What can be asked for; each public method is a request."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._running: list[tuple[threading.Thread, dict[str, Any]]] = []

    def read(self, path: str, outs: list[str], options: dict[str, str], filters: list[str]) -> dict[str, Any]:
        """Apache Hudi's rows of a table, meta columns first, as a Parquet file for each filter."""
        frame = self.spark.read.format("hudi").options(**options).load(path)
        for out, where in zip(outs, filters, strict=True):
            self._keep(frame.where(where), out)
        return {}

    def read_rs(self, path: str, out: str) -> dict[str, Any]:
        """The rows that hudi-rs reads, as a Parquet file."""
        batches = HudiTableBuilder.from_base_uri(path).build().read()
        pq.write_table(pa.Table.from_batches(batches) if batches else pa.table({}), out)
        return {}

    def write(self, path: str, rows: str, options: dict[str, str]) -> dict[str, Any]:
        """Writes the rows of a Parquet file to a table."""
        frame = self.spark.read.parquet(rows).coalesce(1)
        frame.write.format("hudi").options(**options).mode("append").save(path)
        return {}

    def sql(self, statements: list[str], settings: dict[str, str] | None = None) -> dict[str, Any]:
        """Runs statements, with session settings for their time; the rows of the last, as text."""
        for key, value in (settings or {}).items():
            self.spark.conf.set(key, value)
        try:
            rows: list[Any] = []
            for statement in statements:
                rows = self.spark.sql(statement).collect()
        finally:
            for key in settings or {}:
                self.spark.conf.unset(key)
        return {"rows": [[str(value) for value in row] for row in rows]}

    def schedule_index(self, path: str, kinds: list[str], options: dict[str, str]) -> dict[str, Any]:
        """Plans indexes, as its indexer does; the instant of the plan."""
        jvm = self.spark._jvm
        types, none = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
        for kind in kinds:
            types.add(getattr(jvm.org.apache.hudi.metadata.MetadataPartitionType, kind))
        client = self._client(path, options)
        try:
            return {"instant": client.scheduleIndexing(types, none).get()}
        finally:
            client.close()

    def index(self, path: str, instant: str, options: dict[str, str]) -> dict[str, Any]:
        """Executes the plan of an index."""
        client = self._client(path, options)
        try:
            client.index(instant)
        finally:
            client.close()
        return {}

    def schedule_compaction(self, path: str, options: dict[str, str]) -> dict[str, Any]:
        """Plans a compaction; its instant, or None if there is nothing to do."""
        client = self._client(path, options)
        try:
            found = client.scheduleCompaction(self.spark._jvm.org.apache.hudi.common.util.Option.empty())
            return {"instant": found.get() if found.isPresent() else None}
        finally:
            client.close()

    def compact(self, path: str, instant: str, options: dict[str, str]) -> dict[str, Any]:
        """Executes the plan of a compaction and commits it."""
        client = self._client(path, options)
        try:
            done = client.compact(instant)
            client.commitCompaction(instant, done, self.spark._jvm.org.apache.hudi.common.util.Option.empty())
        finally:
            client.close()
        return {}

    def start(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Begins another request, beside those that follow."""
        answer: dict[str, Any] = {}

        def run() -> None:
            try:
                answer.update(getattr(self, what)(**arguments))
            except Exception as error:
                sys.stderr.write(f"{error}\n")
                answer["error"] = causes(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self._running.append((thread, answer))
        return {}

    def is_running(self) -> dict[str, Any]:
        """Whether what was started still runs."""
        return {"running": any(thread.is_alive() for thread, _ in self._running)}

    def join(self) -> dict[str, Any]:
        """Waits for what was started; its answer."""
        thread, answer = self._running.pop()
        thread.join()
        return answer

    def _client(self, path: str, options: dict[str, str]) -> Any:
        jvm = self.spark._jvm
        properties = jvm.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        config = jvm.org.apache.hudi.config.HoodieWriteConfig.newBuilder().withPath(path).withProps(properties).build()
        context = jvm.org.apache.hudi.client.common.HoodieSparkEngineContext(self.spark.sparkContext._jsc)
        return jvm.org.apache.hudi.client.SparkRDDWriteClient(context, config)

    def _keep(self, frame: DataFrame, out: str) -> None:
        pq.write_table(pa.Table.from_batches(frame._collect_as_arrow(), to_arrow_schema(frame.schema)), out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
