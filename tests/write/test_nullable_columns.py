"""A column that must have values becomes nullable by the first write that brings a null, and by no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.write.rows import input as write_input

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("a", pa.string(), nullable=False),
        pa.field("b", pa.int64(), nullable=False),
    ]
)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", ordering="ts", table_type=request.param)
    table.upsert(pa.Table.from_pylist([row("1", 1), row("2", 1)], SCHEMA))
    return table


def row(key: str, ts: int, a: str | None = "x", b: int | None = 1) -> dict[str, Any]:
    return {"id": key, "ts": ts, "a": a, "b": b}


def stored(table: lakebed.Table) -> list[dict[str, Any]]:
    return table.to_arrow(columns=SCHEMA.names).sort_by("id").to_pylist()


def required(table: lakebed.Table) -> list[str]:
    return [field.name for field in table.schema if not field.nullable]


def test_a_write_without_nulls_leaves_columns_as_they_are(table: lakebed.Table) -> None:
    """Arrow and frames call every column nullable; what counts is what rows have."""
    table.upsert([row("2", 2), row("3", 2)])
    table.upsert([{"id": "1", "ts": 2, "a": "y"}], partial=True)
    table.upsert(pa.RecordBatchReader.from_batches(nullable(), [pa.RecordBatch.from_pylist([], nullable())]))
    assert required(table) == SCHEMA.names
    assert stored(table) == [row("1", 2, "y"), row("2", 2), row("3", 2)]


@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "overwrite"])
def test_a_null_makes_its_column_nullable(table: lakebed.Table, verb: str) -> None:
    getattr(table, verb)([row("3", 2, a=None), row("4", 2)])
    before = [row("1", 1), row("2", 1)] if verb != "overwrite" else []
    assert stored(table) == [*before, row("3", 2, a=None), row("4", 2)]
    assert required(table) == ["id", "ts", "b"]
    table.upsert([row("4", 3, a=None)])
    assert stored(table)[-1] == row("4", 3, a=None)
    assert required(table) == ["id", "ts", "b"]


def test_a_partial_update_can_set_null(table: lakebed.Table) -> None:
    table.upsert([{"id": "1", "ts": 2, "a": None}], partial=True)
    assert stored(table) == [row("1", 2, a=None), row("2", 1)]
    assert required(table) == ["id", "ts", "b"]


def test_rows_that_are_staged(table: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than is held: whether there is a null is known once all rows are staged."""
    monkeypatch.setattr(write_input, "_READER_BYTES", 0)
    full = [pa.RecordBatch.from_pylist([row(str(n), 2)], nullable()) for n in (3, 4)]
    table.upsert(pa.RecordBatchReader.from_batches(nullable(), full))
    assert required(table) == SCHEMA.names
    last = pa.RecordBatch.from_pylist([row("5", 2, a=None)], nullable())
    table.upsert(pa.RecordBatchReader.from_batches(nullable(), [*full, last]))
    assert required(table) == ["id", "ts", "b"]
    assert stored(table)[2:] == [row("3", 2), row("4", 2), row("5", 2, a=None)]


def test_services_keep_the_columns_nullable(table: lakebed.Table) -> None:
    table.upsert([row("1", 2, a=None)])
    if table.config.table_type == "MERGE_ON_READ":
        table.services.compact()
    table.services.cluster()
    assert required(table) == ["id", "ts", "b"]
    assert stored(table) == [row("1", 2, a=None), row("2", 1)]
    assert stored(lakebed.open_table(url(table), options={"hoodie.metadata.enable": "false"})) == stored(table)


@pytest.mark.parametrize("column", ["id", "ts"])
def test_keys_and_ordering_values_stay_required(table: lakebed.Table, column: str) -> None:
    with pytest.raises(lakebed.InvalidInputError, match=f"column '{column}' must not be null, and is in row 1"):
        table.upsert([row("3", 2), row("4", 2) | {column: None}])
    assert len(table.timeline) == 1


def nullable() -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in SCHEMA])


def url(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]
