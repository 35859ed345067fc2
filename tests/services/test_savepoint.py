"""Savepoints: what they name stays, and nobody takes it away behind their back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.format.timeline.metadata import decode_savepoint
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.clean.plan import Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at

from .serviced_tables import Modelled, context_of, context_on, copy_of, crash_points, data_files, new_table

ONE = Retention(commits=1)


@pytest.fixture
def cow(tmp_path: Path) -> Modelled:
    return new_table(tmp_path)


def savepoints(table: Modelled) -> list[InstantTime]:
    return [i.requested_at for i in table.table.timeline.completed() if i.action is Action.SAVEPOINT]


def clean(table: Modelled) -> None:
    instant = schedule_clean(context_of(table.table), ONE)
    if instant is not None:
        execute_clean(context_of(table.table), instant)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_file_names_every_file_of_the_snapshot(tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path, table_type)
    table.upsert(range(4), 0)
    instant = table.upsert([0, 1], 1)
    expected = {path for path in data_files(table.storage) if instant in path or table_type == "mor" or "rome" in path}
    table.upsert([0], 2)
    assert savepoint(context_of(table.table), instant, saved_by="me", comments="why") == instant
    (done,) = [i for i in table.table.timeline.completed() if i.action is Action.SAVEPOINT]
    path = f".hoodie/timeline/{instant}_{done.completed_at}.savepoint"
    metadata = decode_savepoint(table.storage.get(path), path=path)
    named = {f"{partition}/{name}" for partition, names in metadata.files.items() for name in names}
    assert named == expected
    assert (metadata.saved_by, metadata.comments) == ("me", "why")
    assert metadata.saved_at_ms > 0
    assert table.storage.get(f".hoodie/timeline/{instant}.savepoint.inflight") == b""


def test_the_newest_write_is_the_one_to_save(cow: Modelled) -> None:
    with pytest.raises(InvalidInputError, match="write to the table first"):
        savepoint(context_of(cow.table))
    cow.upsert([0], 0)
    newest = cow.upsert([0], 1)
    assert savepoint(context_of(cow.table)) == newest
    assert savepoint(context_of(cow.table)) == newest, "twice is once"
    assert savepoints(cow) == [newest]


def test_cleaning_leaves_it_readable_until_it_is_removed(cow: Modelled) -> None:
    instants = [cow.upsert(range(3), ts) for ts in range(3)]
    savepoint(context_of(cow.table), instants[0])
    instants += [cow.upsert(range(3), ts) for ts in range(3, 6)]
    clean(cow)
    assert cow.readable() == {instants[0], *instants[4:]}
    for ts in range(6, 9):
        instants.append(cow.upsert([0], ts))
        clean(cow)
    assert instants[0] in cow.readable()
    delete_savepoint(context_of(cow.table), instants[0])
    instants += [cow.upsert([0], ts) for ts in range(9, 11)]
    clean(cow)
    assert instants[0] not in cow.readable()
    # Also in partitions that nobody wrote to since: of lima and rome one version is left.
    left = [path.partition("/")[0] for path in data_files(cow.storage)]
    assert sorted(left) == ["lima", "oslo", "oslo", "rome"]
    cow.check_now()


def test_replaced_groups_stay_with_it(cow: Modelled) -> None:
    first = cow.upsert(range(3), 0)
    savepoint(context_of(cow.table), first)
    cow.overwrite(range(3), 1)
    for ts in range(2, 5):
        cow.upsert(range(3), ts)
    clean(cow)
    assert first in cow.readable()
    cow.check_now()


def test_archiving_what_was_before_it_leaves_it_readable(tmp_path: Path) -> None:
    options = {
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
    }
    rows = pa.table({"id": ["a"], "v": [1]})
    table = lakebed.create_table(tmp_path / "t", schema=rows.schema, key="id", options=options)
    table.insert(rows)
    replaced = table.overwrite(pa.table({"id": ["b"], "v": [1]})).instant
    table.upsert(pa.table({"id": ["c"], "v": [1]}))
    saved = table.savepoint()
    for _ in range(12):
        table.upsert(rows)
    assert table.services.clean() is not None
    assert table.services.archive() > 0
    assert replaced not in {instant.requested_at for instant in table.timeline}, "nothing tells what it replaced"
    assert sorted(table.to_arrow(as_of=saved)["id"].to_pylist()) == ["b", "c"]
    table.restore(saved)
    assert sorted(table.to_arrow()["id"].to_pylist()) == ["b", "c"]


def test_what_cannot_be_saved_is_refused(cow: Modelled) -> None:
    instants = [cow.upsert(range(3), ts) for ts in range(4)]
    context = context_of(cow.table)
    with pytest.raises(InvalidInputError, match="no write"):
        savepoint(context, InstantTime("20200101000000000"))
    attempt = context.transactions.begin(Action.COMMIT)
    with pytest.raises(InvalidInputError, match="not completed"):
        savepoint(context, attempt.instant)
    context.transactions.abandon(attempt)
    planned = schedule_clean(context, ONE)
    assert planned is not None
    with pytest.raises(InvalidInputError, match=planned):
        savepoint(context, instants[0])
    savepoint(context, instants[3])
    execute_clean(context, planned)
    with pytest.raises(InvalidInputError, match="cleaned"):
        savepoint(context, instants[0])
    assert savepoints(cow) == [instants[3]]
    with pytest.raises(InvalidInputError, match="has a savepoint"):
        cow.table.rollback(instants[3])
    with pytest.raises(InvalidInputError, match=instants[3]):
        delete_savepoint(context, instants[2])


def test_a_clean_that_was_planned_before_leaves_out_what_another_engine_saved(cow: Modelled) -> None:
    """Apache Hudi puts savepoints without looking at pending cleans."""
    instants = [cow.upsert(range(3), ts) for ts in range(4)]
    other = copy_of(cow, cow.path.parent / "other")
    savepoint(context_of(other.table), instants[1])
    planned = schedule_clean(context_of(cow.table), ONE)
    assert planned is not None
    for path in Path(other.path, ".hoodie/timeline").glob("*savepoint*"):
        shutil.copy(path, Path(cow.path, ".hoodie/timeline", path.name))
    execute_clean(context_of(cow.table), planned)
    assert cow.readable() >= {instants[1], instants[3]}
    cow.check_now()
    delete_savepoint(context_of(cow.table), instants[1])
    cow.upsert([0], 9)
    clean(cow)
    assert instants[1] not in cow.readable(), "it is cleaned once the savepoint is gone, in every partition"
    assert len(data_files(cow.storage)) == 4


@pytest.mark.parametrize("verb", ["make", "remove"])
def test_a_crash_leaves_it_there_or_not(tmp_path: Path, verb: str) -> None:
    table = new_table(tmp_path)
    instant = table.upsert([0], 0)
    table.upsert([0], 1)
    if verb == "remove":
        savepoint(context_of(table.table), instant)

    def work(storage: Storage) -> object:
        context = context_on(storage)
        return savepoint(context, instant) if verb == "make" else (delete_savepoint(context, instant), True)

    for number in crash_points(table, tmp_path / "dry", work):
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            work(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER})))
        copy.check_now()
        copy.table.services.rollback_failed_writes()
        assert copy.storage.find_tickets(instant) == () or savepoints(copy)
        if verb == "make" or savepoints(copy):
            work(open_storage(copy.path))
        assert savepoints(copy) == ([instant] if verb == "make" else [])
        assert not copy.table.timeline.pending()
        shutil.rmtree(copy.path)
