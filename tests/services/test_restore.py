"""Setting a table back: all of it or none, whoever dies when, and indexes that tell the truth afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakebed
import lakebed.metadata.maintenance as maintenance
from lakebed.errors import InvalidInputError, LakebedError, TableRestoredError, WriteConflictError
from lakebed.format.timeline.metadata import decode_document, encode_compaction_plan
from lakebed.metadata.compaction import plan_compaction
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.archive import archive_timeline
from lakebed.services.clean import execute_clean, schedule_clean
from lakebed.services.clean_plan import Retention
from lakebed.services.restore import restore
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at
from lakebed.transaction.section import METADATA

from .serviced_tables import (
    Modelled,
    age_heartbeats,
    context_of,
    context_on,
    copy_of,
    crash_points,
    data_files,
    new_table,
    rows_of,
)

INDEXES = ["column_stats", "bloom", "record"]


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Modelled:
    return new_table(tmp_path, request.param, indexes=INDEXES)


def as_of(table: Modelled, instant: InstantTime) -> None:
    """Sets the model back."""
    table.rows = {(each["city"], each["id"]): each for each in table.past[instant]}


def check_keys(table: Modelled) -> None:
    """The record index knows the keys of the table, and no others."""
    keys = [f"k{number}" for number in range(12)]
    found = table.table.lookup(keys, columns=["id", "ts"]).to_pylist()
    expected = [{"id": each["id"], "ts": each["ts"]} for each in table.expected()]
    assert sorted(found, key=lambda each: each["id"]) == sorted(expected, key=lambda each: each["id"])


def changed(table: Modelled) -> InstantTime:
    """Some history; the instant to go back to."""
    table.upsert(range(6), 0)
    target = table.upsert([0, 1], 1)
    savepoint(context_of(table.table), target)
    table.upsert([0, 6, 7], 2)
    table.delete([1, 2])  # One more write, and the metadata table is compacted.
    return target


def test_rows_and_indexes_are_as_they_were(table: Modelled) -> None:
    target = changed(table)
    done = restore(context_of(table.table), target)
    as_of(table, target)
    assert done.counts["instants"] == 2
    assert done.service == "restore"
    table.check_now()
    check_keys(table)
    assert [i.requested_at for i in table.table.timeline.commits()][-1] == target
    assert not table.table.timeline.pending()
    assert not table.storage.list(".hoodie/.heartbeat")
    assert table.table.config.metadata_partitions, "nothing was compacted: it is carried along"
    table.upsert([0, 1, 6, 10], 5)
    table.check_now()
    check_keys(table)


def test_a_compacted_metadata_table_is_given_up_first(table: Modelled) -> None:
    target = changed(table)
    table.overwrite([3], 3)
    table.upsert([9, 4], 4)
    restore(context_of(table.table), target)
    as_of(table, target)
    opened = lakebed.open_table(table.path)
    assert not opened.config.metadata_partitions
    assert not [path for path in Path(table.path, ".hoodie/metadata").rglob("*") if path.is_file()]
    assert rows_of(opened) == table.expected()
    table.table = opened
    table.upsert([0, 1, 6, 10], 20)
    assert rows_of(table.table) == table.expected()
    table.table.indexes.create("record")
    table.check_now()
    check_keys(table)


def test_a_compaction_of_the_metadata_table_that_is_only_planned_counts(tmp_path: Path) -> None:
    """It is to take in what an undone write told the metadata table: it could never be executed afterwards."""
    table = new_table(tmp_path, indexes=INDEXES)
    target = changed(table)
    context = context_of(table.table)
    with context.transactions.section() as section:
        requested = Instant(section.next_time(), Action.COMPACTION, State.REQUESTED)
        slices, done = maintenance._slices(section), maintenance._snapshot(section).completion_of
        plan = plan_compaction(slices, requested.requested_at, done)
        section.request(requested, encode_compaction_plan(plan), root=METADATA)
    restore(context, target)
    as_of(table, target)
    table.table = lakebed.open_table(table.path)
    assert rows_of(table.table) == table.expected()
    table.table.indexes.create("record")
    table.upsert([0, 1, 6, 10], 5)
    table.table.services.run()
    table.check_now()
    check_keys(table)


def test_an_index_that_was_built_since_is_not_trusted(tmp_path: Path) -> None:
    """It was made of rows that are undone, in files that no undone write wrote."""
    table = new_table(tmp_path)
    table.upsert(range(3), 0)
    target = table.upsert([0, 3], 1)
    savepoint(context_of(table.table), target)
    table.upsert([4, 5], 2)
    table.table.indexes.create("record")
    restore(context_of(table.table), target)
    as_of(table, target)
    table.table = lakebed.open_table(table.path)
    assert "record_index" not in table.table.config.metadata_partitions
    table.upsert([4, 7], 3)
    assert rows_of(table.table) == table.expected()
    table.table.indexes.create("record")
    table.check_now()
    check_keys(table)


def test_cleans_since_stay_done(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=INDEXES)
    target = changed(table)
    context = context_of(table.table)
    planned = schedule_clean(context, Retention(commits=1))
    assert planned is not None
    execute_clean(context, planned)
    restore(context, target)
    as_of(table, target)
    table.check_now()
    check_keys(table)
    assert [i.action for i in table.table.timeline.completed()][-1] is Action.RESTORE


def test_the_files_say_what_apache_hudi_writes(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    target = table.upsert([0], 0)
    savepoint(context_of(table.table), target)
    undone = [table.upsert([0], 1), table.upsert([1], 2)]
    done = restore(context_of(table.table), target)
    folder = Path(table.path, ".hoodie/timeline")
    plan = decode_document((folder / f"{done.instant}.restore.requested").read_bytes(), "HoodieRestorePlan", path="p")
    newest_first = [{"commitTime": time, "action": "commit"} for time in reversed(undone)]
    assert plan == {"instantsToRollback": newest_first, "version": 2, "savepointToRestoreTimestamp": target}
    assert (folder / f"{done.instant}.restore.inflight").read_bytes() == b""
    completed = (folder / f"{done.instant}_{done.completed_at}.restore").read_bytes()
    metadata = decode_document(completed, "HoodieRestoreMetadata", path="p")
    assert metadata["instantsToRollback"] == [*reversed(undone)]
    assert metadata["restoreInstantInfo"] == newest_first
    (first,) = metadata["hoodieRestoreMetadata"][undone[0]]
    assert first["commitsRollback"] == [undone[0]]
    (name,) = first["partitionMetadata"]["oslo"]["successDeleteFiles"]
    assert undone[0] in name
    assert name.startswith(str(table.path))


def test_what_cannot_be_restored_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert(range(3), ts) for ts in range(5)]
    context = context_of(table.table)
    with pytest.raises(InvalidInputError, match="no write"):
        restore(context, InstantTime("20200101000000000"))
    with pytest.raises(InvalidInputError, match="no savepoint"):
        restore(context, instants[1])
    attempt = context.transactions.begin(Action.COMMIT)
    with pytest.raises(InvalidInputError, match="not completed"):
        restore(context, attempt.instant)
    with pytest.raises(WriteConflictError, match="being written"):
        restore(context, instants[1], needs_savepoint=False)
    context.transactions.abandon(attempt)
    savepoint(context, instants[3])
    with pytest.raises(InvalidInputError, match="has a savepoint"):
        restore(context, instants[1], needs_savepoint=False)
    delete_savepoint(context, instants[3])
    planned = schedule_clean(context, Retention(commits=1))
    assert planned is not None
    with pytest.raises(WriteConflictError, match="clean"):
        restore(context, instants[4], needs_savepoint=False)
    execute_clean(context, planned)
    with pytest.raises(InvalidInputError, match="cleaned"):
        restore(context, instants[1], needs_savepoint=False)
    table.check_now()
    restore(context, instants[3], needs_savepoint=False)
    as_of(table, instants[3])
    table.check_now()


def test_a_write_that_began_before_does_not_complete_afterwards(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    target = table.upsert([0], 0)
    savepoint(context_of(table.table), target)
    table.upsert([0], 1)
    paused = context_on(table.storage)
    attempt = paused.transactions.begin(Action.COMMIT)
    age_heartbeats(table)
    restore(context_of(table.table), target)
    from lakebed.model.commit import CommitMetadata

    with pytest.raises(WriteConflictError):
        paused.transactions.declare(attempt, CommitMetadata())
    as_of(table, target)
    table.check_now()


def test_while_it_is_under_way_everyone_else_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert([0], ts) for ts in range(4)]
    savepoint(context_of(table.table), instants[1])
    crash = on_undo(table.storage)
    with pytest.raises(Crash):
        restore(context_on(crash), instants[1])
    other = context_of(table.table)
    refused = [
        lambda: table.table.upsert([{"id": "k0", "city": "oslo", "ts": 9, "fare": 9.0}]),
        lambda: schedule_clean(other, Retention(commits=1)),
        lambda: archive_timeline(other),
        lambda: savepoint(other, instants[0]),
        lambda: delete_savepoint(other, instants[1]),
        lambda: other.transactions.rollbacks.run(),
        lambda: restore(other, instants[0], needs_savepoint=False),
    ]
    for call in refused:
        with pytest.raises(TableRestoredError):
            call()
    assert rows_of(table.table) in table.past.values()
    age_heartbeats(table)
    restore(other, instants[1])
    as_of(table, instants[1])
    table.check_now()


def on_undo(storage: Storage) -> FaultyStorage:
    from lakebed.storage.faults import on

    return FaultyStorage(storage, on("delete", Fault.CRASH_AFTER, path=".parquet"))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_another_process_goes_on_wherever_one_dies(tmp_path: Path, is_compacted: bool) -> None:
    """And a reader sees, at every moment, the table as of some commit."""
    table = new_table(tmp_path)
    table.upsert([0, 1], 0)
    target = table.upsert([0], 1)
    savepoint(context_of(table.table), target)
    table.upsert([0, 2], 2)
    table.overwrite([1], 3)
    if is_compacted:
        for ts in range(4, 10):
            table.upsert([0], ts)
    numbers = crash_points(table, tmp_path / "dry", lambda storage: restore(context_on(storage), target))
    for number in numbers[:: 3 if is_compacted else 1]:
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            restore(context_on(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER}))), target)
        for options in ({}, {"hoodie.metadata.enable": "false"}):
            reader = lakebed.open_table(copy.path, options=options)
            assert rows_of(reader) in copy.past.values(), number
        age_heartbeats(copy)
        restore(context_on(open_storage(copy.path)), target)
        as_of(copy, target)
        copy.table = lakebed.open_table(copy.path)
        assert rows_of(copy.table) == copy.expected()
        copy.check_now()
        assert not copy.table.timeline.pending()
        assert len(data_files(copy.storage)) == 3
        copy.upsert([0, 5], 11)
        copy.check_now()
        shutil.rmtree(copy.path)


def rows_unless_cleaned(table: Modelled) -> object:
    try:
        return rows_of(lakebed.open_table(table.path))
    except LakebedError as error:
        return None if "cleaned" in str(error) else error


def test_a_reader_of_a_half_restored_table_never_mixes_versions(tmp_path: Path) -> None:
    """States between now and the target may have been cleaned: then the read is refused."""
    table = new_table(tmp_path)
    target = table.upsert(range(3), 0)
    savepoint(context_of(table.table), target)
    for ts in range(1, 6):
        table.upsert([0, ts % 3], ts)
    context = context_of(table.table)
    planned = schedule_clean(context, Retention(commits=1))
    assert planned is not None
    execute_clean(context, planned)
    numbers = crash_points(table, tmp_path / "dry", lambda storage: restore(context_on(storage), target))
    refused = 0
    for number in numbers:
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            restore(context_on(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER}))), target)
        rows = rows_unless_cleaned(copy)
        assert rows is None or rows in copy.past.values(), number
        refused += rows is None
        shutil.rmtree(copy.path)
    assert 0 < refused < len(numbers) // 2
