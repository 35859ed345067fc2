"""The Python lines of Apache Hudi's Spark quick start, with `format("lakebed")`: docs/from-hudi.md says which run."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed

pytestmark = pytest.mark.spark

NAME = "trips_table"
KEY = {"hoodie.datasource.write.recordkey.field": "uuid"}
HUDI = {"hoodie.table.name": NAME, "hoodie.datasource.write.partitionpath.field": "city"}
DELETES = {**HUDI, "hoodie.datasource.write.operation": "delete"}
TYPE = "hoodie.datasource.write.table.type"


@pytest.fixture
def inserts(spark):
    lakebed.register(spark)
    columns = ["ts", "uuid", "rider", "driver", "fare", "city"]
    data = [
        (1695159649087, "334e26e9-8355-45cc-97c6-c31daf0df330", "rider-A", "driver-K", 19.10, "san_francisco"),
        (1695091554788, "e96c4396-3fad-413a-a942-4cb36106d721", "rider-C", "driver-M", 27.70, "san_francisco"),
        (1695046462179, "9909a8b1-2d15-4d3d-8ec9-efc48c536a00", "rider-D", "driver-L", 33.90, "san_francisco"),
        (1695516137016, "e3cf430c-889d-4015-bc98-59bdce1e530c", "rider-F", "driver-P", 34.15, "sao_paulo"),
        (1695115999911, "c8abbe79-8d89-47ea-b4ce-4d224bae5bfa", "rider-J", "driver-T", 17.85, "chennai"),
    ]
    return spark.createDataFrame(data).toDF(*columns)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_what_runs(spark, inserts, tmp_path: Path, kind: str) -> None:
    from pyspark.sql.functions import col

    base = f"file://{tmp_path}/{NAME}"
    # Insert data. The key is that of the section on keys.
    hudi_options = {**HUDI, **KEY, TYPE: kind}
    inserts.write.format("lakebed").options(**hudi_options).mode("overwrite").save(base)

    # Query data.
    trips = spark.read.format("lakebed").load(base)
    trips.createOrReplaceTempView("trips_table")
    fares = spark.sql("SELECT uuid, fare, ts, rider, driver, city FROM  trips_table WHERE fare > 20.0").collect()
    assert sorted(row.rider for row in fares) == ["rider-C", "rider-D", "rider-F"]
    meta = "_hoodie_commit_time, _hoodie_record_key, _hoodie_partition_path, rider, driver, fare"
    rows = spark.sql(f"SELECT {meta} FROM trips_table").collect()
    assert {row._hoodie_partition_path for row in rows} == {"san_francisco", "sao_paulo", "chennai"}

    # Update data.
    updates = spark.read.format("lakebed").load(base).filter("rider == 'rider-D'").withColumn("fare", col("fare") * 10)
    updates.write.format("lakebed").options(**hudi_options).mode("append").save(base)
    [row] = spark.read.format("lakebed").load(base).filter("rider == 'rider-D'").collect()
    assert row.fare == 339.0

    # Delete data.
    deletes = spark.read.format("lakebed").load(base).filter("rider == 'rider-F'")
    deletes.write.format("lakebed").options(**DELETES).mode("append").save(base)
    assert spark.read.format("lakebed").load(base).filter("rider == 'rider-F'").count() == 0

    # Time travel: an instant, a date with a time, a date.
    first, second, _ = lakebed.open_table(base).timeline.commits()
    at = second.requested_at
    written = f"{at[:4]}-{at[4:6]}-{at[6:8]} {at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}"
    for moment, count in ((first.requested_at, 5), (written, 5), ("2099-01-01", 4)):
        assert spark.read.format("lakebed").option("as.of.instant", moment).load(base).count() == count

    # Incremental query.
    spark.read.format("lakebed").load(base).createOrReplaceTempView("trips_table")
    times = "SELECT DISTINCT(_hoodie_commit_time) AS commitTime FROM  trips_table ORDER BY commitTime"
    commits = [row[0] for row in spark.sql(times).limit(50).collect()]
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": commits[len(commits) - 2],
    }
    spark.read.format("lakebed").options(**options).load(base).createOrReplaceTempView("trips_incremental")
    changed = "SELECT `_hoodie_commit_time`, fare, rider, driver, uuid, ts FROM trips_incremental WHERE fare > 20.0"
    assert [row.rider for row in spark.sql(changed).collect()] == ["rider-D"]


def test_merge_modes(spark, inserts, tmp_path: Path) -> None:
    base = f"file://{tmp_path}/{NAME}"
    options = {**HUDI, **KEY, "hoodie.table.ordering.fields": "ts"}
    inserts.write.format("lakebed").options(**options).mode("overwrite").save(base)
    earlier = inserts.selectExpr("ts - 1 AS ts", "uuid", "rider", "driver", "0D AS fare", "city")
    earlier.write.format("lakebed").options(**options).mode("append").save(base)
    assert spark.read.format("lakebed").load(base).filter("fare = 0").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (HUDI, r"needs a record key\n  hint: name the key columns in the option"),
        ({**HUDI, **KEY, "hoodie.table.cdc.enabled": "true"}, "hoodie.table.cdc.enabled=true is not supported"),
    ],
)
def test_saves_that_are_refused(spark, inserts, tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        inserts.write.format("lakebed").options(**options).mode("overwrite").save(f"file://{tmp_path}/{NAME}")
    assert not (tmp_path / NAME).exists()


def test_a_table_keeps_its_type_and_its_past(spark, inserts, tmp_path: Path) -> None:
    """Apache Hudi makes the table anew where mode overwrite says another type or ordering."""
    base = f"file://{tmp_path}/{NAME}"
    inserts.write.format("lakebed").options(**HUDI, **KEY).mode("overwrite").save(base)
    for other in ({TYPE: "MERGE_ON_READ"}, {"hoodie.table.ordering.fields": "ts"}):
        with pytest.raises(Exception, match="hint: leave the option out, or save to another path"):
            inserts.write.format("lakebed").options(**HUDI, **KEY, **other).mode("overwrite").save(base)
    with pytest.raises(Exception, match="is before the first commit"):
        spark.read.format("lakebed").option("as.of.instant", "20210728141108100").load(base)
    with pytest.raises(Exception, match=r"incremental\.format=cdc is not supported"):
        spark.read.format("lakebed").option("hoodie.datasource.query.incremental.format", "cdc").load(base)
