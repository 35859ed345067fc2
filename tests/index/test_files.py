from __future__ import annotations

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.index.files.kind import file_entries, no_files
from lakebed.metadata.entries import Entries
from lakebed.model.metadata import FileEntry

GONE = FileEntry(0, is_deleted=True)


def payloads(entries: Entries) -> dict[str, object]:
    return {
        key: decode_metadata_record(value, stored_schema(), path="").payload
        for key, value in zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
    }


def test_a_commit_lists_its_partitions_and_files() -> None:
    entries = file_entries({"eu": {"a": 5}, "us": {"b": 6, "c": 7}})
    assert payloads(entries) == {
        "__all_partitions__": {"eu": FileEntry(0), "us": FileEntry(0)},
        "eu": {"a": FileEntry(5)},
        "us": {"b": FileEntry(6), "c": FileEntry(7)},
    }
    assert entries.deletes.to_pylist() == []


def test_a_table_without_partitions_has_one_named_by_a_dot() -> None:
    assert payloads(file_entries({"": {"a": 5}})) == {
        "__all_partitions__": {".": FileEntry(0)},
        ".": {"a": FileEntry(5)},
    }


def test_a_clean_marks_files_and_deletes_partitions() -> None:
    entries = file_entries({}, {"eu": ["a"], "de": ["b"]}, ["de"])
    assert payloads(entries) == {"__all_partitions__": {"de": GONE}, "eu": {"a": GONE}}
    assert entries.deletes.to_pylist() == ["de"]


def test_nothing_leaves_no_entry() -> None:
    assert len(file_entries({})) == 0
    assert payloads(no_files()) == {"__all_partitions__": {}}
