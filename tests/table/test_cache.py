from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.commit import CommitMetadata
from lakebed.storage import cache, open_storage
from lakebed.storage.cache import FileCache, table_cache
from lakebed.table.handle import open_handle
from lakebed.timeline import timeline as documents

ROWS = pa.table({"id": ["a", "b"], "n": [1, 2]})


def new_table(path: Path, rows: pa.Table = ROWS) -> lakebed.Table:
    table = lakebed.create_table(path, schema=rows.schema, key="id", table_type="mor", indexes=("record",))
    table.upsert(rows)
    return table


def test_what_commits_say_is_not_read_again_by_whoever_opens_the_table_again(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    first, second = open_handle(tmp_path / "t").state(), open_handle(tmp_path / "t")
    for instant in first.timeline.commits():
        first.documents.commit(instant)
    state = second.state()
    before = second.storage.counts.snapshot()
    found = [state.documents.commit(instant) for instant in state.timeline.commits()]
    assert found
    assert (second.storage.counts.snapshot() - before).gets == 0


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_what_a_commit_of_this_process_says_is_known_as_it_is_stored(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"id": ["a", "b"], "p": ["x", "y"], "n": [1, 2]})
    table = lakebed.create_table(tmp_path / "t", schema=rows.schema, key="id", partition_by="p", table_type=kind)
    table.bulk_insert(rows)
    table.upsert(rows)
    table.upsert(rows.append_column("more", pa.array([1.5, None])))
    table.delete(["a"])
    wider = rows.append_column("more", pa.nulls(2, pa.float64()))
    table.insert(wider)
    table.overwrite(wider.slice(1))
    table.delete_partitions("x")
    known = table_cache(str(tmp_path / "t"), {})
    stored = documents.Documents(open_storage(tmp_path / "t"), table.config)
    commits = table.timeline.commits()
    assert len(commits) == 7
    for instant in commits:
        assert known.get(("", instant), CommitMetadata) == stored.commit(instant)


def test_a_log_file_of_the_metadata_table_is_opened_once(tmp_path: Path) -> None:
    new_table(tmp_path / "t").upsert(ROWS)
    cache._TABLES.clear()
    gets = []
    for _ in range(2):
        handle = open_handle(tmp_path / "t")
        state = handle.state()
        before = handle.storage.counts.snapshot()
        assert state.latest_slices
        spent = handle.storage.counts.snapshot() - before
        gets.append(spent.gets + spent.ranged_gets)
    assert gets[1] < gets[0]


def test_a_table_that_is_made_again_at_its_old_place_is_another(tmp_path: Path) -> None:
    for number in range(3):
        rows = pa.table({"id": [f"{number}-{key}" for key in range(5)], "n": [number] * 5})
        table = new_table(tmp_path / "t", rows)
        table.delete([f"{number}-0"])
        again = lakebed.open_table(tmp_path / "t")
        assert again.to_arrow(columns=["id", "n"]).sort_by("id") == rows.slice(1)
        assert again.lookup([f"{number}-1"]).num_rows == 1
        assert again.lookup([f"{number - 1}-1"]).num_rows == 0
        shutil.rmtree(tmp_path / "t")


def test_other_options_of_a_store_and_tables_in_memory_share_nothing() -> None:
    known = table_cache("s3://bucket/t", {"key": "mine"})
    assert table_cache("s3://bucket/t", {"key": "mine"}) is known
    assert table_cache("s3://bucket/t", {"key": "yours"}) is not known
    assert table_cache("s3://bucket/other", {"key": "mine"}) is not known
    assert table_cache("memory://t", {}) is not table_cache("memory://t", {})


def test_only_the_tables_used_last_are_remembered() -> None:
    first = table_cache("s3://bucket/0", {})
    for number in range(1, 4):
        table_cache(f"s3://bucket/{number}", {})
    assert table_cache("s3://bucket/0", {}) is first
    for number in range(1, 5):
        table_cache(f"s3://bucket/{number}", {})
    assert table_cache("s3://bucket/0", {}) is not first


def test_commits_that_have_no_room_are_read_again(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    for number in range(4):
        table.upsert(pa.table({"id": ["a"], "n": [number]}))
    known = FileCache(2 * 2 * documents._STAT_BYTES)
    read = documents.Documents(open_storage(tmp_path / "t"), table.config, cache=known)
    commits = table.timeline.commits()
    for instant in (*commits, *reversed(commits)):
        assert read.commit(instant).operation == "UPSERT"
    assert [known.get(("", i), CommitMetadata) is not None for i in commits] == [True, True, False, False, False]
