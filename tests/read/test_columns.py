from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.config import TableConfig
from lakebed.read.columns import plan_columns

SCHEMA = pa.schema(
    [
        ("_hoodie_commit_time", pa.string()),
        ("_hoodie_record_key", pa.string()),
        ("_hoodie_partition_path", pa.string()),
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("region", pa.string()),
    ]
)


def config(**properties: str) -> TableConfig:
    base = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "region",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.keygenerator.type": "SIMPLE",
    }
    return TableConfig({**base, **{f"hoodie.{key}": value for key, value in properties.items()}})


def test_what_folder_and_key_tell_is_not_read() -> None:
    columns = plan_columns(SCHEMA, "eu", config(), merged=False)
    assert columns.stored.names == ["_hoodie_commit_time", "_hoodie_record_key", "ts"]
    rows = pa.table({"_hoodie_commit_time": ["1"], "_hoodie_record_key": ["k1"], "ts": [5]})
    assert columns.complete(rows, path="f").to_pylist() == [
        {
            "_hoodie_commit_time": "1",
            "_hoodie_record_key": "k1",
            "_hoodie_partition_path": "eu",
            "id": "k1",
            "ts": 5,
            "region": "eu",
        }
    ]


def test_the_key_is_read_where_only_its_copy_is_wanted() -> None:
    columns = plan_columns(pa.schema([("id", pa.string())]), "eu", config(), merged=False)
    assert columns.stored.names == ["_hoodie_record_key"]
    assert columns.complete(pa.table({"_hoodie_record_key": ["k1"]}), path="f").to_pylist() == [{"id": "k1"}]


@pytest.mark.parametrize(
    ("properties", "stored"),
    [
        ({"table.keygenerator.type": "COMPLEX"}, {"id"}),  # Its spelling differs between releases.
        ({"table.recordkey.fields": "id,ts"}, {"id"}),
        ({"table.keygenerator.type": "TIMESTAMP"}, {"id", "region"}),
        ({"table.ordering.fields": "region"}, {"region"}),  # What decides a merge is read as it was written.
        ({"populate.meta.fields": "false"}, {"id"}),
    ],
)
def test_what_they_do_not_tell_is_read(properties: dict[str, str], stored: set[str]) -> None:
    table = config(**properties)
    wanted = SCHEMA if table.has_meta_columns else pa.schema([field for field in SCHEMA if "_hoodie" not in field.name])
    assert stored <= set(plan_columns(wanted, "eu", table, merged=True).stored.names)


def test_a_folder_that_does_not_match_leaves_the_value_to_the_file() -> None:
    columns = plan_columns(SCHEMA, "eu/extra/more", config(**{"table.partition.fields": "region,other"}), merged=False)
    assert "region" in columns.stored.names


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_partition_columns_can_be_read_alone(kind: str, tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b", "c"], "region": ["eu", "eu", "us"]})
    table = lakebed.create_table(tmp_path / "t", schema=rows.schema, key="id", partition_by="region", table_type=kind)
    table.upsert(rows)
    assert sorted(table.to_arrow(columns=["region"])["region"].to_pylist()) == ["eu", "eu", "us"]
    assert table.to_arrow(columns=["_hoodie_partition_path"], where="region = 'eu'").num_rows == 2
