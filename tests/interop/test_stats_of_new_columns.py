"""Statistics that lakebed builds anew after a column came: Apache Hudi skips by them and leaves no row out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.write_peer import STRICT_SKIPPING, running_peer

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
NEW_FILES = {"hoodie.parquet.small.file.limit": "0"}
FILTERS = {
    "extra = 1000": ["c"],
    "extra = 5": ["d"],
    "extra is null": ["a", "b"],
    "extra is not null": ["c", "d"],
    "ts = 1 and extra is null": ["a", "b"],
    "ts = 1 and extra > 3": ["c", "d"],
    "ts = 1 and extra >= 1000": ["c"],
}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_apache_hudi_finds_every_row_by_a_new_column(tmp_path: Path, table_type: str) -> None:
    """One partition has rows with and without the column, the other has none with it."""
    path = tmp_path / "trips"
    made = lakebed.create_table(
        path,
        schema=SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options=NEW_FILES,
    )
    made.upsert([{"id": "a", "city": "oslo", "ts": 1}, {"id": "b", "city": "lima", "ts": 1}])
    made.upsert([{"id": "c", "city": "oslo", "ts": 1, "extra": 1000}])
    made.indexes.create("column_stats", rebuild=True)
    lakebed.open_table(path, options=NEW_FILES).upsert([{"id": "d", "city": "oslo", "ts": 1, "extra": 5}])
    answers = running_peer().read_where(path, STRICT_SKIPPING, [*FILTERS])
    found = {each: sorted(answer["id"].to_pylist()) for each, answer in zip(FILTERS, answers, strict=True)}
    assert found == FILTERS
