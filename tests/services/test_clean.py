"""Cleaning a table: what may go goes, what anyone needs stays, whoever dies when."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import InvalidInputError, LakebedError, ServiceRunningError, SnapshotExpiredError
from lakebed.format.timeline.metadata import decode_clean
from lakebed.format.timeline.plans import decode_clean_plan
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.clean.plan import CleanPolicy, Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.values import ServiceContext, ServiceResult
from lakebed.storage import open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at
from lakebed.table import open_handle
from lakebed.transaction.section import instant_path

from .serviced_tables import (
    Modelled,
    age_heartbeats,
    context_of,
    context_on,
    copy_of,
    crash_points,
    data_files,
    new_table,
    row,
    rows_of,
    without_metadata,
)

COMMITS_2 = Retention(commits=2)
VERSIONS_1 = Retention(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=1)


def clean(context: ServiceContext, retention: Retention = COMMITS_2) -> ServiceResult | None:
    instant = schedule_clean(context, retention)
    return None if instant is None else execute_clean(context, instant)


@pytest.fixture(params=["cow", "mor"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Modelled:
    return new_table(tmp_path, request.param)


@pytest.fixture
def cow(tmp_path: Path) -> Modelled:
    return new_table(tmp_path)


def test_retained_commits_read_as_before_and_older_ones_are_refused(cow: Modelled) -> None:
    instants = [cow.upsert(range(6), ts) for ts in range(6)]
    before = data_files(cow.storage)
    done = clean(context_of(cow.table))
    assert done is not None
    # Of six versions per group the two newest are retained, and the one that a reader just before them sees.
    assert done.counts == {"files": 9, "partitions": 0}
    assert len(before - data_files(cow.storage)) == 9
    cow.check_now()
    assert cow.readable() == {*instants[3:]}
    assert cow.table.timeline.completed()[-1].action is Action.CLEAN


def test_a_table_that_was_never_updated_has_nothing_to_clean(written: Modelled) -> None:
    for number in range(3):
        written.upsert([number], 0)
    assert clean(context_of(written.table), Retention(commits=1)) is None
    assert not [i for i in written.table.timeline if i.action is Action.CLEAN]


def test_few_commits_are_all_kept(cow: Modelled) -> None:
    for ts in range(3):
        cow.upsert(range(3), ts)
    assert clean(context_of(cow.table), Retention(commits=3)) is None
    assert clean(context_of(cow.table), Retention()) is None


def test_file_versions_are_counted_per_group(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert([0], ts)
    cow.upsert([1], 0)
    done = clean(context_of(cow.table), Retention(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, versions=2))
    assert done is not None
    assert done.counts["files"] == 2
    again = clean(context_of(cow.table), VERSIONS_1)
    assert again is not None
    assert again.counts["files"] == 1
    cow.check_now()


def test_hours_keep_what_was_readable_then(cow: Modelled) -> None:
    instants = [cow.upsert([0], ts) for ts in range(4)]
    by_hours = Retention(policy=CleanPolicy.KEEP_LATEST_BY_HOURS, hours=1)
    assert clean(context_of(cow.table), by_hours) is None
    context = context_on(cow.storage)
    later = Later(context.transactions._ports.clock, hours=2)
    object.__setattr__(context.transactions._ports, "clock", later)
    done = clean(context, by_hours)
    assert done is not None
    assert done.counts["files"] == 2
    assert cow.readable() == {*instants[2:]}


class Later:
    """A clock that is some hours ahead."""

    def __init__(self, clock: object, hours: int) -> None:
        self._clock, self._ms = clock, hours * 3_600_000

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ms  # type: ignore[attr-defined]


def test_logs_go_with_their_slice(tmp_path: Path) -> None:
    mor = new_table(tmp_path, "mor")
    for ts in range(4):
        mor.upsert(range(3), ts)
    # Without a compaction there is one slice per group, which stays with all its logs.
    assert clean(context_of(mor.table), Retention(commits=1)) is None
    mor.overwrite(range(3), 9)
    mor.upsert(range(3), 10)
    mor.upsert(range(3), 11)
    done = clean(context_of(mor.table), Retention(commits=1))
    assert done is not None
    assert done.counts["files"] == 3 * 4, "the replaced groups, logs and all"
    mor.check_now()


def test_replaced_groups_stay_while_a_retained_commit_sees_them(cow: Modelled) -> None:
    first = cow.upsert(range(3), 0)
    second = cow.overwrite(range(3), 1)
    assert clean(context_of(cow.table), Retention(commits=1)) is None, "just before the overwrite they were read"
    cow.upsert(range(3), 2)
    done = clean(context_of(cow.table), Retention(commits=1))
    assert done is not None
    assert done.counts["files"] == 3
    assert first not in cow.readable()
    assert second in cow.readable()
    cow.check_now()


def test_partitions_without_rows_disappear(cow: Modelled) -> None:
    cow.upsert(range(3), 0)
    cow.delete_partition("lima")
    cow.upsert([0], 1)
    cow.upsert([0], 2)
    assert Path(cow.path, "lima", ".hoodie_partition_metadata").exists()
    done = clean(context_of(cow.table), Retention(commits=1))
    assert done is not None
    assert done.counts["partitions"] == 1
    assert "lima" not in cow.table._handle.state().files
    assert not Path(cow.path, "lima", ".hoodie_partition_metadata").exists()
    cow.check_now()
    cow.upsert([1], 3)
    assert Path(cow.path, "lima", ".hoodie_partition_metadata").exists()
    cow.check_now()


def test_a_partition_that_is_written_to_meanwhile_stays(cow: Modelled) -> None:
    """Even if a compaction of the metadata table comes between: the entry must not fall with the partition."""
    cow.upsert(range(3), 0)
    cow.delete_partition("lima")
    cow.upsert([0], 1)
    cow.upsert([0], 2)
    context = context_of(cow.table)
    instant = schedule_clean(context, Retention(commits=1))
    assert instant is not None
    cow.upsert([1], 3)
    for ts in range(4, 16):
        cow.upsert([0], ts)
    done = execute_clean(context, instant)
    assert done.counts["partitions"] == 0
    cow.check_now()


def test_statistics_blooms_and_keys_follow(tmp_path: Path) -> None:
    indexes = ["column_stats", "bloom", "record"]
    table = new_table(tmp_path, indexes=indexes)
    for ts in range(5):
        table.upsert(range(6), ts)
    assert clean(context_of(table.table)) is not None
    table.check_now()
    assert table.table.lookup(["k4"], columns=["ts"]).to_pylist() == [{"ts": 4}]
    found = table.table.to_arrow(columns=["id"], where="ts = 4 and city = 'lima'").to_pylist()
    assert sorted(each["id"] for each in found) == ["k1", "k4"]
    table.upsert(range(8), 7)
    table.check_now()


def test_planning_lists_no_folder_of_data(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert(range(6), ts)
    storage = FaultyStorage(open_storage(cow.path))
    assert schedule_clean(context_on(storage), COMMITS_2) is not None
    lists = [t.call.path for t in storage.trace if t.call.verb.startswith("list")]
    assert lists
    assert not [path for path in lists if not path.startswith(".hoodie")], lists
    assert not [t.call for t in storage.trace if t.call.verb == "size"]


def test_a_table_without_metadata_table_is_cleaned_by_listing(tmp_path: Path) -> None:
    table = without_metadata(new_table(tmp_path))
    assert not table.table.config.metadata_partitions
    for ts in range(5):
        table.upsert(range(3), ts)
    done = clean(context_of(table.table))
    assert done is not None
    assert done.counts["files"] == 6
    table.check_now()


def test_a_reader_without_metadata_table_notices_what_was_cleaned_before_it_listed(tmp_path: Path) -> None:
    table = without_metadata(new_table(tmp_path))
    table.upsert(range(3), 0)
    look = open_handle(table.path).state()
    for ts in range(1, 5):
        table.upsert(range(3), ts)
    assert clean(context_of(table.table)) is not None
    with pytest.raises(SnapshotExpiredError, match="was cleaned while"):
        _ = look.latest_slices
    table.check_now()


def test_only_partitions_written_to_since_the_last_clean_are_looked_at(
    cow: Modelled, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lakebed.services.clean.run as module

    looked: list[str] = []
    original = module.removable_files
    monkeypatch.setattr(module, "removable_files", lambda name, *a: looked.append(name) or original(name, *a))
    for ts in range(5):
        cow.upsert(range(3), ts)
    assert clean(context_of(cow.table)) is not None
    assert sorted(looked) == sorted(CITIES_)
    looked.clear()
    for ts in range(5, 9):
        cow.upsert([0], ts)
    assert clean(context_of(cow.table)) is not None
    # Commits of the last clean's window touched all three; those after them only oslo.
    assert sorted(looked) == sorted(CITIES_)
    looked.clear()
    for ts in range(9, 12):
        cow.upsert([0], ts)
    assert clean(context_of(cow.table)) is not None
    assert looked == ["oslo"]
    cow.check_now()


CITIES_ = ("oslo", "lima", "rome")


def test_incremental_and_full_cleaning_leave_the_same_files(tmp_path: Path) -> None:
    left = []
    for incremental in (True, False):
        table = new_table(tmp_path)
        for ts in range(9):
            table.upsert([ts % 3, (ts + 1) % 4], ts)
            if ts == 5:
                table.overwrite([1], 6)
            clean(context_of(table.table), Retention(commits=2, incremental=incremental))
        table.check_now()
        left.append(sorted(path.partition("/")[0] for path in data_files(table.storage)))
    assert left[0] == left[1]


def test_a_write_under_way_keeps_what_it_saw(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert([0], ts)
    transactions = cow.table._transactions
    attempt = transactions.begin(Action.COMMIT)
    for ts in range(4, 8):
        cow.upsert([1], ts)
    kept = {path for path in data_files(cow.storage) if path.startswith("lima")}
    for retention in (Retention(commits=1), VERSIONS_1):
        clean(context_of(cow.table), retention)
    assert {path for path in data_files(cow.storage) if path.startswith("lima")} == kept
    assert len([path for path in data_files(cow.storage) if path.startswith("oslo")]) == 1
    transactions.abandon(attempt)
    assert clean(context_of(cow.table), Retention(commits=1)) is not None
    assert len([path for path in data_files(cow.storage) if path.startswith("lima")]) == 2


def test_the_files_say_what_apache_hudi_writes(cow: Modelled) -> None:
    instants = [cow.upsert([0], ts) for ts in range(4)]
    instant = schedule_clean(context_of(cow.table), COMMITS_2)
    assert instant is not None
    storage, config = cow.storage, cow.table.config
    path = instant_path(config, Instant(instant, Action.CLEAN, State.REQUESTED))
    plan = decode_clean_plan(storage.get(path), path=path)
    assert plan.earliest_to_retain is not None
    assert (plan.earliest_to_retain.requested_at, plan.earliest_to_retain.action) == (instants[2], "commit")
    assert plan.last_completed == instants[3]
    assert plan.policy == "KEEP_LATEST_COMMITS"
    assert list(plan.files) == ["oslo"]
    execute_clean(context_of(cow.table), instant)
    assert storage.get(instant_path(config, Instant(instant, Action.CLEAN, State.INFLIGHT))) == b""
    done = next(i for i in cow.table.timeline if i.requested_at == instant)
    metadata = decode_clean(storage.get(instant_path(config, done)), path="clean")
    assert metadata.earliest_to_retain == instants[2]
    assert metadata.deleted_files == plan.files
    twin = [i for i in load_mdt(cow) if i.requested_at == instant]
    assert [i.action for i in twin] == [Action.DELTA_COMMIT]
    assert (twin[0].completed_at or "9") < (done.completed_at or "")


def load_mdt(table: Modelled) -> lakebed.Timeline:
    from lakebed.timeline import load_timeline

    return load_timeline(table.storage, table.table.config, ".hoodie/metadata/")


def test_only_one_process_is_at_a_clean(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert(range(3), ts)
    one, other = context_on(cow.storage), context_on(cow.storage)
    instant = schedule_clean(one, COMMITS_2)
    assert instant is not None
    assert schedule_clean(other, COMMITS_2) == instant, "nobody is at it: whoever comes executes it"
    attempt = one.transactions.executions.begin(instant)
    assert schedule_clean(other, COMMITS_2) is None
    with pytest.raises(ServiceRunningError):
        execute_clean(other, instant)
    one.transactions.executions.give_up(attempt, is_idle=True)
    execute_clean(other, instant)
    cow.check_now()


def test_a_clean_that_another_engine_has_begun_is_left_to_it(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert(range(3), ts)
    context = context_on(cow.storage)
    instant = schedule_clean(context, COMMITS_2)
    assert instant is not None
    cow.storage.create(f".hoodie/timeline/{instant}.clean.inflight", b"")
    assert schedule_clean(context, COMMITS_2) is None
    with pytest.raises(ServiceRunningError):
        execute_clean(context, instant)
    assert [i.requested_at for i in cow.table.timeline.pending()] == [instant]


def test_unknown_completed_and_foreign_plans_are_refused(cow: Modelled) -> None:
    for ts in range(4):
        cow.upsert([0], ts)
    context = context_of(cow.table)
    with pytest.raises(InvalidInputError, match="no plan"):
        execute_clean(context, InstantTime("20200101000000000"))
    instant = schedule_clean(context, COMMITS_2)
    assert instant is not None
    execute_clean(context, instant)
    with pytest.raises(InvalidInputError, match="already"):
        execute_clean(context, instant)
    attempt = context.transactions.begin(Action.COMMIT)
    with pytest.raises(InvalidInputError, match="plan of a commit"):
        execute_clean(context, attempt.instant)
    context.transactions.abandon(attempt)


def test_cleaners_at_once_end_in_one_clean(cow: Modelled) -> None:
    for ts in range(6):
        cow.upsert(range(6), ts)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            clean(context_on(open_storage(cow.path)))
        except LakebedError as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(error, ServiceRunningError | InvalidInputError) for error in errors), errors
    assert len([i for i in cow.table.timeline.completed() if i.action is Action.CLEAN]) == 1
    assert not cow.table.timeline.pending()
    cow.check_now()


def test_another_process_goes_on_wherever_one_dies(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert([0, 1], ts) for ts in range(4)]
    table.delete_partition("lima")
    instants += [table.upsert([0], ts) for ts in range(4, 7)]
    crashes = crash_points(table, tmp_path / "dry", lambda storage: clean(context_on(storage)))
    for number in crashes:
        copy = copy_of(table, tmp_path / f"{number}")
        with pytest.raises(Crash):
            clean(context_on(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER}))))
        copy.check_past(instants[-2:])
        assert rows_of(copy.table) == table.expected()
        age_heartbeats(copy)
        other = context_on(open_storage(copy.path))
        clean(other)
        other.transactions.rollbacks.run()
        assert not copy.table.timeline.pending(), number
        copy.check_now()
        copy.check_past(instants[-2:])
        assert len(data_files(copy.storage)) == 3, number
        shutil.rmtree(copy.path)


def test_a_row_that_no_version_has_is_no_ones_loss(cow: Modelled) -> None:
    cow.upsert(range(3), 0)
    cow.delete([0])
    cow.upsert([1], 1)
    cow.upsert([1], 2)
    cow.upsert([1], 3)
    clean(context_of(cow.table), Retention(commits=1))
    assert row(0, 0) not in rows_of(cow.table)
    cow.check_now()


def test_a_group_that_had_only_logs_is_missed_too(tmp_path: Path) -> None:
    """Other engines insert into log files of new groups: then there is no base file whose absence tells."""
    table = without_metadata(new_table(tmp_path, "mor", partition_by=None))
    table.upsert([0], 0)
    second = table.upsert([0], 1)
    for base in table.path.glob("*.parquet"):
        base.unlink()
    table.table.overwrite([row(0, 2)], whole_table=True)
    table.upsert([0], 3)
    table.upsert([0], 4)
    done = clean(context_of(table.table), Retention(commits=1))
    assert done is not None
    assert done.counts["files"] == 1
    with pytest.raises(InvalidInputError, match="cleaned"):
        table.table.to_arrow(as_of=second)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_write_cannot_be_rolled_back_once_what_it_superseded_is_cleaned(cow: Modelled, replaces: bool) -> None:
    cow.upsert([0], 0)
    newest = cow.overwrite([0], 1) if replaces else cow.upsert([0], 1)
    context = context_of(cow.table)
    planned = schedule_clean(context, VERSIONS_1)
    assert planned is not None
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="cleaned"):
            cow.table.rollback(newest)
        if any(i.requested_at == planned for i in cow.table.timeline.pending()):
            execute_clean(context, planned)
    cow.check_now()
    last = cow.upsert([0], 2)
    clean(context, Retention(commits=1))
    cow.table.rollback(last)
    cow.rows = {(each["city"], each["id"]): each for each in cow.past[newest]}
    cow.check_now()
