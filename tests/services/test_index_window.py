"""A record index of the newest partitions: what it knows, what becomes of the rest, and how its window moves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.table import open_handle

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
KINDS = ("cow", "mor")
SHARED, OWN = "hoodie.table.metadata.partitions", "lakebed.metadata.partitions"

Key = tuple[str, str, int]


def rows(*keys: Key) -> pa.Table:
    return pa.Table.from_pylist([{"id": k, "day": d, "ts": t, "fare": float(t)} for k, d, t in keys], SCHEMA)


def day(number: int) -> str:
    return f"2026-11-{number:02}"


def made(path: Path, kind: str = "cow", days: int = 5, window: int = 2, **given: Any) -> lakebed.Table:
    """Keys a and b in each of some days, of which the newest are indexed."""
    table = lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="day", ordering="ts", table_type=kind)
    table.upsert(rows(*((key, day(n), 1) for n in range(1, days + 1) for key in "ab")))
    table.indexes.create("record_index", kind="record_windowed", window=window, **given)
    return table


def stored(table: lakebed.Table) -> list[Key]:
    return sorted((row["id"], row["day"], row["ts"]) for row in table.to_arrow().to_pylist())


def indexed(path: Path) -> Counter[str]:
    """How many keys of each day the index has."""
    metadata = open_handle(path).state().metadata
    assert isinstance(metadata, MetadataTable)
    return Counter(read_record_index(metadata)["partition"].to_pylist())


def properties(path: Path) -> dict[str, str]:
    return dict(open_handle(path).config.properties)


def check(table: lakebed.Table) -> None:
    found = table.indexes.validate("record_index")
    assert found.is_sound, found.examples


def test_other_engines_are_not_told_of_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    assert "record_index" not in properties(tmp_path / "t")[SHARED]
    assert properties(tmp_path / "t")[OWN] == "record_index"
    (info,) = (info for info in table.indexes.list() if info.name == "record_index")
    assert (info.kind, info.state, info.shards) == (f"record_index (from {day(4)} on)", "ready", 2)
    assert indexed(tmp_path / "t") == {day(4): 2, day(5): 2}
    check(table)
    for work in (
        lambda: table.indexes.reshard("record_index", shards=3),
        lambda: table.indexes.create("files", rebuild=True),
        lambda: table.indexes.create("bloom"),
    ):
        work()
        assert "record_index" not in properties(tmp_path / "t")[SHARED]
        assert indexed(tmp_path / "t") == {day(4): 2, day(5): 2}
        check(table)
    table.indexes.drop("record_index")
    assert properties(tmp_path / "t")[OWN] == ""


@pytest.mark.parametrize("kind", KINDS)
def test_rows_outside_are_scanned_for(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind)
    result = table.upsert(rows(("a", day(1), 2), ("new", day(2), 2), ("a", day(5), 2), ("new", day(6), 2)))
    assert (result.inserted, result.updated, result.metrics["rows_outside_window"]) == (2, 2, 2)
    assert Counter((k, d) for k, d, _ in stored(table)).most_common(1)[0][1] == 1
    assert {("a", day(1), 2), ("new", day(2), 2), ("a", day(5), 2), ("new", day(6), 2)} <= {*stored(table)}
    assert indexed(tmp_path / "t") == {day(4): 2, day(5): 2, day(6): 1}
    check(table)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_outside_are_taken_for_new_if_asked(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, outside="new")
    result = table.upsert(rows(("c", day(1), 2), ("a", day(5), 2)))
    assert (result.inserted, result.updated, result.metrics["rows_outside_window"]) == (1, 1, 1)
    assert ("c", day(1), 2) in stored(table)
    check(table)


def test_rows_outside_are_refused_if_asked(tmp_path: Path) -> None:
    table = made(tmp_path / "t", outside="refuse")
    before = stored(table)
    with pytest.raises(lakebed.InvalidInputError, match=day(1)):
        table.upsert(rows(("a", day(1), 2), ("a", day(5), 2)))
    assert stored(table) == before
    assert table.upsert(rows(("a", day(5), 2), ("a", day(7), 2))).metrics["rows_outside_window"] == 0
    check(table)


@pytest.mark.parametrize("kind", KINDS)
def test_the_window_moves_on(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    table = made(path, kind)
    assert table.indexes.move_window() == day(4)  # Nothing newer has come.
    table.upsert(rows(("a", day(6), 1), ("a", day(7), 1)))
    assert indexed(path) == {day(4): 2, day(5): 2, day(6): 1, day(7): 1}
    assert table.indexes.move_window() == day(6)
    assert indexed(path) == {day(6): 1, day(7): 1}
    check(table)
    assert shard_days(path) == {day(4), day(5), day(6), day(7)}, "readers that began before may still look into them"
    assert table.upsert(rows(("a", day(4), 2), ("z", day(5), 2))).metrics["rows_outside_window"] == 2
    table.upsert(rows(("a", day(8), 1)))
    assert table.indexes.move_window() == day(7)
    assert shard_days(path) == {day(6), day(7), day(8)}
    assert max(Counter((k, d) for k, d, _ in stored(table)).values()) == 1
    check(table)


def shard_days(path: Path) -> set[str]:
    """The days of which there are files in the index."""
    files = (decode_data_file_name(file.name) for file in (path / ".hoodie/metadata/record_index").iterdir())
    return {data_partition_of_group(file.file_id) or "" for file in files if file is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_lookups_and_filters_find_rows_on_both_sides(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind)
    table.upsert(rows(("old", day(1), 5), ("young", day(5), 5)))
    for key, days in (("old", [day(1)]), ("young", [day(5)]), ("a", [day(n) for n in range(1, 6)]), ("nobody", [])):
        assert sorted(table.lookup([key])["day"].to_pylist()) == days
        assert sorted(table.to_arrow(where=f"id = '{key}'")["day"].to_pylist()) == days
    (step,) = (step for step in table.explain(where="id = 'young'").steps if step.index == "record_index")
    assert step.used
    assert f"keeping partitions before {day(4)!r}, which are not indexed" in step.reason


@pytest.mark.parametrize("kind", KINDS)
def test_deletes_by_key_find_rows_on_both_sides(tmp_path: Path, kind: str) -> None:
    table = made(tmp_path / "t", kind, outside="refuse")
    table.delete(["a"])
    assert stored(table) == [("b", day(n), 1) for n in range(1, 6)]
    check(table)


def test_an_engine_that_does_not_know_of_it_makes_it_stale(tmp_path: Path) -> None:
    """Its commits of the metadata table do not say that the index was kept: nobody trusts it then, and all are told."""
    path = tmp_path / "t"
    table = made(path)
    table.upsert(rows(("c", day(5), 1)))
    newest = max((path / ".hoodie/metadata/.hoodie/timeline").glob("*_*.deltacommit"), key=lambda f: f.name[18:])
    newest.write_bytes(newest.read_bytes().replace(b"lakebed.window.kept", b"lakebed.window.nope"))
    table = lakebed.open_table(path)
    (info,) = (info for info in table.indexes.list() if info.name == "record_index")
    assert info.state == "stale"
    (step,) = (step for step in table.explain(where="id = 'a'").steps if step.index == "record_index")
    assert (step.used, step.reason) == (False, "another engine has written since it was built")
    with pytest.raises(lakebed.InvalidInputError, match="no record index"):
        table.lookup(["a"])
    assert "rows_outside_window" not in table.upsert(rows(("a", day(5), 3))).metrics  # Found in files.
    assert max(Counter((k, d) for k, d, _ in stored(table)).values()) == 1
    table.indexes.create("record_index", kind="record_windowed", window=2, rebuild=True)
    assert len(table.lookup(["c"])) == 1
    check(table)


def test_an_index_that_another_engine_built_has_no_window(tmp_path: Path) -> None:
    """Whatever it left of ours in the definition: it knows all keys, and must go on to."""
    path = tmp_path / "t"
    table = made(path)
    definitions = path / ".hoodie/.index_defs/index.json"
    left = definitions.read_text()
    table.indexes.create("record_index", kind="record_partitioned", rebuild=True)
    definitions.write_text(left)
    table = lakebed.open_table(path)
    assert table.upsert(rows(("a", day(1), 2), ("new", day(1), 2))).metrics["rows_outside_window"] == 0
    assert indexed(path)[day(1)] == 3
    check(table)


def test_windows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    for arguments, message in (
        ({"kind": "record_windowed"}, "needs window"),
        ({"kind": "record", "window": 2}, "has no window"),
        ({"kind": "record_windowed", "window": 0}, "a window cannot have 0"),
        ({"kind": "record_windowed", "window": 1, "outside": "guess"}, "guess"),
    ):
        with pytest.raises(lakebed.InvalidInputError, match=message):
            table.indexes.create("record_index", rebuild=True, **arguments)  # type: ignore[arg-type]
    flat = lakebed.create_table(tmp_path / "flat", schema=SCHEMA, key="id")
    with pytest.raises(lakebed.InvalidInputError, match="not partitioned"):
        flat.indexes.create("record_index", kind="record_windowed", window=1)
    with pytest.raises(lakebed.InvalidInputError, match="no record index with a window"):
        flat.indexes.move_window()
    table.indexes.create("record_index", kind="record_partitioned", rebuild=True)
    assert "record_index" in properties(tmp_path / "t")[SHARED]
    assert properties(tmp_path / "t")[OWN] == ""
    definitions = json.loads((tmp_path / "t/.hoodie/.index_defs/index.json").read_text())
    assert definitions["indexDefinitions"]["record_index"]["indexOptions"] == {"isPartitioned": "true"}
