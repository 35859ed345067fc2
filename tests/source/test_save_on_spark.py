"""`df.write.format("lakebed")`, in the processes where Spark runs its parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lakebed
from engine.spark_writes import all_types, check_left_nothing, data_files, rows_of
from lakebed.storage import open_storage
from lakebed.table.transactions import open_ports
from lakebed.transaction.heartbeats import Timing
from lakebed.write.handover import sweep_rows

pytestmark = pytest.mark.spark

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.metadata.record.index.enable": "true",
}


@pytest.fixture(autouse=True)
def registered(spark) -> None:
    lakebed.register(spark)


def save(frame, path: Path, mode: str = "append") -> None:
    frame.write.format("lakebed").options(**OPTIONS).mode(mode).save(str(path))


def test_round_trip(spark, tmp_path: Path) -> None:
    """A save leaves what the same upsert of an Arrow table leaves, and what was read from it can be saved over it."""
    # Of one key with one ordering value, the last row stays: those of `note` in a later partition.
    frame = all_types(spark, 0, 12, ts=1).union(all_types(spark, 4, 6, ts=1, note="last", partitions=1))
    rows = frame.toArrow()
    twin = lakebed.create_table(tmp_path / "twin", schema=frame.schema, key="id", partition_by="city", ordering="ts")
    twin.upsert(rows)
    save(frame, tmp_path / "table")
    check_left_nothing(tmp_path / "table")
    table = lakebed.open_table(tmp_path / "table")
    assert rows_of(table, table.to_arrow()) == rows_of(twin, twin.to_arrow())
    # Meta columns are left out, and the input is the table before the write.
    read = spark.read.format("lakebed").load(str(tmp_path / "table"))
    save(read.where("number between 3 and 5"), tmp_path / "table", mode="overwrite")
    found = table.to_arrow(columns=["number", "note"]).sort_by("number")
    assert found.to_pydict() == {"number": [3, 4, 5], "note": ["", "last", "last"]}


def test_input_is_evaluated_once(spark, tmp_path: Path) -> None:
    """Keys and partitions are drawn by chance: a second evaluation would give others."""
    frame = spark.range(0, 40, 1, 2).selectExpr(
        "uuid() as id", "if(rand() < 0.5, 'oslo', 'lima') as city", "1L as ts", "id as n"
    )
    save(frame, tmp_path)
    rows = lakebed.open_table(tmp_path).to_arrow(
        columns=["id", "_hoodie_record_key", "city", "_hoodie_partition_path", "n"]
    )
    assert sorted(rows["n"].to_pylist()) == list(range(40))
    assert rows["id"].equals(rows["_hoodie_record_key"])
    assert rows["city"].to_pylist() == rows["_hoodie_partition_path"].to_pylist()


def test_a_save_that_fails_leaves_nothing(spark, tmp_path: Path) -> None:
    """The last partition cannot be made, after others were staged."""
    rows = spark.range(0, 4000, 1, 4).selectExpr("string(id) as id", "'oslo' as city", "1L as ts", "id as n")
    failing = rows.selectExpr("id", "city", "ts", "if(n < 3999, n, raise_error('no more')) as n")
    with pytest.raises(Exception, match="no more"):
        save(failing, tmp_path)
    assert not_staged(tmp_path) == []
    save(rows.where("n < 9"), tmp_path)
    before = data_files(tmp_path)
    with pytest.raises(Exception, match="no more"):
        save(failing, tmp_path)
    with pytest.raises(
        Exception, match=r"row 1 has no key: column 'id' is null or empty\n  hint: give every row a key"
    ):
        save(rows.where("n < 9").selectExpr("nullif(id, 1) as id", "city", "ts", "n"), tmp_path)
    assert len(lakebed.open_table(tmp_path).timeline) == 1
    assert data_files(tmp_path) == before
    for staged in tmp_path.glob(".hoodie/.temp/rows-*/*"):
        os.utime(staged, (1, 1))  # Of tasks that nobody waits for any more.
    sweep_rows(open_ports(open_storage(tmp_path), {}), Timing())
    check_left_nothing(tmp_path)


def not_staged(folder: Path) -> list[Path]:
    """All files but staged rows: a task that Spark was yet to stop may have staged some after the abort."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.parent.name.startswith("rows-")]


def test_modes_that_spark_does_not_pass_on(spark, tmp_path: Path) -> None:
    """Spark's Python sources know append and overwrite; it refuses others itself, and takes them for neither."""
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(Exception, match='"Append" or "Overwrite" mode instead'):
            save(all_types(spark, 0, 1, ts=0), tmp_path, mode)
    assert list(tmp_path.iterdir()) == []


def test_a_first_save_that_is_refused_leaves_nothing(spark, tmp_path: Path) -> None:
    """Each is refused, the next one by other options: no table stands in its way."""
    rows = spark.range(4).selectExpr("nullif(string(id), '3') as id", "'oslo' as city", "1L as ts", "id as n")
    with pytest.raises(Exception, match="has no key: column 'id' is null or empty"):
        save(rows, tmp_path)
    misspelled = {**OPTIONS, "hoodie.datasource.write.recordkey.field": "ID"}
    with pytest.raises(
        Exception, match=r"recordkey.field names 'ID', which is not a column\n  hint: did you mean 'id'\?"
    ):
        rows.write.format("lakebed").options(**misspelled).mode("append").save(str(tmp_path))
    assert not_staged(tmp_path) == []
    save(rows.where("id is not null"), tmp_path)
    assert lakebed.open_table(tmp_path).to_arrow().num_rows == 3


def test_columns_are_nullable_whatever_spark_calls_them(spark, tmp_path: Path) -> None:
    rows = spark.range(2).selectExpr("string(id) as id", "'oslo' as city", "1L as ts", "coalesce(id, 0) as n")
    assert not any(field.nullable for field in rows.schema)
    save(rows, tmp_path)
    table = lakebed.open_table(tmp_path)
    assert all(field.nullable for field in table.schema)
    save(rows.selectExpr("id", "city", "2L as ts", "nullif(n, 1) as n"), tmp_path)
    save(rows.where("n = 0"), tmp_path)
    assert table.to_arrow(columns=["id", "n"]).sort_by("id").to_pydict() == {"id": ["0", "1"], "n": [0, None]}


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_rows_that_lack_a_column_are_refused(spark, tmp_path: Path, operation: str) -> None:
    rows = spark.range(2).selectExpr("string(id) as id", "'oslo' as city", "1L as ts", "id as n")
    save(rows, tmp_path)
    options = {**OPTIONS, "hoodie.datasource.write.operation": operation}
    writer = rows.drop("n").write.format("lakebed").options(**options)
    with pytest.raises(Exception, match="the rows lack the column 'n'"):
        writer.mode("append").save(str(tmp_path))
    writer.option("hoodie.write.set.null.for.missing.columns", "true").mode("append").save(str(tmp_path))
    assert None in lakebed.open_table(tmp_path).to_arrow(columns=["n"])["n"].to_pylist()
