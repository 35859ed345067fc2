"""`spark.read.format("lakebed")` with the options that Hudi jobs use."""

from __future__ import annotations

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


def test_filters_reach_the_source(spark, unpack) -> None:
    table = unpack("hudi120_mor_part_compacted")
    frame = spark.read.format("lakebed").load(str(table.path)).where("id in ('k001', 'k003') and ts >= 40")
    assert collected(frame) == canonical(row for row in table.rows if row["id"] == "k001")


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
