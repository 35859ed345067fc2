"""Rows that lack a column of the table: refused as in Apache Hudi, unless the caller says what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), pa.field("note", pa.string(), nullable=False)]
)
FULL = {"id": "a", "ts": 1, "fare": 1.0, "note": "x"}
SET_NULL = "hoodie.write.set.null.for.missing.columns"
VERBS: dict[str, Callable[[lakebed.Table, Any], Any]] = {
    "upsert": lakebed.Table.upsert,
    "insert": lakebed.Table.insert,
    "bulk_insert": lakebed.Table.bulk_insert,
    "overwrite": lakebed.Table.overwrite,
    "overwrite the table": lambda table, rows: table.overwrite(rows, whole_table=True),
}


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", ordering="ts", table_type=request.param)
    table.upsert([FULL])
    return table


def with_options(table: lakebed.Table, options: dict[str, str]) -> lakebed.Table:
    return lakebed.open_table(str(table).partition("'")[2].rpartition("'")[0], options=options)


def stored(table: lakebed.Table) -> list[dict[str, Any]]:
    return table.to_arrow(columns=SCHEMA.names).sort_by([("id", "ascending"), ("ts", "ascending")]).to_pylist()


@pytest.mark.parametrize("write", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("lacking", ["fare", "note"])
def test_a_column_that_rows_lack_is_named_and_nothing_is_written(
    table: lakebed.Table, write: Callable[..., Any], lacking: str
) -> None:
    rows = pa.table({name: [value] for name, value in FULL.items() if name != lacking})
    with pytest.raises(lakebed.InvalidInputError, match=f"the rows lack the column '{lacking}'") as error:
        write(table, rows)
    assert f"{SET_NULL}=true" in error.value.hint
    assert "upsert(rows, partial=True)" in error.value.hint
    assert len(table.timeline) == 1
    assert stored(table) == [FULL]


@pytest.mark.parametrize("rows", [pa.table({"id": ["a"]}), [{"id": "a"}]], ids=["arrow", "dicts"])
def test_all_columns_that_rows_lack_are_named(table: lakebed.Table, rows: object) -> None:
    with pytest.raises(lakebed.InvalidInputError, match="the rows lack the columns 'ts', 'fare' and 'note'"):
        table.upsert(rows)


@pytest.mark.parametrize("key", [SET_NULL, "hoodie.datasource.write.reconcile.schema"])
@pytest.mark.parametrize("write", VERBS.values(), ids=VERBS)
def test_an_option_sets_them_to_null(table: lakebed.Table, write: Callable[..., Any], key: str) -> None:
    asking = with_options(table, {key: "true"})
    write(asking, [{"id": "a", "ts": 2}])
    assert {"id": "a", "ts": 2, "fare": None, "note": None} in stored(table)
    # As in Apache Hudi, a column that had to have a value no longer has to.
    assert table.schema.field("note").nullable
    with pytest.raises(lakebed.InvalidInputError, match="the rows lack the column"):
        write(with_options(table, {key: "false"}), [{"id": "a", "ts": 3}])


def test_a_partial_update_keeps_their_values(table: lakebed.Table) -> None:
    table.upsert([{"id": "a", "ts": 2}], partial=True)
    assert stored(table) == [FULL | {"ts": 2}]


def test_an_option_of_create_table_counts_as_well(tmp_path: Path) -> None:
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, key="id", options={SET_NULL: "true"})
    table.upsert([{"id": "a"}])
    assert stored(table) == [{"id": "a", "ts": None, "fare": None, "note": None}]
    with pytest.raises(lakebed.InvalidInputError, match=f"{SET_NULL}=yes is not supported"):
        lakebed.create_table(tmp_path / "other", schema=SCHEMA, key="id", options={SET_NULL: "yes"})
    assert not (tmp_path / "other").exists()


def test_deletes_need_no_more_than_the_key(table: lakebed.Table) -> None:
    table.delete([{"id": "a"}])
    assert stored(table) == []


def test_rows_that_are_marked_as_deletes_bring_every_column(table: lakebed.Table) -> None:
    with pytest.raises(lakebed.InvalidInputError, match="the rows lack the columns 'fare' and 'note'"):
        table.upsert([{"id": "a", "ts": 2, "_hoodie_is_deleted": True}])
    table.upsert([FULL | {"ts": 2, "_hoodie_is_deleted": True}])
    assert stored(table) == []


NESTED = {
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.int64())]), {"x": 1, "y": 2}, {"x": 3}, "c.y"),
    "list": (pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())])), [{"x": 1, "y": 2}], [{"x": 3}], "c[].y"),
    "map": (
        pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.int64())])),
        [("k", {"x": 1, "y": 2})],
        [("k", {"x": 3})],
        "c{}.y",
    ),
}


@pytest.mark.parametrize(("kind", "whole", "part", "column"), NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("partial", [False, True])
def test_fields_inside_of_columns(tmp_path: Path, kind: pa.DataType, whole, part, column: str, partial: bool) -> None:
    schema = pa.schema([("id", pa.string()), ("c", kind)])
    table = lakebed.create_table(tmp_path / "t", schema=schema, key="id")
    table.upsert(pa.table({"id": ["a"], "c": [whole]}, schema))
    less = pa.struct([("x", pa.int64())])
    given = less if pa.types.is_struct(kind) else pa.list_(less) if pa.types.is_list(kind) else pa.map_("string", less)
    rows = pa.table({"id": ["a"], "c": pa.array([part], given)})
    with pytest.raises(lakebed.InvalidInputError) as error:
        table.upsert(rows, partial=partial)
    assert error.value.what == f"the rows lack the column {column!r}"
    # A partial update replaces the whole of each column that it is given: it keeps no field inside of one.
    assert "partial=True" not in error.value.hint
    with_options(table, {SET_NULL: "true"}).upsert(rows, partial=partial)
    filled = {"x": 3, "y": None}
    assert table.to_arrow(columns=["c"])["c"].to_pylist()[0] in (filled, [filled], [("k", filled)])


@pytest.mark.parametrize("partial", [False, True])
def test_a_column_that_some_dicts_lack(table: lakebed.Table, partial: bool) -> None:
    rows = [FULL | {"id": "b"}, {"id": "a", "ts": 2, "note": "y"}]
    with pytest.raises(lakebed.InvalidInputError, match="row 1 lacks the column 'fare', which other rows have"):
        table.upsert(rows, partial=partial)
    assert stored(table) == [FULL]
    with_options(table, {SET_NULL: "true"}).upsert(rows, partial=partial)
    assert stored(table) == [{"id": "a", "ts": 2, "fare": None, "note": "y"}, FULL | {"id": "b"}]


def test_marks_and_new_columns_may_be_in_some_dicts_alone(table: lakebed.Table) -> None:
    table.upsert([FULL | {"ts": 2, "_hoodie_is_deleted": True}, FULL | {"id": "b", "tip": 1}, FULL | {"id": "c"}])
    assert [row["id"] for row in stored(table)] == ["b", "c"]
    assert table.to_arrow(columns=["id", "tip"]).sort_by("id")["tip"].to_pylist() == [1, None]
