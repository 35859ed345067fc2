"""Writes from DataFrames, checked against the same writes from Arrow.

The checks take any session. Started as a program they make one of their own: `spark_writes.py CHECK FOLDER OPTIONS`,
with Spark's options as JSON; `spark.remote` among them makes it a session of Spark Connect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakebed
import lakebed.write.rows.input as write_input
from lakebed.engine.spark import OnSpark
from lakebed.errors import CorruptTableError, InvalidInputError, LakebedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNLIKE = ("_hoodie_commit_seqno", "_hoodie_file_name")
"""Meta columns that differ between any two writes of the same rows."""

ALL_TYPES = """
select
    concat('k', id) as id, if(id % 3 = 0, 'oslo', 'lima') as city, {ts}L as ts, '{note}' as note,
    id % 2 = 0 as flag, cast(id as byte) as tiny, cast(-id as short) as small, cast(id as int) as number,
    id * 4611686018427387 as long, cast(id / 7 as float) as single, id / 7 as double,
    cast(id / 7 as decimal(9, 3)) as price, cast(-id as decimal(38, 18)) as wide,
    date_add(date'1969-12-25', cast(id as int)) as day,
    timestamp'1969-12-31 23:59:58.123456Z' + make_dt_interval(0, 0, 0, id) as at,
    timestamp_ntz'1969-12-31 23:59:58.123456' + make_dt_interval(0, 0, 0, id) as local_at,
    if(id % 4 = 0, null, unhex(hex(id))) as raw,
    if(id % 4 = 1, null, array(id, null, -id)) as list,
    if(id % 4 = 2, null, map('a', cast(id as decimal(5, 1)), 'b', null)) as map,
    if(id % 4 = 3, null,
       named_struct('n', nullif(id, 2), 'list', if(id = 5, null, array(timestamp_seconds(id))))) as struct
from range({first}, {last}, 1, {partitions})
"""


def all_types(spark: SparkSession, first: int, last: int, *, ts: int, note: str = "", partitions: int = 2) -> DataFrame:
    """Rows `first` to `last` with a column of each type, nulls among them."""
    return spark.sql(ALL_TYPES.format(first=first, last=last, ts=ts, note=note, partitions=partitions))


def new_table(spark: SparkSession, folder: Path, table_type: str = "cow", **given: Any) -> lakebed.Table:
    """An empty table for such rows."""
    asked = {"key": "id", "partition_by": "city", "ordering": "ts", "table_type": table_type, "spark": spark}
    return lakebed.create_table(folder, **(asked | {"schema": all_types(spark, 0, 1, ts=0).schema} | given))


@contextmanager
def tasks_on_spark(engine: type[OnSpark] = OnSpark) -> Iterator[None]:
    """Writes of any size run their tasks on Spark, in an engine of this kind."""
    before = write_input._DRIVER_BYTES, write_input.OnSpark
    write_input._DRIVER_BYTES, write_input.OnSpark = -1, engine
    try:
        yield
    finally:
        write_input._DRIVER_BYTES, write_input.OnSpark = before


def rows_of(table: lakebed.Table, rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by key, with the number of their commit in place of its time."""
    numbers = {instant.requested_at: number for number, instant in enumerate(table.timeline.commits())}
    found = rows.drop_columns(UNLIKE).to_pylist()
    for row in found:
        row["_hoodie_commit_time"] = numbers[row["_hoodie_commit_time"]]
    return sorted(found, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


def check_left_nothing(folder: Path) -> None:
    """No write is under way, and no marker or staged row is left of one."""
    assert not lakebed.open_table(folder).timeline.pending()
    assert [path for path in (folder / ".hoodie" / ".temp").rglob("*") if path.is_file()] == []


def check_same_as_arrow(spark: SparkSession, folder: Path, table_type: str) -> None:
    """Each operation, from a DataFrame and from the Arrow table that it gives, does the same."""
    table = new_table(spark, folder / "spark", table_type)
    twin = new_table(spark, folder / "arrow", table_type)
    # Of one key with one ordering value, the last row stays: those of `note` in a later partition.
    updates = all_types(spark, 16, 32, ts=2).union(all_types(spark, 18, 22, ts=2, note="last", partitions=1))
    steps = {
        "bulk_insert": all_types(spark, 0, 24, ts=1, partitions=3),
        "upsert": updates,
        "delete": all_types(spark, 0, 40, ts=0).where("number % 5 = 0").select("city", "id"),
    }
    for operation, frame in steps.items():
        ours = getattr(table, operation)(frame)
        theirs = getattr(twin, operation)(frame.toArrow())
        assert outcome(ours) == outcome(theirs), operation
        check_left_nothing(folder / "spark")
    expected = rows_of(twin, twin.to_arrow())
    assert len(expected) == 25
    assert rows_of(table, table.to_arrow()) == expected
    assert rows_of(table, table.to_spark().toArrow()) == expected


def outcome(result: Any) -> tuple[str, int, int, int, int]:
    """What two writes of the same rows have in common."""
    return result.operation, result.inserted, result.updated, result.deleted, len(result.files)


def check_workers(spark: SparkSession, folder: Path) -> None:
    """Tasks run with this interpreter, not in this process, and in every executor; results keep the tasks' order."""

    def place(number: int) -> tuple[int, str, str]:
        import os
        import sys

        return number, sys.executable, os.getcwd()

    done = OnSpark(spark).map(range(8), place)
    assert [number for number, _, _ in done] == list(range(8))
    assert {python for _, python, _ in done} == {sys.executable}
    executors = 2 if spark.conf.get("spark.master").startswith("spark://") else 1
    assert len({folder for _, _, folder in done}) == executors


def check_errors(spark: SparkSession, folder: Path) -> None:
    """A row without a key, and a damaged base file: what workers raise is what the caller gets."""
    # Many rows, so that most are still on their way to the worker when it stops.
    numbers = spark.range(0, 200_000, 1, 2)
    keyless = numbers.selectExpr("if(id = 7, null, cast(id as string)) as id", "'oslo' as city", "1L as ts")
    table = new_table(spark, folder / "keyless", schema=keyless.schema)
    raised = error_of(lambda: table.upsert(keyless))
    assert isinstance(raised, InvalidInputError)
    assert "'id'" in str(raised)
    assert "row 7" in str(raised)
    check_left_nothing(folder / "keyless")
    assert table.upsert(keyless.where("id < 100")).inserted == 99
    table = new_table(spark, folder / "table")
    rows = all_types(spark, 0, 4, ts=1, partitions=1)
    [path, *_] = table.upsert(rows.toArrow()).files
    whole = (folder / "table" / path).read_bytes()
    (folder / "table" / path).write_bytes(whole[:-9])
    with tasks_on_spark():
        raised = error_of(lambda: table.upsert(rows))
    assert isinstance(raised, CorruptTableError)
    assert raised.path == path
    (folder / "table" / path).write_bytes(whole)
    check_left_nothing(folder / "table")
    assert table.to_arrow().num_rows == 4


def error_of(call: Callable[[], object]) -> LakebedError | None:
    try:
        call()
    except LakebedError as error:
        return error
    return None


def check_copy_on_write(spark: SparkSession, folder: Path) -> None:
    with tasks_on_spark():
        check_same_as_arrow(spark, folder, "cow")


def check_merge_on_read(spark: SparkSession, folder: Path) -> None:
    with tasks_on_spark():
        check_same_as_arrow(spark, folder, "mor")


def check_retries(spark: SparkSession, folder: Path) -> None:
    """A task of every job fails once after it has done its work: that work leaves nothing behind."""
    failures = folder / "failures"
    failures.mkdir()
    table = new_table(spark, folder / "table", "mor", indexes=("record",))
    with tasks_on_spark(flaky(failures)):
        written = [
            table.bulk_insert(all_types(spark, 0, 12, ts=1)),
            table.upsert(all_types(spark, 8, 16, ts=2)),
        ]
    # Rows are staged, written; then staged, looked for, written.
    assert sorted(path.name for path in failures.iterdir()) == ["1", "2", "3", "4", "5"]
    assert "rows-" in (failures / "1").read_text()
    assert [result.jobs for result in written] == [2, 3]
    assert [(result.inserted, result.updated) for result in written] == [(12, 0), (4, 4)]
    rows = table.to_arrow(columns=["number", "ts"]).sort_by("number").to_pylist()
    assert rows == [{"number": number, "ts": 1 if number < 8 else 2} for number in range(16)]
    found = table.indexes.validate("record_index")
    assert (found.checked, found.is_sound) == (16, True)
    named = {path for result in written for path in result.files}
    assert data_files(folder / "table") == named
    check_left_nothing(folder / "table")


def flaky(failures: Path) -> type[OnSpark]:
    """An engine in each of whose jobs one task fails once it is done; a file per job says what it had made."""
    numbers = count(1)

    class Flaky(OnSpark):
        def map(self, tasks: Any, run: Callable[[Any], Any]) -> list[Any]:
            return super().map(tasks, failing_once(run))

        def fold(self, rows: Any, run: Callable[[Any], Any]) -> list[Any]:
            return super().fold(rows, failing_once(run))

    def failing_once(run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        failure = str(failures / str(next(numbers)))

        def attempt(task: Any) -> Any:
            result = run(task)
            try:
                with open(failure, "x") as file:
                    file.write(repr(result))
            except FileExistsError:
                return result
            raise RuntimeError("this worker is lost")

        return attempt

    return Flaky


def data_files(folder: Path) -> set[str]:
    """Paths of the base and log files of a table, whoever names them."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".hoodie" not in path.parts)
    names = (path.relative_to(folder) for path in found)
    return {str(name) for name in names if name.suffix != ".crc" and name.name != ".hoodie_partition_metadata"}


CHECKS = {
    "workers": check_workers,
    "cow": check_copy_on_write,
    "mor": check_merge_on_read,
    "errors": check_errors,
    "retries": check_retries,
}


def open_session(options: Mapping[str, str]) -> SparkSession:
    if "spark.remote" in options:
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(options["spark.remote"]).getOrCreate()
    return lakebed.local_session(options=options)


def main(checks: str, folder: str, options: str) -> None:
    spark = open_session(json.loads(options))
    for name in checks.split(","):
        place = Path(folder, name)
        place.mkdir()
        CHECKS[name](spark, place)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
