"""Writes the tables of `histories` with Apache Hudi, and beside each of them what Apache Hudi reads from it.

usage: hudi_writer.py OUT SEED COUNT BUNDLE_JAR

Runs on the peer's interpreter (Spark 3.5). OUT/<table> is a table, OUT/<table>.json its manifest: design, steps, and
the reads with the Parquet file that holds their rows.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from histories import COMMIT_TIME, Design, Step, histories
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

LOCK_PROVIDER = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
INDEX_OPTIONS = {
    "record": {
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
    },
    "record_partitioned": {
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
    },
    "column_stats": {"hoodie.metadata.index.column.stats.enable": "true"},
    "bloom": {"hoodie.metadata.index.bloom.filter.enable": "true"},
}
FRUGAL = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.commits.archival.batch": "1",
}
OPERATIONS = {
    "bulk_insert": "bulk_insert",
    "delete": "delete",
    "evolve": "upsert",
    "insert": "insert",
    "insert_overwrite": "insert_overwrite",
    "insert_overwrite_table": "insert_overwrite_table",
    "soft_delete": "upsert",
    "upsert": "upsert",
}
META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
COMPLETED = re.compile(r"(\d{14,17})(?:_(\d{17}))?\.(commit|deltacommit|replacecommit)")


def main(out: Path, seed: int, count: int, jar: Path) -> None:
    """Write `count` tables under `out`."""
    spark = make_session(jar, out)
    for design, steps in histories(seed, count):
        started = time.monotonic()
        Table(spark, out / design.name, design, Random(f"{seed} {design.name}")).make(steps)
        sys.stdout.write(f"{design.name}: {time.monotonic() - started:.1f} s\n")
        sys.stdout.flush()
    spark.stop()


def make_session(jar: Path, out: Path) -> SparkSession:
    """One session for all tables, in UTC."""
    settings = {
        "spark.jars": str(jar),
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.warehouse.dir": str(out / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -Dderby.system.home={out / 'derby'}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def table_options(design: Design) -> dict[str, str]:
    """The options that every write of a table gives, lest Apache Hudi drop an index that one of them does not name."""
    options = {
        "hoodie.table.name": design.name,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if design.mor else "COPY_ON_WRITE",
        "hoodie.write.table.version": str(design.version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.write.record.merge.mode": design.merge_mode,
        "hoodie.datasource.write.recordkey.field": ",".join(design.keys),
        "hoodie.datasource.write.partitionpath.field": ",".join(column.name for column in design.partitioned_by),
        "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{key_generator(design)}",
        "hoodie.datasource.write.hive_style_partitioning": str(design.hive_style).lower(),
        "hoodie.datasource.write.partitionpath.urlencode": str(design.url_encoded).lower(),
        "hoodie.metadata.enable": str(design.metadata).lower(),
        "hoodie.logfile.data.block.format": design.log_blocks,
        "hoodie.write.record.positions": str(design.positions).lower(),
        "hoodie.parquet.small.file.limit": "0" if design.small_files else "104857600",
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": str(design.frugal).lower(),
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.complex.keygen.validation.enable": "false",
        "hoodie.metadata.compact.max.delta.commits": "3" if design.compacts_metadata else "100",
        "hoodie.record.index.update.partition.path": str(design.moves_keys).lower(),
        "hoodie.metadata.global.record.level.index.min.filegroup.count": str(design.shards),
        "hoodie.metadata.global.record.level.index.max.filegroup.count": str(design.shards),
        **{f"hoodie.{kind}.shuffle.parallelism": "2" for kind in ("upsert", "insert", "bulkinsert", "delete")},
        **(FRUGAL if design.frugal else {}),
    }
    if design.merge_mode != COMMIT_TIME:
        options["hoodie.datasource.write.precombine.field"] = "ts"
    for index in sorted(design.indexes & INDEX_OPTIONS.keys()):
        options.update(INDEX_OPTIONS[index])
    return options


def key_generator(design: Design) -> str:
    """The class that spells keys and partition paths."""
    if not design.partitioned_by:
        return "NonpartitionedKeyGenerator"
    return "SimpleKeyGenerator" if len(design.keys) == len(design.partitioned_by) == 1 else "ComplexKeyGenerator"


def causes(error: Exception) -> str:
    """The messages of a Java stack trace without its frames."""
    lines = [
        line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", "An error occurred"))
    ]
    return "\n".join([type(error).__name__, *lines])[:2000]


class Commit(NamedTuple):
    """A completed write on the timeline."""

    requested: str
    completed: str
    file: Path


class Table:
    """One table under the hands of Apache Hudi."""

    def __init__(self, spark: SparkSession, path: Path, design: Design, random: Random) -> None:
        self.spark = spark
        self.path = path
        self.design = design
        self.random = random
        self.options = table_options(design)
        self.reads: list[dict[str, Any]] = []
        self.done: list[dict[str, Any]] = []

    def make(self, steps: list[Step]) -> None:
        """Carry out the steps, read the table in many ways, write the manifest."""
        for key, value in self.options.items():
            self.spark.conf.set(key, value)  # SQL statements and procedures take their options from here.
        first, *others = steps
        for step in (first, Step("create_indexes"), *others):
            self.attempt(step)
        self.dump()
        for key in self.options:
            self.spark.conf.unset(key)
        manifest = {"design": asdict(self.design), "steps": self.done, "reads": self.reads}
        text = json.dumps(
            manifest, indent=1, default=lambda value: sorted(value) if isinstance(value, frozenset) else str(value)
        )
        self.path.with_suffix(".json").write_text(text)

    def attempt(self, step: Step) -> None:
        """Run one step; a refusal by Apache Hudi is noted, not hidden."""
        note: dict[str, Any] = {"action": step.action, "rows": len(step.rows)}
        started = time.monotonic()
        try:
            if step.action in OPERATIONS:
                self.write(OPERATIONS[step.action], step)
            else:
                getattr(self, step.action)(step)
        except Exception as error:
            note["refused"] = causes(error)
        note["seconds"] = round(time.monotonic() - started, 1)
        self.done.append(note)

    def sql(self, statement: str) -> list[Any]:
        return self.spark.sql(statement).collect()

    def register(self) -> str:
        """The table's name in the catalog, where it is entered anew: an entry does not follow changes of the schema."""
        self.sql(f"drop table if exists {self.design.name}")
        self.sql(f"create table {self.design.name} using hudi location '{self.path}'")
        return self.design.name

    def write(self, operation: str, step: Step) -> None:
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in step.columns)
        self.save(operation, self.spark.createDataFrame(list(step.rows), ddl).coalesce(1), {})

    def save(self, operation: str, rows: DataFrame, more: dict[str, str]) -> None:
        options = {**self.options, "hoodie.datasource.write.operation": operation, **more}
        rows.write.format("hudi").options(**options).mode("append").save(str(self.path))

    # Steps other than plain writes, by the name that histories give them.

    def create_indexes(self, _: Step) -> None:
        """Indexes that only a statement makes."""
        name = self.register()
        if "secondary" in self.design.indexes:
            self.sql(f"create index by_tag on {name} (tag)")
        if "expression" in self.design.indexes:
            expression = "options(expr='from_unixtime', format='yyyy-MM-dd')"
            self.sql(f"create index by_day on {name} using column_stats(ts) {expression}")

    def delete_partition(self, step: Step) -> None:
        partitions = sorted({row[0] for row in self.load().select("_hoodie_partition_path").collect()})
        some = self.load().limit(1).drop(*META_COLUMNS)
        victim = partitions[int(step.draw * len(partitions))]
        self.save("delete_partition", some, {"hoodie.datasource.write.partitions.to.delete": victim})

    def sql_update(self, step: Step) -> None:
        self.sql(f"update {self.register()} set c0 = null, ts = ts + 3 where num % 3 = {int(step.draw * 3)}")

    def schedule_compaction(self, _: Step) -> None:
        self.compaction("schedule")

    def compact(self, _: Step) -> None:
        self.compaction("schedule")
        self.compaction("run")

    def compaction(self, operation: str) -> None:
        threshold = "hoodie.compact.inline.max.delta.commits=1"
        self.sql(f"call run_compaction(op => '{operation}', table => '{self.design.name}', options => '{threshold}')")

    def cluster(self, _: Step) -> None:
        self.sql(f"call run_clustering(table => '{self.design.name}', order => 'num')")

    def clean(self, _: Step) -> None:
        self.sql(
            f"call run_clean(table => '{self.design.name}', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 2)"
        )

    def rollback(self, step: Step) -> None:
        self.write("upsert", step)
        self.sql(
            f"call rollback_to_instant(table => '{self.design.name}', instant_time => '{self.commits()[-1].requested}')"
        )

    def savepoint_restore(self, step: Step) -> None:
        last = self.commits()[-1].requested
        self.sql(f"call create_savepoint(table => '{self.design.name}', commit_time => '{last}')")
        self.write("upsert", step)
        self.sql(f"call rollback_to_savepoint(table => '{self.design.name}', instant_time => '{last}')")
        self.sql(f"call delete_savepoint(table => '{self.design.name}', instant_time => '{last}')")

    def crash(self, step: Step) -> None:
        """Write as a writer that dies before it publishes its commit."""
        self.write("upsert", step)
        file = self.commits()[-1].file
        file.unlink()
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def crash_recover(self, step: Step) -> None:
        """Die, and let the next writer roll back what is left."""
        self.crash(step)
        self.write("upsert", step)

    def commits(self) -> list[Commit]:
        """Completed writes of the active timeline, by requested time."""
        folder = self.path / ".hoodie" / ("timeline" if self.design.version >= 8 else "")
        found = [(COMPLETED.fullmatch(file.name), file) for file in folder.iterdir()]
        return sorted(Commit(name[1], name[2] or name[1], file) for name, file in found if name)

    # Reads.

    def dump(self) -> None:
        """What Apache Hudi reads: the table as it is and as it was, its changes, and some filters on it."""
        commits = self.commits()
        if not commits:
            return  # The refusal of the first step is in the manifest.
        snapshot = self.load().cache()
        self.keep({"kind": "snapshot"}, lambda: snapshot)
        for where in self.filters():
            self.keep({"kind": "filter", "where": where}, lambda where=where: snapshot.where(where))
        snapshot.unpersist()
        if self.design.mor:
            self.ask({"kind": "read_optimized"}, {"hoodie.datasource.query.type": "read_optimized"})
        for commit in self.random.sample(commits, min(3, len(commits))):
            self.ask({"kind": "as_of", "as_of": commit.requested}, {"as.of.instant": commit.requested})
        self.dump_changes(commits)

    def dump_changes(self, commits: list[Commit]) -> None:
        """All changes, those after one commit, those between two."""
        first, last = sorted(self.random.choices(commits, k=2), key=lambda commit: commit.completed)
        for begin, end in ((None, None), (first, None), (first, last)):
            options = {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": begin.completed if begin else "000",
            }
            if end:
                options["hoodie.datasource.read.end.instanttime"] = end.completed
            span = {"since": begin.requested if begin else "earliest", "until": end.requested if end else None}
            self.ask({"kind": "changes", **span}, options)

    def filters(self) -> list[str]:
        """Filters on the key, the partition, the ordering field and a value."""
        some = [
            f"id = 'key-{self.random.randrange(60):04d}'",
            f"ts > {self.random.randrange(1010, 1060)} and sub = 's1'",
            "tag in ('red', 'other') or num < 10",
            "tag = 'green'",
            f"num between {self.random.randrange(30)} and {self.random.randrange(30, 60)} and c1 is not null",
        ]
        if self.design.partitioned_by:
            column = self.design.partitioned_by[0].name
            # Dialects disagree on how a quote is written inside a literal: leave such values out.
            value = self.random.choice(
                [values[0] for values in self.design.partition_values if "'" not in str(values[0])]
            )
            literal = str(value) if isinstance(value, int) else f"'{value}'"
            some.append(f"{column} is null" if value is None else f"{column} = {literal}")
        return some

    def load(self, options: dict[str, str] | None = None) -> DataFrame:
        return self.spark.read.format("hudi").options(**(options or {})).load(str(self.path))

    def ask(self, read: dict[str, Any], options: dict[str, str]) -> None:
        self.keep(read, lambda: self.load(options))

    def keep(self, read: dict[str, Any], frame: Callable[[], DataFrame]) -> None:
        """Note a read, with its rows or with the reason why Apache Hudi refuses it."""
        file = Path(f"{self.path}.{len(self.reads):02d}-{read['kind']}.parquet")
        try:
            rows = frame()
            pq.write_table(pa.Table.from_batches(rows._collect_as_arrow(), to_arrow_schema(rows.schema)), file)
            self.reads.append({**read, "rows": file.name})
        except Exception as error:
            self.reads.append({**read, "refused": causes(error)})


if __name__ == "__main__":
    target, *numbers, bundle = sys.argv[1:]
    shutil.rmtree(target, ignore_errors=True)
    Path(target).mkdir(parents=True)
    main(Path(target), int(numbers[0]), int(numbers[1]), Path(bundle))
