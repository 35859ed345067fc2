"""Columns that a null made nullable: all readers read the table, and Apache Hudi goes on writing to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.write_peer import WITH_METADATA, WITHOUT_METADATA, PeerError, running_peer

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("a", pa.string(), nullable=False),
        pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
    ]
)
LOOSE = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("s", pa.struct([("x", pa.int64())]))])
HUDI = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.metadata.index.column.stats.enable": "true",
}


def row(key: str, ts: int, a: str | None, x: int | None) -> dict[str, Any]:
    return {"id": key, "ts": ts, "a": a, "s": {"x": x}}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_all_readers_read_nulls_in_a_column_that_was_required(tmp_path: Path, table_type: str, log_format: str) -> None:
    if (table_type, log_format) == ("cow", "avro"):
        pytest.skip("there are no log files")
    options = {"hoodie.table.name": "t", "hoodie.logfile.data.block.format": log_format}
    table = lakebed.create_table(
        tmp_path, schema=SCHEMA, key="id", ordering="ts", table_type=table_type, options=options
    )
    table.upsert(pa.Table.from_pylist([row("1", 1, "x", 1), row("2", 1, "x", 1), row("3", 1, "x", 1)], SCHEMA))
    table.upsert(pa.Table.from_pylist([row("2", 2, "y", 2)], SCHEMA))
    assert not table.schema.field("a").nullable
    table.upsert(pa.Table.from_pylist([row("1", 2, None, None), row("4", 2, None, 4)], LOOSE))
    expected = [row("1", 2, None, None), row("2", 2, "y", 2), row("3", 1, "x", 1), row("4", 2, None, 4)]
    check(table, tmp_path, expected)
    kind = "MERGE_ON_READ" if table_type == "mor" else "COPY_ON_WRITE"
    given = pa.Table.from_pylist([row("3", 3, None, None), row("5", 3, "z", 5)], LOOSE)
    running_peer().write(tmp_path, given, "upsert", {**HUDI, "hoodie.datasource.write.table.type": kind})
    expected[2:] = [row("3", 3, None, None), row("4", 2, None, 4), row("5", 3, "z", 5)]
    check(table, tmp_path, expected)
    assert [field.name for field in table.schema if not field.nullable] == [], "as Apache Hudi leaves them"
    if table_type == "mor":
        table.services.compact()
    table.upsert(pa.Table.from_pylist([row("5", 4, None, 5)], LOOSE))
    check(table, tmp_path, [*expected[:4], row("5", 4, None, 5)])


def check(table: lakebed.Table, path: Path, expected: list[dict[str, Any]]) -> None:
    assert rows_of(table.to_arrow()) == expected
    for options in (WITH_METADATA, WITHOUT_METADATA):
        assert rows_of(running_peer().read(path, options)) == expected
    assert rows_of(running_peer().read_rs(path)) == expected


def rows_of(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.select(SCHEMA.names).sort_by("id").to_pylist()


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite", "insert_overwrite_table"])
def test_apache_hudi_refuses_rows_that_lack_a_column(tmp_path: Path, operation: str) -> None:
    """What lakebed does by default is what it does by default."""
    table = lakebed.create_table(tmp_path, schema=LOOSE, key="id", ordering="ts", options={"hoodie.table.name": "t"})
    table.upsert(pa.Table.from_pylist([row("1", 1, "x", 1)], LOOSE))
    less = pa.table({"id": ["1"], "ts": [2], "a": ["y"]})
    with pytest.raises(PeerError, match="missing field"):
        running_peer().write(tmp_path, less, operation, HUDI)
    running_peer().write(tmp_path, less, operation, {**HUDI, "hoodie.write.set.null.for.missing.columns": "true"})
    assert {"id": "1", "ts": 2, "a": "y", "s": None} in rows_of(table.to_arrow())
