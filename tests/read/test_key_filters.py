"""Filters on the record key read only the files that hold the keys, and explain says so."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.index.record import prune
from lakebed.read.prune import PruneStep

ROWS = 60
FARES = pa.schema([("id", pa.string()), ("unit", pa.int32()), ("city", pa.string()), ("ts", pa.int64())])


def fares(folder: Path, kind: str, index: str, key: str | list[str] = "id") -> lakebed.Table:
    """Three partitions with two updates each, in logs if the table is merge-on-read."""
    table = lakebed.create_table(
        folder / "t", schema=FARES, key=key, partition_by="city", ordering="ts", table_type=kind, indexes=[index]
    )
    rows = [{"id": f"k{n}", "unit": n % 4, "city": ("oslo", "lima", "rome")[n % 3], "ts": 1} for n in range(ROWS)]
    table.upsert(rows)
    table.upsert([row | {"ts": 2} for row in rows[:6]])
    return table


def step(table: lakebed.Table, where: str) -> PruneStep:
    (found,) = (each for each in table.explain(where=where).steps if each.index == "record_index")
    return found


def matching(table: lakebed.Table, where: str) -> list[dict[str, Any]]:
    """The same filter without an index, by a table handle that may not use one."""
    plain = lakebed.open_table(table._handle.storage.url, options={"hoodie.metadata.enable": "false"})
    return ordered(plain.to_arrow(where=where))


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


WHERES = (
    ("id = 'k4'", 1),
    ("id IN ('k4', 'k7', 'k10')", 1),
    ("id IN ('k3', 'k4')", 2),
    ("id = 'k4' AND ts = 2", 1),
    ("id = 'k4' OR id = 'k5'", 2),
    ("_hoodie_record_key = 'k4'", 1),
    ("id = 'k4x'", 0),
)


@pytest.mark.parametrize("index", ["record", "record_partitioned"])
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("probed", [False, True])
def test_equality_and_in(tmp_path: Path, kind: str, index: str, probed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(prune, "SINGLE_LOOKUPS_MAX", 0 if probed else 200)
    table = fares(tmp_path, kind, index)
    for where, slices in WHERES:
        used = step(table, where)
        assert (used.used, used.slices_before, used.slices_after) == (True, 3, slices), where
        assert ordered(table.to_arrow(where=where)) == matching(table, where), where
    assert "record_index: 3 -> 1 file slices, looked up 1 key" in str(table.explain(where="id = 'k4'"))


def test_many_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_CACHE_DIR", str(tmp_path / "cache"))
    table = fares(tmp_path, "mor", "record")
    listed = ", ".join(f"'k{n}'" for n in range(0, 1500, 3))
    assert step(table, f"id IN ({listed})").slices_after == 1
    assert len(table.to_arrow(where=f"id IN ({listed})")) == ROWS // 3


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_composite_keys(tmp_path: Path, kind: str) -> None:
    table = fares(tmp_path, kind, "record", key=["id", "unit"])
    for where, slices in (
        ("id = 'k4' AND unit = 0", 1),
        ("id = 'k4' AND unit = 1", 0),
        ("id IN ('k4', 'k5') AND unit IN (0, 1)", 2),
        ("_hoodie_record_key = 'id:k4,unit:0'", 1),
    ):
        assert (step(table, where).used, step(table, where).slices_after) == (True, slices), where
        assert ordered(table.to_arrow(where=where)) == matching(table, where), where
    assert not step(table, "id = 'k4'").used
    assert "no equality" in step(table, "id = 'k4'").reason
    assert ordered(table.to_arrow(where="id = 'k4'")) == matching(table, "id = 'k4'")


KEY_TYPES = (
    (pa.int64(), [7, -8], "id = 7", True),
    (pa.bool_(), [True, False], "id = true", True),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, n, tzinfo=dt.timezone.utc) for n in (1, 2)], None, False),
    (pa.date32(), [dt.date(2026, 1, 1), dt.date(2026, 1, 2)], "id = DATE '2026-01-01'", False),
    (pa.float64(), [1e10, 2.5], "id = 10000000000.0", False),
    (pa.decimal128(6, 2), [Decimal("5.00"), Decimal("6.50")], "id = 5", False),
)


@pytest.mark.parametrize(("kind", "values", "where", "is_used"), KEY_TYPES, ids=[str(each[0]) for each in KEY_TYPES])
def test_types_of_keys(tmp_path: Path, kind: pa.DataType, values: list[Any], where: str | None, is_used: bool) -> None:
    """Where writers may have spelled the value otherwise the index is left alone, and no row is lost."""
    schema = pa.schema([("id", kind), ("ts", pa.int64())])
    table = lakebed.create_table(tmp_path / "t", schema=schema, key="id", ordering="ts", indexes=["record"])
    table.upsert(pa.table({"id": pa.array(values, kind), "ts": [1, 2]}))
    where = where or "id = TIMESTAMP '2026-01-01 00:00:00+00:00'"
    assert table.to_arrow(where=where)["ts"].to_pylist() == [1]
    assert step(table, where).used is is_used
    assert is_used or "spell" in step(table, where).reason


def test_an_old_snapshot_is_not_what_the_index_describes(tmp_path: Path) -> None:
    table = fares(tmp_path, "cow", "record")
    first = table.timeline.commits()[0].requested_at
    table.delete(["k4"])
    explained = table.explain(where="id = 'k4'", as_of=first)
    assert "record_index: not used, it describes the newest snapshot only" in str(explained)
    assert len(table.to_arrow(where="id = 'k4'", as_of=first)) == 1
    assert len(table.to_arrow(where="id = 'k4'")) == 0


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_on_spark(tmp_path: Path, spark, kind: str) -> None:
    fares(tmp_path, kind, "record")
    table = lakebed.open_table(tmp_path / "t", spark=spark)
    for where in ("id = 'k4'", "id IN ('k4', 'k30')"):
        frame = table.to_spark(where=where)
        assert ordered(frame.toArrow()) == matching(table, where)
        names = {row["_hoodie_file_name"] for row in matching(table, where)}
        assert {path.rpartition("/")[2] for path in frame.inputFiles()} <= names or kind == "mor"
