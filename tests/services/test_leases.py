"""Reader leases: cleaning leaves alone what is read under one, whoever comes first, and takes it afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CorruptTableError, InvalidInputError, SnapshotExpiredError
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.read.lease import expiry_told, plan_leased, take_lease
from lakebed.read.scan import plan_scan, read_arrow
from lakebed.services.archive import ArchiveLimits, archive_timeline
from lakebed.services.clean.plan import Retention
from lakebed.services.clean.run import LEASES, execute_clean, schedule_clean
from lakebed.services.restore import restore
from lakebed.services.savepoint import savepoint
from lakebed.storage import open_storage
from lakebed.storage.faults import Call, Crash, Fault, FaultyStorage
from lakebed.transaction.heartbeats import Heartbeat, Timing
from lakebed.transaction.leases import FOLDER
from lakebed.transaction.ports import Ports

from .serviced_tables import SCHEMA, Modelled, Rows, context_of, context_on, copy_of, data_files, new_table

ONE = Retention(commits=1)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Modelled]:
    found = {}
    for table_type in ("cow", "mor"):
        found[table_type] = made = new_table(tmp_path_factory.mktemp("originals"), table_type)
        for ts in range(4):
            made.upsert(range(3), ts)
            if table_type == "mor":
                made.table.services.compact()
    return found


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, originals: dict[str, Modelled], tmp_path: Path) -> Modelled:
    return copy_of(originals[request.param], tmp_path / "t")


@pytest.fixture
def cow(originals: dict[str, Modelled], tmp_path: Path) -> Modelled:
    return copy_of(originals["cow"], tmp_path / "t")


def clean(table: Modelled) -> int:
    """How many files the next clean takes."""
    context = context_of(table.table)
    instant = schedule_clean(context, ONE)
    return 0 if instant is None else execute_clean(context, instant).counts["files"]


def rows_of(reader: Any) -> Rows:
    return sorted(reader.to_arrow(columns=SCHEMA.names).to_pylist(), key=lambda each: (each["city"], each["id"]))


def oldest(table: Modelled) -> InstantTime:
    return next(iter(table.past))


def leases(table: Modelled) -> list[Path]:
    return sorted(Path(table.path, FOLDER).glob("*"))


def age(file: Path) -> None:
    os.utime(file, (1, 1))


def ports_of(table: Modelled, at: Callable[[str], None] = lambda _: None) -> Ports:
    return replace(context_on(table.storage).transactions._ports, at=at)


def lease_on(table: Modelled, as_of: object = None, at: Callable[[str], None] = lambda _: None) -> Heartbeat:
    """A lease of another process, which renews it only when told."""
    handle = lakebed.open_table(table.path)._handle
    return take_lease(handle, ports_of(table, at), Timing(), as_of)


def read(table: Modelled, lease: Heartbeat) -> Rows:
    handle = lakebed.open_table(table.path)._handle
    with expiry_told(handle, lease):
        found = read_arrow(plan_leased(handle, lease, SCHEMA.names, None, "snapshot")).to_pylist()
    return sorted(found, key=lambda each: (each["city"], each["id"]))


def test_what_is_leased_stays_until_the_block_ends(table: Modelled) -> None:
    with table.table.lease(as_of=oldest(table)) as first, table.table.lease() as last:
        newest = table.table.timeline.commits()[-1]
        assert last.as_of == newest.completed_at
        expected = table.expected()
        for ts in range(4, 8):
            table.upsert([0], ts)
        assert clean(table) > 0, "what nobody reads goes"
        assert rows_of(first) == table.past[oldest(table)]
        assert rows_of(last) == expected
        assert first.explain().as_of == first.as_of
        assert [each["fare"] for each in first.to_arrow(columns=["fare"], where="city = 'lima'").to_pylist()] == [0.0]
    assert not leases(table)
    table.upsert([0], 9)
    assert clean(table) > 0
    assert oldest(table) not in table.readable()
    table.check_now()


def test_partitions_that_nobody_wrote_to_since_are_cleaned_once_the_lease_is_gone(cow: Modelled) -> None:
    with cow.table.lease(as_of=oldest(cow)) as reader:
        clean(cow)
        (done,) = [i for i in cow.table.timeline.completed() if i.action is Action.CLEAN]
        assert cow.table._handle.state().documents.clean(done).extra_metadata == {LEASES: reader.as_of}
    for ts in range(5, 7):
        cow.upsert([0], ts)
    clean(cow)
    lima = [path for path in data_files(cow.storage) if path.startswith("lima")]
    assert len(lima) == 1, "only oslo was written to"
    cow.check_now()


def test_a_block_that_fails_gives_the_lease_up(cow: Modelled) -> None:
    with pytest.raises(InvalidInputError, match="no column"), cow.table.lease() as reader:
        reader.to_arrow(columns=["nothing"])
    assert not leases(cow)


def test_what_cannot_be_leased(tmp_path: Path, cow: Modelled) -> None:
    with pytest.raises(InvalidInputError, match="no commits"), new_table(tmp_path).table.lease():
        pass
    clean(cow)
    with pytest.raises(InvalidInputError, match="cleaned"), cow.table.lease(as_of=oldest(cow)):
        pass
    assert not leases(cow)


# Both orders of each race. The clean is executed by another process, whose calls to the store are stopped at.


def execute_until(table: Modelled, instant: InstantTime, verb: str, part: str, meanwhile: Callable[[], None]) -> None:
    """Executes a clean, with something happening just before its first call of a verb on such a path."""
    seen = []

    def decide(call: Call) -> None:
        if not seen and call.verb == verb and part in call.path:
            seen.append(call)
            meanwhile()

    execute_clean(context_on(FaultyStorage(open_storage(table.path), decide)), instant)
    assert seen


def test_a_plan_leaves_out_what_is_leased(cow: Modelled) -> None:
    """So another reader may join the first one, whatever the clean is at."""
    first, joined = lease_on(cow, oldest(cow)), []
    instant = schedule_clean(context_of(cow.table), ONE)
    assert instant is not None
    execute_until(cow, instant, "delete", ".parquet", lambda: joined.append(lease_on(cow, oldest(cow))))
    first.stop()
    assert read(cow, joined[0]) == cow.past[oldest(cow)]


def test_a_lease_between_the_plan_and_its_execution(table: Modelled) -> None:
    """The plan is requested and not in flight: the reader trusts its execution to look."""
    instant = schedule_clean(context_of(table.table), ONE)
    assert instant is not None
    lease = lease_on(table, oldest(table))
    taken = execute_clean(context_of(table.table), instant).counts["files"]
    assert taken > 0
    assert read(table, lease) == table.past[oldest(table)]
    table.check_now()


def test_a_lease_after_the_execution_has_looked(table: Modelled) -> None:
    """It is in flight by then: whoever asks for a moment is told, nobody reads what is about to go."""
    instant = schedule_clean(context_of(table.table), ONE)
    assert instant is not None

    def meanwhile() -> None:
        with pytest.raises(SnapshotExpiredError, match=instant) as told:
            lease_on(table, oldest(table))
        assert told.value.retryable
        assert "retained" in told.value.hint
        assert not leases(table)
        lease = lease_on(table)
        assert read(table, lease) == table.expected(), "the newest snapshot is in no plan"
        lease.stop()

    execute_until(table, instant, "delete", ".parquet", meanwhile)
    table.check_now()


def test_an_execution_that_runs_while_the_reader_has_not_looked_yet(table: Modelled) -> None:
    """The execution has seen the lease: what it has deleted, not what was planned, is what counts."""
    instant = schedule_clean(context_of(table.table), ONE)
    assert instant is not None

    def between(label: str) -> None:
        if label == "lease.V":
            execute_clean(context_of(table.table), instant)

    lease = lease_on(table, oldest(table), between)
    assert instant in [i.requested_at for i in table.table.timeline.completed()]
    assert read(table, lease) == table.past[oldest(table)]
    table.check_now()


def test_a_lease_just_before_the_execution_looks(cow: Modelled) -> None:
    """It is in flight already, so the reader cannot tell whether it will look."""
    instant = schedule_clean(context_of(cow.table), ONE)
    assert instant is not None

    def meanwhile() -> None:
        with pytest.raises(SnapshotExpiredError, match=instant):
            lease_on(cow, oldest(cow))

    execute_until(cow, instant, "list", FOLDER, meanwhile)
    cow.check_now()


def test_a_reader_that_gives_up_late_costs_a_clean_nothing(cow: Modelled) -> None:
    """The execution sees a lease that its reader is about to give up: the files wait for the next clean."""
    instant = schedule_clean(context_of(cow.table), ONE)
    assert instant is not None
    first = {path for path in data_files(cow.storage) if oldest(cow) in path}
    point = cow.table.timeline.completion_of(oldest(cow))
    lease = Path(cow.path, FOLDER, "late")
    cow.storage.create(f"{FOLDER}/late", f"late 0 {point}".encode())
    execute_clean(context_of(cow.table), instant)
    lease.unlink()
    assert first <= data_files(cow.storage)
    cow.check_now()
    cow.upsert([0], 9)
    clean(cow)
    assert not first & data_files(cow.storage), "in every partition"
    cow.check_now()


def test_a_clean_between_the_snapshot_and_the_lease(cow: Modelled) -> None:
    """The newest snapshot is not the newest any more: the reader takes the one that is."""
    looks = []

    def between(label: str) -> None:
        if label == "lease.L" and not looks:
            looks.append(label)
            for ts in range(5, 8):
                cow.upsert(range(3), ts)
            clean(cow)

    lease = lease_on(cow, at=between)
    assert looks
    assert lease.instant == cow.table.timeline.commits()[-1].completed_at
    assert read(cow, lease) == cow.expected()
    assert len(leases(cow)) == 1


def test_a_clean_that_always_wins_is_told(cow: Modelled) -> None:
    numbers = iter(range(5, 100))

    def between(label: str) -> None:
        if label == "lease.L":
            for _ in range(2):
                cow.upsert([0], next(numbers))
            clean(cow)

    with pytest.raises(SnapshotExpiredError):
        lease_on(cow, at=between)
    assert not leases(cow)


def test_a_write_that_is_undone_between_the_snapshot_and_the_lease(cow: Modelled) -> None:
    def between(label: str) -> None:
        if label == "lease.L" and len(cow.table.timeline.commits()) == 4:
            cow.table.rollback(cow.table.timeline.commits()[-1].requested_at)

    lease = lease_on(cow, at=between)
    assert lease.instant == cow.table.timeline.commits()[-1].completed_at
    assert len(cow.table.timeline.commits()) == 3


# Leases that end.


def test_a_lease_that_is_not_renewed_runs_out(cow: Modelled) -> None:
    lease = lease_on(cow, oldest(cow))
    (file,) = leases(cow)
    age(file)
    assert lease.beat(), "the reader wakes up in time"
    clean(cow)
    assert read(cow, lease) == cow.past[oldest(cow)]
    age(file)
    cow.upsert([0], 9)
    assert clean(cow) > 0
    assert not leases(cow), "the clean that does without it removes it"
    assert not lease.beat(), "it cannot be renewed any more"
    with pytest.raises(SnapshotExpiredError, match="expired") as told:
        read(cow, lease)
    assert "new lease" in told.value.hint


def test_a_reader_that_lost_its_lease_in_the_middle_of_a_read(cow: Modelled) -> None:
    lease = lease_on(cow, oldest(cow))
    handle = lakebed.open_table(cow.path)._handle
    plan = plan_leased(handle, lease, None, None, "snapshot")
    (file,) = leases(cow)
    age(file)
    clean(cow)
    with pytest.raises(SnapshotExpiredError, match="expired"), expiry_told(handle, lease):
        read_arrow(plan)


def test_a_reader_without_a_lease_is_told_how_to_get_one(cow: Modelled) -> None:
    """Retention that is shorter than a read."""
    handle = lakebed.open_table(cow.path)._handle
    plan = plan_scan(handle.state(), as_of=oldest(cow))
    clean(cow)
    with pytest.raises(SnapshotExpiredError, match=r"deleted .*parquet while") as told, expiry_told(handle):
        read_arrow(plan)
    assert "table.lease()" in told.value.hint


def test_a_file_that_no_clean_took_is_a_damage(cow: Modelled) -> None:
    path = sorted(path for path in data_files(cow.storage) if cow.table.timeline.commits()[-1].requested_at in path)[0]
    Path(cow.path, path).unlink()
    with pytest.raises(CorruptTableError, match="missing"):
        cow.table.to_arrow()


def test_what_an_attempt_has_deleted_is_told_to_the_metadata_table_though_it_is_leased_now(cow: Modelled) -> None:
    """A clean dies half way; a reader's lease, not yet given up, is seen by the next attempt."""
    instant = schedule_clean(context_of(cow.table), ONE)
    assert instant is not None

    def dies(call: Call) -> Fault | None:
        return Fault.CRASH_BEFORE if call.verb == "publish" else None

    with pytest.raises(Crash):
        execute_clean(context_on(FaultyStorage(open_storage(cow.path), dies)), instant)
    for beat in Path(cow.path, ".hoodie/.heartbeat").glob("*"):
        age(beat)
    point = cow.table.timeline.completion_of(oldest(cow))
    cow.storage.create(f"{FOLDER}/reader", f"reader 0 {point}".encode())
    execute_clean(context_of(cow.table), instant)
    cow.check_now()


# What else readers meet.


def test_archiving_keeps_the_write_at_which_a_reader_stands(cow: Modelled) -> None:
    limits = ArchiveLimits(min_commits=1, max_commits=2)
    instants = [i.requested_at for i in cow.table.timeline.commits()]
    for ts in range(5, 14):
        cow.upsert([0], ts)  # The metadata table is compacted on the way: only then may instants leave.
    with cow.table.lease(as_of=instants[2]) as reader:
        assert archive_timeline(context_of(cow.table), limits, ONE) > 0
        assert instants[1] not in [i.requested_at for i in cow.table.timeline.commits()]
        assert cow.table.timeline.completion_of(instants[2]) == reader.as_of
        assert rows_of(reader) == cow.past[instants[2]]
    assert archive_timeline(context_of(cow.table), limits, ONE) > 0
    assert cow.table.timeline.completion_of(instants[2]) is None


def test_a_restore_does_not_wait_and_the_reader_is_told(cow: Modelled) -> None:
    instants = [i.requested_at for i in cow.table.timeline.commits()]
    savepoint(context_of(cow.table), instants[2])
    with ExitStack() as stack:
        newest = stack.enter_context(cow.table.lease())
        older = stack.enter_context(cow.table.lease(as_of=instants[1]))
        restore(context_of(cow.table), instants[2])
        with pytest.raises(SnapshotExpiredError, match="rolled back"):
            newest.to_arrow()
        assert rows_of(older) == cow.past[instants[1]]


def test_a_file_that_is_no_lease_is_named(cow: Modelled) -> None:
    cow.storage.create(f"{FOLDER}/what", b"is this")
    with pytest.raises(CorruptTableError, match="not a lease"):
        clean(cow)


@pytest.mark.spark
def test_on_spark(cow: Modelled, spark: Any) -> None:
    table = lakebed.open_table(cow.path, spark=spark)
    with table.lease(as_of=oldest(cow)) as reader:
        frame = reader.to_spark(columns=["id", "fare"])
        clean(cow)
        assert sorted((row["id"], row["fare"]) for row in frame.collect()) == [("k0", 0.0), ("k1", 0.0), ("k2", 0.0)]
