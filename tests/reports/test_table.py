from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.api import open_table
from lakebed.reports.table import schema_report, spark_type


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "tinyint"),
        (pa.large_string(), "string"),
        (pa.binary(16), "binary"),
        (pa.decimal128(10, 2), "decimal(10,2)"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.list_(pa.struct([("a", pa.int32())])), "array<struct<a:int>>"),
        (pa.map_(pa.string(), pa.list_(pa.date32())), "map<string,array<date>>"),
        (pa.time64("us"), "time64[us]"),
    ],
)
def test_types(kind: pa.DataType, text: str) -> None:
    assert spark_type(kind) == text


def test_real_tables_have_the_types_that_spark_saw(real_table) -> None:
    if not real_table.schema:
        pytest.skip("no schema was recorded")
    recorded = dict(real_table.schema)
    columns = schema_report(open_table(real_table.path)).columns
    assert {column.name: column.type for column in columns if column.name in recorded} == recorded
