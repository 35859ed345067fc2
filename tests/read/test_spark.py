"""Reads on Spark give the rows that reads in process give."""

from __future__ import annotations

import pytest
from rows import canonical, spark_rows

import lakebed

pytestmark = pytest.mark.spark


def collected(frame) -> list[str]:
    return canonical(spark_rows(frame.toArrow()))


def test_snapshot_is_what_hudi_reads(real_table, spark) -> None:
    table = lakebed.open_table(real_table.path, spark=spark)
    columns = [name for name, _ in real_table.schema]
    assert collected(table.to_spark(columns=columns)) == canonical(real_table.rows)
