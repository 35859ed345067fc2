"""Indexes that a table loses without a drop: it remembers them, and never takes a key for new that it has."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.format.properties import encode_properties
from lakebed.services.indexing import steps
from lakebed.storage import Storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at

from .compaction_tables import before_commit
from .serviced_tables import Modelled, copy_of, crash_points, new_table
from .worlds import indexes_on

MOVED = [{"id": "k0", "city": "rome", "ts": 30, "fare": 0.5}, {"id": "k1", "city": "rome", "ts": 30, "fare": 0.5}]
EVERY = ("bloom_filters", "column_stats", "files", "partition_stats", "record_index")


@pytest.fixture
def table(tmp_path: Path) -> Modelled:
    made = new_table(tmp_path, indexes=["column_stats", "bloom", "record"])
    made.upsert(range(4), 0)
    return made


def opened(table: Modelled) -> lakebed.Table:
    return lakebed.open_table(table.path)


def check_refused(table: Modelled) -> None:
    with pytest.raises(InvalidInputError, match="lost its record index") as raised:
        opened(table).upsert(MOVED)
    assert "doctor(repair=True)" in raised.value.hint


def check_unique(table: Modelled) -> None:
    """A key that is in another partition moves."""
    opened(table).upsert(MOVED)
    keys = opened(table).to_arrow(columns=["id"])["id"].to_pylist()
    assert len(keys) == len(set(keys)), keys


def check_cured(table: Modelled, names: tuple[str, ...] = EVERY) -> None:
    cured = opened(table).doctor(repair=True, quick=True)
    assert all(each.is_repaired for each in cured), cured
    assert set(opened(table).config.metadata_partitions) >= set(names)
    check_unique(table)
    assert all(opened(table).indexes.validate(name).is_sound for name in names)


def without_metadata_table(table: Modelled, ready: str = "") -> None:
    """What Apache Hudi leaves after a write that was told to do without: definitions stay."""
    properties = {**opened(table).config.properties, "hoodie.table.metadata.partitions": ready}
    path = Path(table.path, ".hoodie/hoodie.properties")
    path.write_bytes(encode_properties(properties, comment="test", date="today"))
    if not ready:
        shutil.rmtree(Path(table.path, ".hoodie/metadata"))


def test_what_another_engine_did_away_with(table: Modelled) -> None:
    without_metadata_table(table)
    check_refused(table)
    assert {each.place for each in opened(table).doctor()} == {"column_stats", "record_index"}
    check_cured(table, ("column_stats", "files", "record_index"))


def test_a_record_index_that_another_engine_did_not_keep(table: Modelled) -> None:
    without_metadata_table(table, "column_stats,files,partition_stats,bloom_filters")
    check_refused(table)
    assert [each.place for each in opened(table).doctor()] == ["record_index"]
    check_cured(table)


def test_a_metadata_table_that_cannot_be_opened_is_built_anew(table: Modelled) -> None:
    """The list of files alone comes with it; the table says what it had besides."""
    shutil.rmtree(Path(table.path, ".hoodie/metadata/.hoodie"))
    opened(table).indexes.create("files", rebuild=True)
    assert opened(table).config.metadata_partitions == ("files",)
    assert {info.name for info in opened(table).indexes.list() if info.state == "unfinished"} == {*EVERY} - {"files"}
    check_refused(table)
    check_cured(table)


@pytest.mark.parametrize(
    "work",
    [
        lambda storage: indexes_on(storage).create("files", rebuild=True),
        lambda storage: indexes_on(storage).create("record_index", kind="record", shards=3, rebuild=True),
        lambda storage: indexes_on(storage).reshard("record_index", shards=3),
    ],
    ids=["files", "rebuild", "reshard"],
)
def test_wherever_a_rebuild_dies(table: Modelled, tmp_path: Path, work: Callable[[Storage], object]) -> None:
    numbers = crash_points(table, tmp_path / "dry", work)
    refused = 0
    for number in numbers:
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            work(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER})))
        if "record_index" in opened(copy).config.metadata_partitions:
            check_unique(copy)
        else:
            refused += 1
            check_refused(copy)
            if refused % 4 == 1:
                check_cured(copy)
        shutil.rmtree(copy.path)
    assert 0 < refused < len(numbers)


def test_an_index_that_never_came_to_be_is_not_lost(tmp_path: Path) -> None:
    """Keys were unique per partition, and are so: upserts go on after a crash in the first build."""
    table = new_table(tmp_path)
    table.upsert(range(4), 0)

    def work(storage: Storage) -> Any:
        return indexes_on(storage).create("record")

    for number in crash_points(table, tmp_path / "dry", work):
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            work(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER})))
        assert opened(copy).upsert(MOVED).operation == "UPSERT", number
        shutil.rmtree(copy.path)
    work(table.storage)
    assert "unfinished" not in Path(table.path, ".hoodie/.index_defs/index.json").read_text()
    without_metadata_table(table)
    check_refused(table)


def test_a_write_that_finds_its_index_lost_when_it_commits(table: Modelled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another write may have brought its new keys, and nothing tells."""

    def lose() -> None:
        with opened(table)._transactions.section() as section:
            steps.set_ready(section, [name for name in EVERY if name != "record_index"])

    writer = opened(table)
    before_commit(monkeypatch, lose)
    with pytest.raises(WriteConflictError, match="lost while this write ran"):
        writer.upsert([{"id": "k50", "city": "rome", "ts": 30, "fare": 0.5}])
    check_refused(table)
    check_cured(table)


def test_dropping_an_index_is_no_loss(table: Modelled) -> None:
    table.table.indexes.drop("record_index")
    assert opened(table).config.lost_partitions == ()
    assert opened(table).doctor() == ()
    opened(table).upsert(MOVED)
