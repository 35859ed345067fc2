from __future__ import annotations

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.keys import partition_stats_key
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.partition_stats.entries import partition_stats_entries, stats_of_files, widened_stats
from lakebed.model.metadata import ColumnStats, ValueType


def stats(file_name: str, column: str, low: int | None, high: int | None, rows: int = 2, nulls: int = 0) -> ColumnStats:
    kind = ValueType.NULL if low is None else ValueType.LONG
    return ColumnStats(file_name, column, low, high, rows, nulls, total_size=10, value_type=kind)


def test_union_of_files_is_tight() -> None:
    (found,) = stats_of_files(
        "eu", [stats("a", "v", 3, 5), stats("b", "v", -1, 4, nulls=1), stats("c", "v", None, None, 0)]
    )
    assert found == ColumnStats(
        "eu", "v", -1, 5, 6 - 2, 1, total_size=30, is_tight_bound=True, value_type=ValueType.LONG
    )


def test_rows_of_a_file_that_lacks_a_column_count_as_nulls() -> None:
    found = stats_of_files("eu", [stats("old", "id", 1, 2), stats("new", "id", 3, 4), stats("new", "v", 7, 8)])
    assert {each.column: (each.min_value, each.max_value, each.value_count, each.null_count) for each in found} == {
        "id": (1, 4, 4, 0),
        "v": (7, 8, 4, 2),
    }


def test_widening_is_the_union_with_what_was_known() -> None:
    files = [stats("a", "v", 3, 5), stats("b", "v", -1, 4), stats("b", "w", 1, 1)]
    assert widened_stats("eu", stats_of_files("eu", files[:1]), files[1:]) == stats_of_files("eu", files)
    assert widened_stats("eu", (), files) == stats_of_files("eu", files)


def test_there_are_no_statistics_of_no_files() -> None:
    assert stats_of_files("eu", []) == ()


def test_entries() -> None:
    found = stats_of_files("eu", [stats("a", "v", 3, 5), stats("a", "not indexed", 1, 1)])
    entries = partition_stats_entries({"eu": found}, ["us"], columns=["v", "w"], version="V2")
    assert entries.keys.to_pylist() == [partition_stats_key("v", "eu")]
    assert entries.deletes.to_pylist() == [partition_stats_key("v", "us"), partition_stats_key("w", "us")]
    assert decode_metadata_record(entries.values[0].as_py(), stored_schema(), path="").payload == found[0]
