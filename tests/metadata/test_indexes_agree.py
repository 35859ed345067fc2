"""Every index of every real table says what a scan of its rows says: no entry missing, none extra."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from conftest import REAL_TABLES, catalogue
from lakebed.format.metadata.secondary_keys import secondary_value_texts
from lakebed.index.column_stats.ranges import find_column_ranges, read_column_stats
from lakebed.index.record.probe import find_locations, read_record_index
from lakebed.index.secondary.kind import find_record_keys, read_secondary_index
from lakebed.metadata import MetadataTable
from lakebed.read.file_slice import read_slice
from lakebed.read.scan import plan_scan, read_arrow
from lakebed.table import TableState, open_handle
from lakebed.view import list_data_files

_PARTITIONS = {entry["zip"].removesuffix(".zip"): entry["metadata_partitions"] for entry in catalogue()}


def with_partition(prefix: str) -> list[str]:
    return [name for name in REAL_TABLES if any(p.startswith(prefix) for p in _PARTITIONS[name])]


def opened(table) -> tuple[TableState, MetadataTable]:
    state = open_handle(table.path).state()
    assert isinstance(state.metadata, MetadataTable)
    return state, state.metadata


def scan(state: TableState) -> pa.Table:
    return read_arrow(plan_scan(state))


@pytest.mark.parametrize("name", with_partition("record_index"))
def test_record_index(unpack, name: str) -> None:
    state, metadata = opened(unpack(name))
    rows = scan(state)
    file_ids = [text.partition("_")[0] for text in rows["_hoodie_file_name"].to_pylist()]
    keys, partitions = rows["_hoodie_record_key"].to_pylist(), rows["_hoodie_partition_path"].to_pylist()
    expected = sorted(zip(keys, partitions, file_ids, strict=True))
    entries = read_record_index(metadata)
    columns = (entries[column].to_pylist() for column in ("key", "partition", "file_id"))
    assert sorted(zip(*columns, strict=True)) == expected

    found = find_locations(metadata, [*keys, "no such key"])
    assert sorted((k, p.partition, p.file_id) for k, places in found.items() for p in places) == expected


@pytest.mark.parametrize("name", with_partition("secondary_index"))
def test_secondary_indexes(unpack, name: str) -> None:
    state, metadata = opened(unpack(name))
    rows = scan(state)
    indexes = [index for index in metadata.ready if index.startswith("secondary_index")]
    assert indexes
    for index in indexes:
        column = metadata.definitions[index].source_fields[0]
        values = secondary_value_texts(rows[column].combine_chunks()).to_pylist()
        pairs = zip(rows["_hoodie_record_key"].to_pylist(), values, strict=True)
        # Hudi 1.0, whose indexes have version 1, left rows with a null out.
        indexed = [(k, v) for k, v in pairs if v is not None or metadata.definitions[index].version != "V1"]
        expected = sorted((key, repr(value)) for key, value in indexed)
        entries = read_secondary_index(metadata, index)
        stored = zip(entries["record_key"].to_pylist(), map(repr, entries["value"].to_pylist()), strict=True)
        assert sorted(stored) == expected
        for value in {value for _, value in indexed}:
            matching = sorted(key for key, text in expected if text == repr(value))
            assert sorted(find_record_keys(metadata, index, [value])) == matching
        assert find_record_keys(metadata, index, ["no such value"]) == ()


@pytest.mark.parametrize("name", with_partition("files"))
def test_files(unpack, name: str) -> None:
    """The listing of the metadata table is what lies in the folders, but for files that no commit owns."""
    state, _ = opened(unpack(name))
    snapshot = state.latest
    listed = {
        (partition, file.name): file.size
        for partition, files in list_data_files(state.storage).items()
        for file in files
        if state.config.timeline_layout == 1 or snapshot.completion_of(file.instant) is not None
    }
    known = {
        (partition, file.name): file.size
        for partition, files in state.files.items()
        for file in files
        if state.config.timeline_layout == 1 or snapshot.completion_of(file.instant) is not None
    }
    assert known == listed


@pytest.mark.parametrize("name", with_partition("column_stats"))
def test_column_stats_bound_the_rows_of_their_files(unpack, name: str) -> None:
    state, metadata = opened(unpack(name))
    schema = state.schema(state.latest)
    ranged = [field for field in schema if not pa.types.is_nested(field.type)]
    checked, plan = 0, plan_scan(state)
    for file_slice in state.latest_slices:
        if file_slice.logs or file_slice.base is None:
            continue
        rows = read_slice(next(task for task in plan.tasks if task.file_slice == file_slice))
        for field in ranged:
            ranges = find_column_ranges(metadata, "column_stats", field.name, field.type)
            mine = ranges.filter(pc.equal(ranges["file_name"], file_slice.base.name))
            if mine.num_rows == 0 or mine["min"][0].as_py() is None:
                continue
            bounds = pc.min_max(rows[field.name]).as_py() if rows.num_rows else {"min": None, "max": None}
            assert mine["min"][0].as_py() == bounds["min"], field.name
            assert mine["max"][0].as_py() == bounds["max"], field.name
            assert mine["null_count"][0].as_py() == rows[field.name].null_count
            checked += 1
    assert checked or all(s.logs for s in state.latest_slices)


def test_expression_index_bounds_the_expression_in_each_file(unpack) -> None:
    _, metadata = opened(unpack("hudi111_cow_nonpart_expression_index"))
    entries = read_column_stats(metadata, "expr_index_idx_ts").to_pylist()
    days = [(entry["min"]["string"], entry["max"]["string"]) for entry in entries if not entry["is_deleted"]]
    # from_unixtime(ts, 'yyyy-MM-dd'): the insert is of one day, two rows were updated two days later.
    assert ("2023-11-14", "2023-11-14") in days
    assert ("2023-11-14", "2023-11-16") in days
