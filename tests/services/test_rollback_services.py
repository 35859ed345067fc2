"""Taking back the newest completed instant when that is a table service."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import create_table, open_table

ROWS = pa.table({"id": [f"k{number}" for number in range(20)], "v": list(range(20))})


@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_its_plan_goes_with_it(tmp_path: Path, service: str) -> None:
    path = tmp_path / "t"
    table = create_table(path, schema=ROWS.schema, key="id", table_type="mor", indexes=["record"])
    table.insert(ROWS)
    if service == "compact":
        table.upsert([{"id": "k1", "v": 100}])
        done = table.services.compact()
    else:
        done = table.services.cluster(order_by=["v"])
    assert done is not None
    before = sorted(table.to_arrow(columns=["id", "v"]).to_pylist(), key=str)
    table.rollback(done.instant)
    table = open_table(path)
    assert table.timeline.pending() == ()
    assert sorted(table.to_arrow(columns=["id", "v"]).to_pylist(), key=str) == before
    assert table.indexes.validate("record_index").is_sound
    table.upsert([{"id": "k2", "v": 200}])
    assert table.lookup(["k2"])["v"].to_pylist() == [200]
