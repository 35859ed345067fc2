"""Reads on Spark give the rows that reads in process give."""

from __future__ import annotations

import pytest

import lakebed
from rows import canonical, spark_rows

pytestmark = pytest.mark.spark


def collected(frame) -> list[str]:
    return canonical(spark_rows(frame.toArrow()))


@pytest.mark.parametrize("use_metadata", ["true", "false"])
def test_snapshot_is_what_hudi_reads(real_table, spark, use_metadata: str) -> None:
    table = lakebed.open_table(real_table.path, spark=spark, options={"hoodie.metadata.enable": use_metadata})
    columns = [name for name, _ in real_table.schema]
    assert collected(table.to_spark(columns=columns)) == canonical(real_table.rows)


@pytest.mark.parametrize(
    "name", ["hudi120_mor_part_compacted", "hudi120_cow_part_upsert", "hudi111_mor_part_hive_timezone"]
)
@pytest.mark.parametrize("where", ["id >= 'k002' and ts < 40", "region = 'eu'", "not (ts > 10) or name like 'u%'"])
def test_filters_mean_the_same_as_in_process(spark, unpack, name: str, where: str) -> None:
    table = lakebed.open_table(unpack(name).path, spark=spark)
    expected = canonical(spark_rows(table.to_arrow(where=where, columns=["id", "name"])))
    assert collected(table.to_spark(where=where, columns=["id", "name"])) == expected
    assert collected(table.to_spark().where(where).select("id", "name")) == expected


MERGED = [
    "hudi120_mor_part_compacted",
    "hudi120_mor_nonpart_sql_partial_update",
    "hudi111_mor_nonpart_event_time_deletes",
    "hudi111_mor_part_bucket_complexkey",
    "hudi111_mor_part_hive_timezone",
    "hudi015_mor_part_event_time",
    "hudi015_mor_part_rollback",
]


@pytest.mark.parametrize("name", MERGED)
def test_merged_slices_have_all_their_values(spark, unpack, name: str) -> None:
    """Meta columns too, whole and in part, at every instant."""
    table = lakebed.open_table(unpack(name).path, spark=spark)
    for columns in (None, ["_hoodie_file_name"], ["_hoodie_partition_path", "_hoodie_commit_time"]):
        assert collected(table.to_spark(columns)) == canonical(spark_rows(table.to_arrow(columns)))
    for instant in [instant.requested_at for instant in table.timeline.commits()][-2:]:
        assert collected(table.to_spark(as_of=instant)) == canonical(spark_rows(table.to_arrow(as_of=instant)))


@pytest.mark.parametrize("where", ["_hoodie_file_name like '%parquet'", "_hoodie_commit_time > '2'", "id is null"])
def test_filters_on_values_that_slices_repeat(spark, unpack, where: str) -> None:
    table = lakebed.open_table(unpack("hudi120_mor_part_compacted").path, spark=spark)
    expected = canonical(spark_rows(table.to_arrow(where=where)))
    assert collected(table.to_spark(where=where)) == expected
    assert collected(table.to_spark().where(where)) == expected
