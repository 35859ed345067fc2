"""Upserts to partitions that consist of one file: keys are matched when it is merged, not looked for before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.kernels.buffers import Int64s
from lakebed.write import plan
from lakebed.write.tag import files as tag

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("note", pa.string())])


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Partitions whose files were searched for keys."""
    searched: list[str] = []

    def find_keys(task: tag.FindTask) -> tuple[Int64s, Int64s]:
        searched.append(task.scan.file_slice.group.partition)
        return tag.find_keys(task)

    monkeypatch.setattr(plan, "find_keys", find_keys)
    return searched


def rows(ids: str, city: str, ts: int, note: str) -> pa.Table:
    return pa.table({"id": list(ids), "city": [city] * len(ids), "ts": [ts] * len(ids), "note": [note] * len(ids)})


def make_table(path: Path, **options: object) -> lakebed.Table:
    table = lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="city", ordering="ts", **options)
    table.insert(pa.concat_tables([rows("abc", "oslo", 5, "old"), rows("xyz", "lima", 5, "old")]))
    return table


def notes_of(table: lakebed.Table) -> dict[str, str]:
    return {row["id"]: row["note"] for row in table.to_arrow(columns=["id", "note"]).to_pylist()}


def test_updates_inserts_and_late_rows_are_told_apart(tmp_path: Path, looked_for: list[str]) -> None:
    table = make_table(tmp_path / "t")
    new = pa.concat_tables([rows("bd", "oslo", 6, "new"), rows("x", "lima", 4, "late"), rows("pq", "rome", 6, "new")])
    result = table.upsert(new)
    assert looked_for == []
    assert (result.inserted, result.updated) == (3, 1)
    expected = dict.fromkeys("acxyz", "old") | dict.fromkeys("bdpq", "new")
    assert notes_of(table) == expected
    assert len(table.to_arrow()) == len(expected), "no key twice"


@pytest.mark.parametrize("partial", [True, False])
def test_some_columns_only(tmp_path: Path, looked_for: list[str], partial: bool) -> None:
    table = make_table(tmp_path / "t")
    given = rows("bd", "oslo", 6, "new")
    table.upsert(given.drop_columns(["note"]) if partial else given, partial=partial)
    assert looked_for == []
    assert notes_of(table)["b"] == ("old" if partial else "new")
    assert notes_of(table)["d"] == (None if partial else "new")


def test_keys_are_looked_for_where_a_partition_has_several_files(tmp_path: Path, looked_for: list[str]) -> None:
    table = make_table(tmp_path / "t", options={"hoodie.parquet.small.file.limit": "0"})
    table.insert(rows("d", "oslo", 5, "old"))
    table.upsert(pa.concat_tables([rows("ad", "oslo", 6, "new"), rows("x", "lima", 6, "new")]))
    assert looked_for.count("oslo") == 2
    assert notes_of(table) == dict.fromkeys("bcyz", "old") | dict.fromkeys("adx", "new")


def test_keys_are_looked_for_where_new_rows_would_not_fit(tmp_path: Path, looked_for: list[str]) -> None:
    table = make_table(tmp_path / "t", options={"hoodie.parquet.small.file.limit": "0"})
    table.upsert(rows("ad", "oslo", 6, "new"))
    assert looked_for == ["oslo"]
    assert notes_of(table) == dict.fromkeys("bcxyz", "old") | dict.fromkeys("ad", "new")


def test_deletes_look_for_their_keys(tmp_path: Path, looked_for: list[str]) -> None:
    """A file without any of the keys is not written again."""
    table = make_table(tmp_path / "t")
    assert table.delete(["nobody"]).files == ()
    assert set(looked_for) == {"oslo", "lima"}


def test_log_files_have_known_keys_only(tmp_path: Path, looked_for: list[str]) -> None:
    table = make_table(tmp_path / "t", table_type="mor")
    table.upsert(rows("bd", "oslo", 6, "new"))
    assert looked_for == ["oslo"]
    assert notes_of(table) == dict.fromkeys("acxyz", "old") | dict.fromkeys("bd", "new")
