"""Apache Hudi does away with a global record index that a writer does not ask for: lakebed notices, and mends it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.write_peer import WITH_METADATA, running_peer
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
HUDI = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.table.name": "trips",
    "hoodie.upsert.shuffle.parallelism": "2",
}


@pytest.mark.parametrize("options", [{"hoodie.metadata.enable": "false"}, {"hoodie.metadata.enable": "true"}])
def test_a_global_index_that_apache_hudi_drops(tmp_path: Path, options: dict[str, str]) -> None:
    path = tmp_path / "trips"
    made = lakebed.create_table(
        path, schema=SCHEMA, key="id", partition_by="city", ordering="ts", indexes=("record", "column_stats")
    )
    made.upsert([{"id": "a", "city": "oslo", "ts": 1}, {"id": "b", "city": "lima", "ts": 1}])
    batch = pa.table({"id": ["c"], "city": ["oslo"], "ts": pa.array([2], pa.int64())})
    running_peer().write(path, batch, "upsert", {**HUDI, **options})
    table = lakebed.open_table(path)
    assert "record_index" not in table.config.metadata_partitions
    with pytest.raises(InvalidInputError, match="lost its record index"):
        table.upsert([{"id": "a", "city": "rome", "ts": 3}])
    assert "record_index" in {finding.place for finding in table.doctor()}
    assert all(finding.is_repaired for finding in table.doctor(repair=True))
    lakebed.open_table(path).upsert([{"id": "a", "city": "rome", "ts": 3}])
    found = running_peer().read(path, WITH_METADATA).sort_by("id")
    assert found.select(["id", "city"]).to_pydict() == {"id": ["a", "b", "c"], "city": ["rome", "lima", "oslo"]}
