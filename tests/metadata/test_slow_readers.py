"""Readers that look at the metadata table's files after it was compacted and cleaned since they saw its timeline."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import Table, create_table, open_table
from lakebed.errors import SnapshotExpiredError
from lakebed.metadata import MetadataTable
from lakebed.metadata.upkeep import maintenance
from lakebed.metadata.upkeep.clean import plan_clean
from lakebed.model.instant import is_reserved
from lakebed.read.lookup import lookup_keys
from lakebed.table import TableState
from lakebed.transaction.archive import archive

ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})


def _table(path: Path) -> Table:
    table = create_table(path, schema=ROWS.schema, key="id", table_type="mor", indexes=["record"])
    table.upsert(ROWS)
    return table


def _look(path: Path) -> TableState:
    """A look at the table, with the metadata table's timeline loaded and its folders not yet listed."""
    state = open_table(path)._handle.state()
    assert isinstance(state.metadata, MetadataTable)
    return state


def _write(path: Path, commits: int) -> None:
    for number in range(commits):
        open_table(path).upsert([{"id": f"new{number}", "v": number}])


def test_a_reader_whose_slices_are_retained_reads_them(tmp_path: Path) -> None:
    _table(tmp_path / "t")
    state = _look(tmp_path / "t")
    _write(tmp_path / "t", 13)
    assert sum(len(files) for files in state.files.values()) == 1


def test_a_reader_whose_slices_are_gone_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "plan_clean", lambda *given, retained: plan_clean(*given, retained=2))
    _table(tmp_path / "t")
    state = _look(tmp_path / "t")
    _write(tmp_path / "t", 25)
    with pytest.raises(SnapshotExpiredError, match="compacted and cleaned"):
        _ = state.files
    assert open_table(tmp_path / "t").to_arrow().num_rows == 27


@pytest.mark.parametrize("how", ["rebuild", "reshard", "drop and create"])
def test_a_reader_does_without_an_index_that_is_newer_than_its_snapshot(tmp_path: Path, how: str) -> None:
    """Keys have moved to a file group that it does not see: by the index their rows would be nowhere."""
    table = _table(tmp_path / "t")
    state = open_table(tmp_path / "t")._handle.state()  # Its metadata table is opened later.
    table.overwrite(ROWS, whole_table=True)
    if how == "reshard":
        table.indexes.reshard("record_index", shards=3)
    elif how == "rebuild":
        table.indexes.create("record_index", rebuild=True)
    else:
        table.indexes.drop("record_index")
        table.indexes.create("record_index")
    assert isinstance(state.metadata, MetadataTable)
    assert not state.metadata.has("record_index")
    assert isinstance(metadata := open_table(tmp_path / "t")._handle.state().metadata, MetadataTable)
    assert metadata.has("record_index")


def test_a_reader_does_without_an_index_that_was_built_again_and_archived_before_it_listed_the_files(
    tmp_path: Path,
) -> None:
    table = _table(tmp_path / "t")
    _write(tmp_path / "t", 2)
    _archive_builds(tmp_path / "t")
    state = _look(tmp_path / "t")
    table.indexes.drop("record_index")
    table.overwrite(ROWS, whole_table=True)
    table.indexes.create("record_index")
    _archive_builds(tmp_path / "t")
    assert isinstance(state.metadata, MetadataTable)
    for _ in range(2):
        assert lookup_keys(state, ["new0"]).num_rows == 1
        assert not state.metadata.has("record_index")
    _write(tmp_path / "t", 1)
    again = open_table(tmp_path / "t")._handle.state()
    assert isinstance(again.metadata, MetadataTable)
    assert again.metadata.slices("record_index")
    assert again.metadata.leave_out_changed() == frozenset()


@pytest.mark.parametrize("is_another", [False, True])
def test_a_reader_that_listed_an_index_does_without_it_if_any_was_dropped_or_renewed_since(
    tmp_path: Path, is_another: bool
) -> None:
    """A listing in pages may begin before the index is built again and end after that."""
    table = _table(tmp_path / "t")
    state = _look(tmp_path / "t")
    assert isinstance(state.metadata, MetadataTable)
    assert state.metadata.slices("record_index")
    if is_another:
        table.indexes.create("bloom_filters")
        assert state.metadata.leave_out_changed() == frozenset()
        return
    table.indexes.create("record_index", rebuild=True)
    assert state.metadata.leave_out_changed() == {"record_index"}
    assert lookup_keys(state, ["a"]).num_rows == 1


def _archive_builds(path: Path) -> None:
    """Moves what built indexes into the archive of the metadata table, as if much had been written since."""
    with open_table(path)._transactions.section() as section:
        built = [i for i in section.metadata_timeline.completed() if is_reserved(i.requested_at)]
        archive(section, built, ".hoodie/metadata/")
