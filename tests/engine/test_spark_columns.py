"""DataFrames that lack a column of the table, or bring nulls to one, as rows on the driver and staged by workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from engine.spark_writes import tasks_on_spark

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), pa.field("n", pa.int64(), nullable=False), ("note", pa.string())])


@pytest.fixture(params=["driver", "workers"])
def where(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param == "driver" else tasks_on_spark():
        yield


@pytest.mark.usefixtures("where")
def test_columns_of_frames(spark, tmp_path: Path) -> None:
    table = lakebed.create_table(tmp_path, schema=SCHEMA, key="id", table_type="mor")
    rows = spark.range(4).selectExpr("string(id) as id", "id as n", "'x' as note")
    for write in (table.upsert, table.insert, table.bulk_insert, table.overwrite):
        with pytest.raises(lakebed.InvalidInputError, match="the rows lack the column 'note'"):
            write(rows.drop("note"))
    table.upsert(rows.selectExpr("id", "nullif(n, -1) as n", "note"))
    assert not table.schema.field("n").nullable, "rows that could have had a null had none"
    table.upsert(rows.selectExpr("id", "nullif(n, 3) as n", "note"))
    assert table.schema.field("n").nullable
    asking = lakebed.open_table(tmp_path, options={"hoodie.write.set.null.for.missing.columns": "true"})
    asking.upsert(rows.where("n = 0").drop("note"))
    table.upsert(rows.where("n = 1").drop("n", "note"), partial=True)
    found = table.to_arrow(columns=SCHEMA.names).sort_by("id").to_pydict()
    assert found == {"id": ["0", "1", "2", "3"], "n": [0, 1, 2, None], "note": [None, "x", "x", "x"]}
    table.delete(rows.select("id"))
    assert table.to_arrow().num_rows == 0
