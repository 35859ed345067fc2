"""SQL by a table's name: what works, and that the rest is refused with a hint and leaves the table as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": ["a", "b", "c"], "city": ["oslo", "lima", "oslo"], "ts": [1, 1, 1], "fare": [10.0, 20.0, 30.0]})
COLUMNS = "(id, city, ts, fare)"


@pytest.fixture
def path(spark, tmp_path: Path) -> Iterator[Path]:
    """A table with three rows, and a session with no names of tables."""
    lakebed.register(spark)
    table = lakebed.create_table(tmp_path / "trips", schema=ROWS.schema, key="id", partition_by="city", ordering="ts")
    table.upsert(ROWS)
    yield tmp_path / "trips"
    for name in names(spark):
        spark.sql(f"DROP TABLE {name}")
    assert lakebed.open_table(tmp_path / "trips").to_arrow().num_rows  # It is not the catalog's to delete.


def names(spark) -> list[str]:
    return [row.tableName for row in spark.sql("SHOW TABLES").collect() if not row.isTemporary]


def found(path: Path) -> dict[str, float]:
    rows = lakebed.open_table(path).to_arrow(columns=["id", "fare"]).to_pylist()
    return {row["id"]: row["fare"] for row in sorted(rows, key=lambda row: row["id"])}


def fares(spark, name: str) -> dict[str, float]:
    return {row.id: row.fare for row in spark.sql(f"SELECT id, fare FROM {name} ORDER BY id").collect()}


BEFORE = {"a": 10.0, "b": 20.0, "c": 30.0}


@pytest.mark.parametrize("how", ["LOCATION '{}'", "OPTIONS (path '{}')", "LOCATION 'file://{}'"])
def test_a_name_is_read_and_inserted_into(spark, path: Path, how: str) -> None:
    spark.sql(f"CREATE TABLE trips USING lakebed {how.format(path)}")
    assert fares(spark, "trips") == BEFORE
    spark.sql(f"INSERT INTO trips {COLUMNS} VALUES ('a', 'oslo', 2, 11.0), ('d', 'lima', 2, 40.0)")
    assert fares(spark, "trips") == found(path) == {"a": 11.0, "b": 20.0, "c": 30.0, "d": 40.0}
    spark.sql("INSERT INTO trips BY NAME SELECT 7.5D AS fare, 'e' AS id, 'lima' AS city, 3L AS ts")
    spark.sql("SELECT 'f' id, 'lima' city, 3L ts, 8.5D fare").writeTo("trips").append()
    frame = spark.sql("SELECT 'g' id, 'lima' city, 3L ts, 9.5D fare")
    frame.write.format("lakebed").mode("append").saveAsTable("trips")
    assert [fares(spark, "trips")[key] for key in "efg"] == [7.5, 8.5, 9.5]
    assert spark.sql("SELECT count(*) FROM trips WHERE city = 'lima'").collect()[0][0] == 5
    spark.sql(f"INSERT OVERWRITE trips {COLUMNS} SELECT id, city, ts, fare * 2 FROM trips WHERE id < 'c'")
    assert fares(spark, "trips") == found(path) == {"a": 22.0, "b": 40.0}
    assert spark.table("trips").select("_hoodie_record_key").distinct().count() == 2
    spark.sql("DROP TABLE trips")


def test_options_stay_with_a_name(spark, path: Path) -> None:
    first = lakebed.open_table(path).timeline.commits()[-1].requested_at
    lakebed.open_table(path).delete(["a"])
    spark.sql(f"CREATE TABLE earlier USING lakebed OPTIONS (path '{path}', as.of.instant '{first}')")
    spark.sql(
        f"CREATE TABLE trips USING lakebed LOCATION '{path}' OPTIONS (hoodie.datasource.write.operation 'delete')"
    )
    assert fares(spark, "earlier") == BEFORE
    with pytest.raises(Exception, match="hint: "):
        spark.sql(f"INSERT INTO earlier {COLUMNS} VALUES ('d', 'lima', 2, 40.0)")
    spark.sql(f"INSERT INTO trips {COLUMNS} VALUES ('b', 'lima', 2, 40.0)")
    assert fares(spark, "trips") == {"c": 30.0}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE t USING lakebed", "no path was given"),
        ("CREATE TABLE t USING lakebed LOCATION '{path}-none'", "is not a Hudi table"),
        ("CREATE TABLE t USING lakebed LOCATION '{path}' TBLPROPERTIES (primaryKey = 'id')", "property primarykey"),
        ("CREATE TABLE t USING lakebed LOCATION '{path}' OPTIONS (aws_secret_access_key 'x')", "stored in the catalog"),
        ("CREATE TABLE t USING lakebed AS SELECT 'a' AS id, 1L AS n", "keeps no path"),
        ("CREATE TABLE t USING lakebed LOCATION '{path}' AS SELECT 'a' AS id, 1L AS n", "keeps no path"),
    ],
)
def test_create_table_that_cannot_work_leaves_no_name(spark, path: Path, statement: str, said: str) -> None:
    with pytest.raises(Exception, match=rf"(?s)InvalidInputError: .*{said}.*hint: "):
        spark.sql(statement.format(path=path))
    assert names(spark) == []
    assert found(path) == BEFORE


@pytest.mark.parametrize("mode", ["append", "overwrite", "errorifexists", "ignore"])
def test_save_as_table_leaves_no_name(spark, path: Path, mode: str) -> None:
    frame = spark.sql("SELECT 'a' AS id, 1L AS n")
    with pytest.raises(Exception, match=r"(?s)keeps no path.*hint: save rows to a path"):
        frame.write.format("lakebed").option("hoodie.table.recordkey.fields", "id").mode(mode).saveAsTable("t")
    assert names(spark) == []


def test_names_that_spark_makes_without_asking_are_refused_when_used(spark, path: Path) -> None:
    """Spark does not ask a Python source about columns that it is given; it keeps them, and no path."""
    spark.sql(f"CREATE TABLE listed (id string, fare double) USING lakebed LOCATION '{path}'")
    frame = spark.sql("SELECT 'a' AS id, 1L AS n").write.format("lakebed").option("path", f"{path}-saved")
    frame.option("hoodie.table.recordkey.fields", "id").mode("append").saveAsTable("saved")
    for statement in ("SELECT * FROM {}", "INSERT INTO {} VALUES ('a', 1)", "INSERT OVERWRITE {} VALUES ('a', 1)"):
        for name in ("listed", "saved"):
            with pytest.raises(Exception, match=r"(?s)keeps no path.*hint: .*DROP TABLE it and CREATE TABLE"):
                spark.sql(statement.format(name)).collect()
    spark.sql("DROP TABLE saved")
    spark.sql(f"CREATE TABLE saved USING lakebed LOCATION '{path}-saved'")
    assert spark.sql("SELECT id, n FROM saved").collect() == [("a", 1)]
    assert found(path) == BEFORE


@pytest.mark.parametrize(
    "change", ["ADD COLUMNS (extra string)", "RENAME COLUMN fare TO price", "DROP COLUMN fare", "DROP COLUMN id"]
)
def test_a_name_that_was_altered_is_refused(spark, path: Path, change: str) -> None:
    spark.sql(f"CREATE TABLE trips USING lakebed LOCATION '{path}'")
    spark.sql(f"ALTER TABLE trips {change}")
    for statement in ("SELECT city FROM trips", "INSERT INTO trips (city, ts) VALUES ('oslo', 1)"):
        with pytest.raises(
            Exception, match=r"(?s)ALTER TABLE changes Spark's catalog, and never the table.*hint: DROP"
        ):
            spark.sql(statement).collect()
    assert found(path) == BEFORE


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("where", ["ts > 0", "id = 'a'", "false"])
def test_a_copy_by_name_does_not_write_to_its_source(spark, path: Path, mode: str, where: str) -> None:
    """Columns that were read by a name bring its path with them."""
    spark.sql(f"CREATE TABLE trips USING lakebed LOCATION '{path}'")
    copy = spark.table("trips").where(where).write.format("lakebed").mode(mode)
    if where == "false" and mode == "append":
        copy.saveAsTable("copy")
    else:
        with pytest.raises(Exception, match=r"(?s)InvalidInputError: .*hint: "):
            copy.saveAsTable("copy")
    assert found(path) == BEFORE
    with pytest.raises(Exception, match=r"(?s)name the columns: INSERT INTO"):
        spark.sql("INSERT INTO trips SELECT * FROM trips")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE trips SET fare = 1 WHERE id = 'a'",
        "DELETE FROM trips WHERE id = 'a'",
        "MERGE INTO trips USING (SELECT 'a' id) s ON trips.id = s.id WHEN MATCHED THEN UPDATE SET fare = 1",
        "TRUNCATE TABLE trips",
        "SELECT * FROM trips TIMESTAMP AS OF '2021-07-28'",
        "INSERT INTO trips REPLACE WHERE ts = 1 SELECT * FROM trips",
        "CREATE INDEX idx ON trips (fare)",
        "SELECT * FROM lakebed.`{path}`",
    ],
)
def test_spark_refuses_what_python_sources_cannot_do(spark, path: Path, statement: str) -> None:
    spark.sql(f"CREATE TABLE trips USING lakebed LOCATION '{path}'")
    with pytest.raises(Exception, match=r"(?i)not support|unsupported"):
        spark.sql(statement.format(path=path)).collect()
    assert found(path) == BEFORE


def test_temporary_views_are_read_and_inserted_into(spark, path: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING lakebed OPTIONS (path '{path}')")
    spark.sql(f"INSERT INTO v {COLUMNS} VALUES ('d', 'lima', 2, 40.0)")
    columns = "id string, city string, ts bigint, fare double"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW w ({columns}) USING lakebed OPTIONS (path '{path}')")
    spark.sql("INSERT INTO w VALUES ('e', 'lima', 2, 50.0)")
    assert fares(spark, "v") == fares(spark, "w") == {**BEFORE, "d": 40.0, "e": 50.0}
    spark.sql("INSERT OVERWRITE w SELECT * FROM w WHERE id = 'e'")
    assert found(path) == {"e": 50.0}
    spark.read.format("lakebed").load(str(path)).createOrReplaceTempView("v")  # A view keeps the snapshot it has read.
    assert fares(spark, "v") == {"e": 50.0}
    for view in "vw":
        spark.catalog.dropTempView(view)
