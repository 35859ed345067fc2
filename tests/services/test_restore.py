"""Setting a table back: all of it or none, whoever dies when, and indexes that tell the truth afterwards."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import lakebed
import lakebed.metadata.upkeep.maintenance as maintenance
from lakebed.errors import InvalidInputError, LakebedError, TableRestoredError, WriteConflictError
from lakebed.format.timeline.metadata import decode_document, encode_compaction_plan
from lakebed.metadata.upkeep.compaction import plan_compaction
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.archive import archive_timeline
from lakebed.services.clean.plan import Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.plane import ServicePlane
from lakebed.services.restore import restore
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.services.values import ServiceContext
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Call, Crash, Fault, FaultyStorage, at
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


def test_a_compacted_metadata_table_is_given_up_first_and_built_anew_last(table: Modelled) -> None:
    target = changed(table)
    table.overwrite([3], 3)
    table.upsert([9, 4], 4)
    before = table.table.config.metadata_partitions
    without_rebuilding(context_of(table.table), target)
    opened = lakebed.open_table(table.path)
    assert not opened.config.metadata_partitions
    assert not [path for path in Path(table.path, ".hoodie/metadata").rglob("*") if path.is_file()]
    as_of(table, target)
    assert rows_of(opened) == table.expected()
    table.table = opened
    done = table.table.restore(target)
    assert done.missing == ()
    check_indexes(table, before)
    table.upsert([0, 1, 6, 10], 20)
    table.check_now()
    check_keys(table)


def without_rebuilding(context: ServiceContext, target: InstantTime) -> None:
    """A restore whose process dies when nothing is left to do but to build indexes anew."""
    with pytest.raises(Crash):
        restore(replace(context, plane=ServicePlane(rebuild_lost=die)), target)
    context.handle.forget()


def die(*_: object) -> tuple[str, ...]:
    raise Crash


def check_indexes(table: Modelled, names: tuple[str, ...]) -> None:
    """The indexes are there, say what the rows say, and the doctor has nothing to add."""
    table.table = lakebed.open_table(table.path)
    assert set(names) <= {*table.table.config.metadata_partitions}
    assert table.table.config.lost_partitions == ()
    for name in names:
        found = table.table.indexes.validate(name)
        assert found.is_sound, (name, found.examples)
    assert table.table.doctor(quick=True) == ()


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
    check_indexes(table, ("record_index",))
    table.upsert([4, 7], 3)
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
    with pytest.raises(WriteConflictError, match="in flight"):
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
    for number in numbers[:: 7 if is_compacted else 1]:
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


def moved(number: int, city: str, ts: int) -> dict[str, object]:
    return {"id": f"k{number}", "city": city, "ts": ts, "fare": 0.5}


def lost(folder: Path, **given: object) -> Modelled:
    """A table whose restore did not come to build its indexes anew."""
    table = new_table(folder, **{"indexes": INDEXES, **given})
    target = changed(table)
    table.overwrite([3], 3)
    table.upsert([9, 4], 4)
    without_rebuilding(context_of(table.table), target)
    as_of(table, target)
    table.table = lakebed.open_table(table.path)
    return table


def test_without_its_global_index_a_table_takes_no_upsert(tmp_path: Path) -> None:
    """It would write a key twice that is in another partition."""
    table = lost(tmp_path)
    for work in (table.table.upsert, table.table.delete):
        with pytest.raises(InvalidInputError, match="lost its record index"):
            work([moved(0, "rome", 9)])
    table.delete([5])  # By key alone all partitions are looked through.
    assert table.table.insert([moved(100, "rome", 9)]).inserted == 1
    found = {each.place: each for each in table.table.doctor(quick=True)}
    assert "duplicated" in found["record_index"].blocks
    assert set(found) == {"files", "column_stats", "bloom_filters", "record_index", "partition_stats"}
    assert {info.state for info in table.table.indexes.list()} == {"unfinished"}
    cured = table.table.doctor(repair=True)
    assert all(each.is_repaired for each in cured), cured
    table.table = lakebed.open_table(table.path)
    table.table.upsert([moved(0, "rome", 9)])
    keys = table.table.to_arrow(columns=["id"])["id"].to_pylist()
    assert len(keys) == len(set(keys))


def test_a_lost_index_can_be_given_up_for_good(tmp_path: Path) -> None:
    table = lost(tmp_path)
    for name in ("record_index", "partition_stats", "column_stats", "bloom_filters"):
        table.table.indexes.drop(name)
    table.table.upsert([moved(0, "rome", 9)])
    assert [each.place for each in table.table.doctor(quick=True)] == ["files"]


def test_a_lost_partitioned_index_is_done_without(tmp_path: Path) -> None:
    """A key is in its partition, index or not: it is looked for in files."""
    table = lost(tmp_path, indexes=["record_partitioned"])
    table.upsert([0, 1, 6, 10], 20)
    assert rows_of(table.table) == table.expected()
    assert "takes longer" in {each.place: each for each in table.table.doctor(quick=True)}["record_index"].blocks


def test_what_could_not_be_built_anew_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(tmp_path, indexes=INDEXES)
    target = changed(table)
    table.overwrite([3], 3)
    table.upsert([9, 4], 4)
    full = on_index(table.storage)
    done = restore(context_on(full), target)
    assert done.missing == ("record_index",)
    assert "record_index could not be rebuilt" in caplog.text
    assert "the table lost record_index" in caplog.text
    with pytest.raises(InvalidInputError, match="lost its record index"):
        lakebed.open_table(table.path).upsert([moved(0, "rome", 9)])
    assert lakebed.open_table(table.path).restore(target).missing == ()
    as_of(table, target)
    check_indexes(table, ("record_index", "column_stats", "partition_stats", "bloom_filters", "files"))


def on_index(storage: Storage) -> FaultyStorage:
    """A store that has no room for the record index."""

    def decide(call: Call) -> Fault | None:
        return Fault.UNAVAILABLE if call.verb == "create" and "metadata/record_index/" in call.path else None

    return FaultyStorage(storage, decide)


def test_a_column_that_came_later_is_not_in_the_statistics_any_more(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=INDEXES)
    target = changed(table)
    table.table.upsert([{**moved(0, "oslo", 9), "extra": 5}])
    table.table.indexes.create("column_stats", rebuild=True)
    table.table.restore(target)
    as_of(table, target)
    check_indexes(table, ("record_index", "column_stats", "partition_stats"))
    (info,) = [info for info in table.table.indexes.list() if info.name == "column_stats"]
    assert "extra" not in info.columns
    table.check_now()


@pytest.mark.parametrize("work", ["upsert", "doctor", "restore"])
def test_wherever_it_dies_no_key_comes_to_be_there_twice(tmp_path: Path, work: str) -> None:
    """An upsert of keys in other partitions moves them, or is refused; in the end the indexes are back."""
    table = new_table(tmp_path, indexes=["record"])
    table.upsert(range(4), 0)
    target = table.upsert([0], 1)
    savepoint(context_of(table.table), target)
    table.table.indexes.create("bloom")
    table.upsert([0, 6], 2)
    before = table.table.config.metadata_partitions
    numbers = crash_points(table, tmp_path / "dry", lambda storage: restore(context_on(storage), target))
    step = {"upsert": 1, "doctor": 9, "restore": 11}[work]
    refused = 0
    for number in numbers[::step]:
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            restore(context_on(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER}))), target)
        age_heartbeats(copy)
        refused += tries_to_move(copy)
        if work == "restore" and tries_to_move(copy):
            restore(context_on(open_storage(copy.path)), target)
            check_indexes(copy, before)
        elif work == "doctor":
            lakebed.open_table(copy.path).doctor(repair=True, quick=True)
            check_indexes(copy, before)
        assert not tries_to_move(copy) or work == "upsert", number
        shutil.rmtree(copy.path)
    assert 0 < refused < len(numbers)


def tries_to_move(table: Modelled) -> bool:
    """Whether an upsert of keys for other partitions than theirs is refused; if not, every key is there once."""
    opened = lakebed.open_table(table.path)
    try:
        opened.upsert([moved(0, "rome", 30), moved(1, "rome", 30)])
    except (InvalidInputError, TableRestoredError, WriteConflictError):
        return True
    keys = opened.to_arrow(columns=["id"])["id"].to_pylist()
    assert len(keys) == len(set(keys)), keys
    return False
