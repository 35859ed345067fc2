"""`spark.read.format("lakebed")` with the options that Hudi jobs use."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from rows import canonical, spark_rows

pytestmark = pytest.mark.spark


def collected(frame) -> list[str]:
    return canonical(spark_rows(frame.toArrow()))


@pytest.fixture(autouse=True)
def registered(spark) -> None:
    lakebed.register(spark)


@pytest.mark.parametrize(
    "name", ["hudi120_cow_part_upsert", "hudi120_mor_part_compacted", "hudi111_cow_nonpart_alltypes"]
)
def test_snapshot(spark, unpack, name: str) -> None:
    table = unpack(name)
    assert collected(spark.read.format("lakebed").load(str(table.path))) == canonical(table.rows)


def test_filters(spark, unpack) -> None:
    table = unpack("hudi120_mor_part_compacted")
    frame = spark.read.format("lakebed").load(str(table.path)).where("id in ('k001', 'k003') and ts >= 40")
    assert collected(frame) == canonical(row for row in table.rows if row["id"] == "k001")


def test_queries_of_one_frame_do_not_see_each_others_filters(spark, tmp_path) -> None:
    """Spark keeps what the source said for one query, and uses it for others."""
    rows = pa.table({"id": ["a", "b", "c"], "city": ["oslo", "lima", "oslo"]})
    lakebed.create_table(tmp_path, schema=rows.schema, key="id", partition_by="city").upsert(rows)
    frame = spark.read.format("lakebed").load(str(tmp_path))
    oslo, lima = frame.where("city = 'oslo'"), frame.where("city = 'lima'")
    assert [oslo.count(), frame.count(), lima.count(), frame.count()] == [2, 3, 1, 3]
    assert oslo.union(lima).count() == 3
    assert oslo.join(frame.select("id"), "id", "right").count() == 3


def test_query_types(spark, unpack) -> None:
    path = unpack("hudi120_mor_part_compacted").path
    table = lakebed.open_table(path)
    first, *_, last = (instant.requested_at for instant in table.timeline.commits())

    def read(**options: str) -> list[str]:
        spelled = {key.replace("__", "."): value for key, value in options.items()}
        return collected(spark.read.format("lakebed").options(**spelled).load(str(path)))

    optimized = read(hoodie__datasource__query__type="read_optimized")
    assert optimized == canonical(spark_rows(table.to_arrow(mode="read_optimized")))
    assert read(as__of__instant=first) == canonical(spark_rows(table.to_arrow(as_of=first)))
    changed = read(
        hoodie__datasource__query__type="incremental",
        hoodie__datasource__read__begin__instanttime=first,
        hoodie__datasource__read__end__instanttime=last,
    )
    assert changed == canonical(spark_rows(table.changes(first, last)))


def test_errors_reach_the_user(spark, tmp_path) -> None:
    with pytest.raises(Exception, match="is not a Hudi table"):
        spark.read.format("lakebed").load(str(tmp_path)).collect()
