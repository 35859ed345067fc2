"""Statistics of partitions that a process wrote last are not read again, and are never taken for what they are not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.index.partition_stats.current import find_written, note_written
from lakebed.metadata import MetadataTable
from lakebed.metadata.shard import StoredValue
from lakebed.model.metadata import ColumnStats
from lakebed.storage import cache
from lakebed.storage.cache import FileCache
from tables import TRIPS as SCHEMA


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The metadata-table partitions whose entries were read for statistics."""
    found: list[str] = []
    find = MetadataTable.find_many

    def noted(self: MetadataTable, partition: str, keys: list[str]) -> dict[str, list[StoredValue]]:
        found.append(partition)
        return find(self, partition, keys)

    monkeypatch.setattr(MetadataTable, "find_many", noted)
    return found


def made(path: Path, kind: str = "mor") -> lakebed.Table:
    return lakebed.create_table(
        path, schema=SCHEMA, key="id", partition_by="city", ordering="ts", table_type=kind, indexes=("record",)
    )


def rows(ts: int, *numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"k{n}", "city": "ab"[n % 2], "ts": ts, "fare": None if n % 3 else n / 7} for n in numbers]


def check_sound(table: lakebed.Table) -> None:
    for name in ("partition_stats", "column_stats", "record_index"):
        found = table.indexes.validate(name)
        assert found.is_sound, (name, found.examples)


def test_what_this_process_wrote_is_not_read_again(tmp_path: Path, reads: list[str]) -> None:
    made(tmp_path / "t").upsert(rows(1, 1, 2, 3))
    reads.clear()
    for ts in range(2, 5):
        lakebed.open_table(tmp_path / "t").upsert(rows(ts, ts, ts + 1))
    assert "partition_stats" not in reads
    check_sound(lakebed.open_table(tmp_path / "t"))


def test_what_another_process_wrote_since_is(tmp_path: Path, reads: list[str]) -> None:
    made(tmp_path / "t").upsert(rows(1, 1, 2, 3))
    mine = cache._TABLES.copy()
    cache._TABLES.clear()
    lakebed.open_table(tmp_path / "t").upsert(rows(9, 100, 101))
    cache._TABLES.clear()
    cache._TABLES.update(mine)
    reads.clear()
    table = lakebed.open_table(tmp_path / "t")
    table.upsert(rows(2, 1, 2))
    assert "partition_stats" in reads
    check_sound(table)


def test_what_was_rolled_back_is_forgotten(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(1, 1, 2, 3))
    gone = table.upsert(rows(9, 100, 101))
    table.rollback(gone.instant)
    table.upsert(rows(2, 1, 2))
    check_sound(table)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "upsert", "upsert", "delete", "overwrite", "drop", "column", "rollback"]),
        st.sets(st.integers(0, 15), min_size=1, max_size=5),
        st.booleans(),
    ),
    min_size=3,
    max_size=9,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(steps=STEPS, kind=st.sampled_from(["cow", "mor"]))
def test_histories(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, set[int], bool]], kind: str
) -> None:
    """Whatever is done, by a process that remembers or by one that does not: statistics are those of the rows."""
    path = tmp_path_factory.mktemp("history") / "t"
    table = made(path, kind)
    for ts, (verb, numbers, forgets) in enumerate(steps):
        if forgets:
            cache._TABLES.clear()
        table = lakebed.open_table(path, options={"hoodie.write.set.null.for.missing.columns": "true"})
        given_rows = rows(ts, *sorted(numbers))
        if verb == "upsert" or not len(table.timeline.commits()):
            table.upsert(given_rows)
        elif verb == "column":
            table.upsert([{**row, "more": ts} for row in given_rows])
        elif verb == "delete":
            table.delete([row["id"] for row in given_rows])
        elif verb == "overwrite":
            table.overwrite(given_rows)
        elif verb == "drop":
            with suppress(lakebed.InvalidInputError):  # There may be nothing to drop.
                table.delete_partitions("a")
        else:
            with suppress(lakebed.LakebedError):  # The metadata table may be compacted past it.
                table.rollback(table.timeline.commits()[-1].requested_at)
        if len(table.timeline.commits()):
            found = table.indexes.validate("partition_stats")
            assert found.is_sound, (verb, found.examples)


def test_files_and_columns_must_be_the_same() -> None:
    written = FileCache()
    stats = {"a": (ColumnStats("a", "ts", 1, 2, 2, 0),)}
    note_written(written, {"f1": "001"}, ["f2"], ("ts",), stats)
    assert find_written(written, {"f1": "001", "f2": "002"}, ("ts",)) == stats
    assert find_written(written, {"f1": "001"}, ("ts",)) == {}, "its own file does not count"
    assert find_written(written, {"f1": "001", "f2": "002", "f3": "003"}, ("ts",)) == {}, "there is a newer one"
    assert find_written(written, {"f1": "000", "f2": "002"}, ("ts",)) == {}, "another file of that name"
    assert find_written(written, {"f2": "002"}, ("ts",)) == {}, "it was compacted"
    assert find_written(written, {"f1": "001", "f2": "002"}, ("ts", "fare")) == {}
    note_written(written, {"f1": "001", "f2": "002"}, ["f3"], ("ts",), {"b": ()})
    assert find_written(written, {"f1": "001", "f2": "002", "f3": "003"}, ("ts",)) == {**stats, "b": ()}
