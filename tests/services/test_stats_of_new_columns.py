"""Statistics of columns that an index knows of later than files have them: no reader may leave a row out by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.metadata.keys import partition_stats_key
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.column_stats.ranges import COLUMN_STATS, PARTITION_STATS
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.metadata import MetadataTable
from lakebed.model.metadata import ColumnStats
from lakebed.storage.faults import Crash, Fault, FaultyStorage, on

from .compaction_tables import before_commit
from .worlds import indexes_on

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
NEW_FILES = {"hoodie.parquet.small.file.limit": "0"}


def row(key: str, city: str, ts: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "city": city, "ts": ts, **more}


def opened(path: Path) -> lakebed.Table:
    return lakebed.open_table(path, options=NEW_FILES)


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    """Files with and without a column that the statistics do not know yet."""
    made = lakebed.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type=request.param,
        options=NEW_FILES,
    )
    made.upsert([row("a", "oslo"), row("b", "lima")])
    made.upsert([row("c", "oslo", extra=1000)])
    return made


def stats_of(table: lakebed.Table, column: str, partition: str) -> tuple[Any, ...] | None:
    """Bounds, nulls and whether they are marked as tight, as the newest entry of a partition has them."""
    metadata = opened(Path(table._handle.storage.url.removeprefix("file://")))._handle.state().metadata
    assert isinstance(metadata, MetadataTable)
    (shard,) = metadata.shards(PARTITION_STATS)
    found = shard.find_many([partition_stats_key(column, partition)])
    if not found:
        return None
    (layers,) = found.values()
    stats = decode_metadata_record(layers[-1].value, layers[-1].schema, path="").payload
    assert isinstance(stats, ColumnStats)
    return stats.min_value, stats.max_value, stats.null_count, stats.value_count, stats.is_tight_bound


def check_sound(table: lakebed.Table) -> None:
    for name in (COLUMN_STATS, PARTITION_STATS):
        found = table.indexes.validate(name)
        assert found.is_sound, (name, found.examples)


def test_statistics_of_partitions_are_built_anew_with_those_of_columns(table: lakebed.Table, tmp_path: Path) -> None:
    table.indexes.create("column_stats", rebuild=True)
    assert stats_of(table, "extra", "oslo") == (1000, 1000, 1, 2, True)
    assert stats_of(table, "extra", "lima") == (None, None, 1, 1, True), "a partition without an entry is left out"
    table = opened(tmp_path / "t")
    table.upsert([row("d", "oslo", extra=5)])
    assert stats_of(table, "extra", "oslo") == (5, 1000, 1, 3, True)
    check_sound(table)


def test_a_column_that_statistics_no_longer_have_is_in_none_of_them(table: lakebed.Table, tmp_path: Path) -> None:
    """Nobody would widen its entries any more."""
    table.indexes.create("column_stats", on=["id"], rebuild=True)
    opened(tmp_path / "t").upsert([row("d", "oslo", ts=99, extra=None)])
    assert stats_of(table, "ts", "oslo") is None
    check_sound(table)


@pytest.mark.parametrize("remembers", [True, False])
def test_a_write_takes_what_a_partition_lacks_from_its_files(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """Tables that were left so: statistics of files know the column, those of partitions do not."""
    from lakebed.services.indexing import create, schedule
    from lakebed.storage import cache

    with monkeypatch.context() as patched:
        patched.setattr(schedule, "resting_on", lambda partition: ())
        patched.setattr(create, "resting_on", lambda partition: ())
        table.indexes.create("column_stats", rebuild=True)
    assert stats_of(table, "extra", "oslo") is None
    if not remembers:
        cache._TABLES.clear()
    opened(tmp_path / "t").upsert([row("d", "oslo", extra=5)])
    assert stats_of(table, "extra", "oslo") == (5, 1000, 1, 3, True)


def test_a_wrong_entry_is_found_and_repaired(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.index.partition_stats import kind as entries
    from lakebed.services.indexing import create, schedule

    with monkeypatch.context() as patched:
        patched.setattr(schedule, "resting_on", lambda partition: ())
        patched.setattr(create, "resting_on", lambda partition: ())
        patched.setattr(entries, "_has_columns", lambda *_: True)
        table.indexes.create("column_stats", rebuild=True)
        opened(tmp_path / "t").upsert([row("d", "oslo", extra=5)])
    assert stats_of(table, "extra", "oslo") == (5, 5, 2, 3, True)
    assert table.indexes.validate("partition_stats").different == 1
    (found, *_) = [each for each in table.doctor() if each.place == "partition_stats"]
    assert "different" in found.problem
    assert all(each.is_repaired for each in table.doctor(repair=True))
    assert stats_of(table, "extra", "oslo") == (5, 1000, 1, 3, True)
    assert table.doctor() == ()


def test_a_write_that_began_before_commits_its_files_with_the_column(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, other = opened(tmp_path / "t"), lakebed.open_table(tmp_path / "t")
    before_commit(monkeypatch, lambda: other.indexes.create("column_stats", rebuild=True))
    writer.upsert([row("d", "oslo", extra=5)])
    assert stats_of(table, "extra", "oslo") == (5, 1000, 1, 3, True)
    check_sound(opened(tmp_path / "t"))


def test_a_crash_between_both_leaves_neither_wrong(table: lakebed.Table, tmp_path: Path) -> None:
    """Statistics of partitions are then not there, which is noted, and a repair builds them."""
    storage = table._handle.storage
    crash = FaultyStorage(storage, on("create", Fault.CRASH_AFTER, path="metadata/partition_stats/"))
    with pytest.raises(Crash):
        indexes_on(crash).create("column_stats", rebuild=True)
    after = opened(tmp_path / "t")
    assert PARTITION_STATS not in after.config.metadata_partitions
    after.upsert([row("d", "oslo", extra=5)])
    assert all(each.is_repaired for each in after.doctor(repair=True))
    assert stats_of(after, "extra", "oslo") == (5, 1000, 1, 3, True)
    check_sound(opened(tmp_path / "t"))


def test_partial_updates_leave_the_range_of_what_they_do_not_touch(tmp_path: Path) -> None:
    made = lakebed.create_table(
        tmp_path / "t", schema=SCHEMA, key="id", partition_by="city", ordering="ts", table_type="mor"
    )
    made.upsert([row("a", "oslo", extra=7), row("b", "oslo", extra=9)])
    made.upsert(pa.table({"id": ["a"], "city": ["oslo"], "ts": [5]}), partial=True)
    made.indexes.create("column_stats", rebuild=True)
    assert stats_of(made, "extra", "oslo")[:2] == (7, 9)  # type: ignore[index]
    check_sound(made)


def test_a_file_without_statistics_is_read_for_those_of_its_partition(
    table: lakebed.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache Hudi leaves a partition out that has no entry where others have one."""
    of_files = CurrentStats.of_files

    def of_others(self: CurrentStats, partition: str, names: Any, columns: Any) -> Any:
        found = of_files(self, partition, names, columns)
        return [each for each in found if each.file_name != found[0].file_name]

    with monkeypatch.context() as patched:
        patched.setattr(CurrentStats, "of_files", of_others)
        table.indexes.create("partition_stats", rebuild=True)
    assert stats_of(table, "ts", "oslo") == (1, 1, 0, 2, True)
    assert stats_of(table, "ts", "lima") == (1, 1, 0, 1, True)
    check_sound(table)
