"""Keys that were deleted and come back: on merge-on-read tables they stay with the file group that has them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.words import PARTITION_PATH, RECORD_KEY
from tables import TRIPS as SCHEMA

MARK = "_hoodie_is_deleted"
_NUMBERS = itertools.count()


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"table_type": "mor", "indexes": (), "ordering": "ts", "partition_by": "city"}
    return lakebed.create_table(folder / f"t{next(_NUMBERS)}", schema=SCHEMA, key="id", **asked | given)


def rows(ids: str, ts: int, city: str = "oslo") -> pa.Table:
    return pa.table({"id": [*ids], "city": [city] * len(ids), "ts": [ts] * len(ids), "fare": [float(ts)] * len(ids)})


def marked(ids: str, ts: int, city: str = "oslo") -> pa.Table:
    return rows(ids, ts, city).append_column(MARK, pa.array([True] * len(ids)))


def stored(table: lakebed.Table, **how: Any) -> list[tuple[str, str, int]]:
    found = table.to_arrow(columns=["id", "city", "ts"], **how).to_pylist()
    return sorted((row["id"], row["city"], row["ts"]) for row in found)


def counts(result: lakebed.WriteResult) -> tuple[int, int, int]:
    return result.inserted, result.updated, result.deleted


def groups(table: lakebed.Table) -> list[tuple[str, int]]:
    """The partition of each file group, and how many log files it has."""
    return sorted((each.group.partition.rpartition("=")[2], len(each.logs)) for each in table.files())


@pytest.mark.parametrize("index", ["auto", "SIMPLE", "BLOOM"])
@pytest.mark.parametrize("log_format", ["parquet", "avro"])
def test_a_key_that_comes_back_goes_where_its_base_row_is(tmp_path: Path, index: str, log_format: str) -> None:
    options = {"hoodie.logfile.data.block.format": log_format}
    if index != "auto":
        options["hoodie.index.type"] = index
    table = new_table(tmp_path, options=options)
    table = lakebed.open_table(tmp_path / f"t{next(_NUMBERS) - 1}", options=options)
    assert counts(table.upsert(rows("ab", 1))) == (2, 0, 0)
    assert counts(table.delete(["a"])) == (0, 0, 1)
    assert stored(table) == [("b", "oslo", 1)]

    assert counts(table.upsert(rows("a", 2))) == (1, 0, 0)

    assert groups(table) == [("oslo", 2)]
    assert stored(table) == [("a", "oslo", 2), ("b", "oslo", 1)]
    assert stored(table, mode="read_optimized") == [("a", "oslo", 1), ("b", "oslo", 1)]
    assert counts(table.upsert(rows("a", 3))) == (0, 1, 0)
    table.services.compact()
    assert stored(table, mode="read_optimized") == stored(table) == [("a", "oslo", 3), ("b", "oslo", 1)]


def test_a_late_row_stays_deleted_and_is_not_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows("ab", 1))
    assert counts(table.upsert(marked("a", 9))) == (0, 0, 1)
    assert counts(table.upsert(rows("ac", 8))) == (1, 0, 0)
    assert stored(table) == [("b", "oslo", 1), ("c", "oslo", 8)]
    assert counts(table.upsert(marked("a", 20))) == (0, 0, 0)  # Deleted as it was, but until later.
    assert counts(table.upsert(rows("a", 19))) == (0, 0, 0)
    assert counts(table.upsert(rows("a", 20))) == (1, 0, 0)
    assert stored(table) == [("a", "oslo", 20), ("b", "oslo", 1), ("c", "oslo", 8)]


def test_a_key_that_only_logs_have_stays_with_them(tmp_path: Path) -> None:
    """As after a record index was dropped: until then new keys may lie in log files alone."""
    table = new_table(tmp_path, indexes=("record",))
    table.upsert(rows("b", 1))
    table.upsert(rows("a", 1))
    table.indexes.drop("record_index")
    assert groups(table) == [("oslo", 1)]
    table.upsert(marked("a", 9))
    assert counts(table.upsert(rows("a", 8))) == (0, 0, 0)
    assert counts(table.upsert(rows("a", 9))) == (1, 0, 0)
    assert groups(table) == [("oslo", 4)]
    assert stored(table) == [("a", "oslo", 9), ("b", "oslo", 1)]


def test_some_columns_of_a_key_that_comes_back(tmp_path: Path) -> None:
    """Nothing of the row that was deleted is taken over."""
    table = new_table(tmp_path)
    table.upsert(rows("ab", 1))
    table.delete(["a"])
    assert counts(table.upsert(rows("a", 2).drop_columns(["fare"]), partial=True)) == (1, 0, 0)
    assert table.to_arrow(where="id = 'a'")["fare"].to_pylist() == [None]


def test_deletes_by_key_alone_hit_what_is_there(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(pa.concat_tables([rows("a", 1), rows("a", 1, "lima"), rows("b", 1, "lima")]))
    table.delete(rows("a", 1).select(["id", "city"]))
    assert counts(table.delete(["a"])) == (0, 0, 1)
    assert counts(table.delete(["a"])) == (0, 0, 0)
    assert stored(table) == [("b", "lima", 1)]
    assert counts(table.upsert(pa.concat_tables([rows("a", 2), rows("a", 2, "lima")]))) == (2, 0, 0)
    assert {city for city, _ in groups(table)} == {"oslo", "lima"}
    assert len(groups(table)) == 2


def test_a_key_that_lives_elsewhere_in_its_partition_is_updated_there(tmp_path: Path) -> None:
    """With a record index a deleted key comes back in another file group; files are then looked through without it."""
    table = new_table(tmp_path, indexes=("record",))
    path = tmp_path / f"t{next(_NUMBERS) - 1}"
    table.upsert(rows("ab", 1))
    table.upsert(marked("a", 9))
    assert counts(table.upsert(rows("a", 8))) == (1, 0, 0)
    assert len(groups(table)) == 2
    simple = lakebed.open_table(path, options={"hoodie.index.type": "SIMPLE"})
    assert counts(simple.upsert(rows("a", 10))) == (0, 1, 0)
    assert stored(table) == [("a", "oslo", 10), ("b", "oslo", 1)]
    assert counts(simple.delete(["a"])) == (0, 0, 1)
    assert counts(simple.upsert(rows("a", 11))) == (1, 0, 0)
    assert stored(simple) == stored(table) == [("a", "oslo", 11), ("b", "oslo", 1)]
    assert table.lookup(["a"]).select([RECORD_KEY, PARTITION_PATH]).num_rows == 1
    found = table.indexes.validate("record_index")
    assert found.is_sound, found.examples


@pytest.mark.parametrize("ordering", ["ts", None])
def test_inside_and_outside_the_window_of_an_index_that_others_do_not_know(
    tmp_path: Path, ordering: str | None
) -> None:
    table = new_table(tmp_path, ordering=ordering)
    old, new = "2026-11-01", "2026-11-09"
    table.upsert(pa.concat_tables([rows("ab", 1, old), rows("ab", 1, new)]))
    table.indexes.create("record_index", kind="record_windowed", window=1)
    table.upsert(pa.concat_tables([marked("a", 9, old), marked("a", 9, new)]))

    late = pa.concat_tables([rows("ac", 8, old), rows("ac", 8, new)])
    expected = {"ts": (2, 0, 0), None: (4, 0, 0)}[ordering]
    assert counts(table.upsert(late)) == expected
    assert len([each for each in stored(table) if each[0] == "a"]) == expected[0] - 2
    assert sum(logs for _, logs in groups(table)) == 4

    again = pa.concat_tables([rows("a", 9, old), rows("a", 9, new)])
    assert counts(table.upsert(again)) == ((2, 0, 0) if ordering else (0, 2, 0))
    assert counts(table.upsert(again)) == (0, 2, 0), "the index knows them again"
    assert [each for each in stored(table) if each[0] == "a"] == [("a", old, 9), ("a", new, 9)]
    assert counts(table.delete(["a"])) == (0, 0, 2)
    found = table.indexes.validate("record_index")
    assert found.is_sound, found.examples
