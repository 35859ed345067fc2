"""Snapshot scans of 1,000,000 rows: against Spark's own Parquet reader, Apache Hudi on Spark, and hudi-rs.

Ours start with `open_table` each time, so opening and planning are in every figure. Spark runs on two cores; the rows
go to a sink that drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession

import lakebed
from benchmarks.peer import Peer, PeerMissingError, running_peer
from benchmarks.report import Bar, Line, Measure, alternate, faster_by, print_lines, repeat, slower_by, stopwatch
from benchmarks.tables import ROWS, ReadTables, read_tables
from lakebed.api import handle_of
from lakebed.engine.session import local_session
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.table import open_handle

ROUNDS = 15
ROUNDS_OF_PEERS = 7
COW_TIMES_MAX = 1.1
MOR_TIMES_MIN = 3.0
DIGEST = ("count(*)", "sum(crc32(cast(concat_ws('|', *) as binary)))")
"""Numbers that tell whether two readers saw the same rows, meta columns included."""


def main() -> None:
    """Prints one table."""
    with running_peer() as peer:
        try:
            tables = read_tables(peer)
        except PeerMissingError as error:
            print(f"skipped: {error}")
            return
        spark = local_session("benchmarks", cores=2, options={"spark.driver.memory": "3g"})
        lakebed.register(spark)
        try:
            lines = [*scan_cow(spark, tables), scan_mor(spark, tables, peer)]
        finally:
            spark.stop()
        lines += [scan_arrow("COW", tables.cow, peer), scan_arrow("MOR", tables.mor, peer)]
        lines.append(scan_record_index(tables.cow, peer))
    print_lines("snapshot scan, 1,000,000 rows, median of alternating rounds", lines)


def scan_cow(spark: SparkSession, tables: ReadTables) -> list[Line]:
    """A table without logs, against a reader that is told its files."""
    table = lakebed.open_table(tables.cow)
    files = [handle_of(table).storage.uri(file_slice.paths[0]) for file_slice in table.files()]
    check_same_rows(open_on_spark(spark, tables.cow), digest(spark.read.parquet(*files)))
    plain = drained(lambda: spark.read.parquet(*files))
    ours, theirs = alternate(drained(partial(open_on_spark, spark, tables.cow)), plain, ROUNDS)
    bar = Bar(f"<= {COW_TIMES_MAX}x its time", ours.median <= COW_TIMES_MAX * theirs.median)
    first = Line("COW, to_spark", str(ours), "spark.read.parquet", str(theirs), slower_by(ours, theirs), bar)
    ours, theirs = alternate(drained(partial(open_by_format, spark, tables.cow)), plain, ROUNDS_OF_PEERS)
    return [
        first,
        Line('COW, format("lakebed")', str(ours), "spark.read.parquet", str(theirs), slower_by(ours, theirs)),
    ]


def scan_mor(spark: SparkSession, tables: ReadTables, peer: Peer | None) -> Line:
    """A table with a tenth of its rows updated in logs, against Apache Hudi."""
    what, other, bar = "MOR, to_spark", "Apache Hudi 1.2", f">= {MOR_TIMES_MIN:.0f}x as fast"
    ours = drained(partial(open_on_spark, spark, tables.mor))
    if peer is None:
        return Line(what, str(repeat(ours, ROUNDS_OF_PEERS)), other, "skipped", bar=Bar(bar, None))
    check_same_rows(open_on_spark(spark, tables.mor), peer.ask("digest", path=tables.mor, columns=DIGEST)["digest"])
    mine, theirs = alternate(ours, asked(peer, "scan", tables.mor), ROUNDS_OF_PEERS)
    met = theirs.median >= MOR_TIMES_MIN * mine.median
    return Line(what, str(mine), other, str(theirs), faster_by(mine, theirs), Bar(bar, met))


def scan_arrow(kind: str, path: str, peer: Peer | None) -> Line:
    """A scan to Arrow in one process, against hudi-rs."""
    what, other = f"{kind}, to_arrow", "hudi-rs 0.5"
    ours = stopwatch(lambda: lakebed.open_table(path).to_arrow())
    if peer is None:
        return Line(what, str(repeat(ours, ROUNDS_OF_PEERS)), other, "skipped")
    mine, theirs = alternate(ours, asked(peer, "scan_rs", path), ROUNDS_OF_PEERS)
    return Line(what, str(mine), other, str(theirs), faster_by(mine, theirs))


def scan_record_index(path: str, peer: Peer | None) -> Line:
    """Every entry of the record index, against Apache Hudi reading the metadata table, which has little else."""
    what, other = "record index, to Arrow", "Apache Hudi 1.2"

    def read() -> None:
        metadata = open_handle(path).state().metadata
        assert isinstance(metadata, MetadataTable)
        assert read_record_index(metadata).num_rows == ROWS

    if peer is None:
        return Line(what, str(repeat(stopwatch(read), ROUNDS_OF_PEERS)), other, "skipped")
    mine, theirs = alternate(stopwatch(read), asked(peer, "scan", f"{path}/.hoodie/metadata"), ROUNDS_OF_PEERS)
    return Line(what, str(mine), other, str(theirs), faster_by(mine, theirs))


def open_on_spark(spark: SparkSession, path: str) -> DataFrame:
    """The way that users are told to take."""
    return lakebed.open_table(path, spark=spark).to_spark()


def open_by_format(spark: SparkSession, path: str) -> DataFrame:
    """The way of jobs that name a format."""
    return spark.read.format("lakebed").load(path)


def drained(load: Callable[[], DataFrame]) -> Measure:
    """Reads all rows of a frame and drops them."""
    return stopwatch(lambda: load().write.format("noop").mode("overwrite").save())


def asked(peer: Peer, do: str, path: str) -> Measure:
    """A scan by a peer, in the seconds that it says."""
    return lambda: float(peer.ask(do, path=path)["seconds"])


def digest(frame: DataFrame) -> list[int]:
    """The numbers of a frame."""
    row = frame.selectExpr(*DIGEST).first()
    assert row is not None
    return [int(value) for value in row]


def check_same_rows(frame: DataFrame, theirs: list[int]) -> None:
    """Refuse to compare the speed of two answers that differ."""
    ours = digest(frame)
    if ours != theirs:
        raise RuntimeError(f"lakebed and the other reader see different rows: {ours}, {theirs}")


if __name__ == "__main__":
    main()
