"""Indexes that are built while others write: the five cases of RFC-45, by number, and engines that know less."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import Table, open_table
from lakebed.commit import entries
from lakebed.errors import InvalidInputError, LakebedError, RolledBackError, ServiceRunningError, WriteConflictError
from lakebed.format.timeline.metadata import decode_index_plan
from lakebed.index.obliged import Obliged, find_obliged
from lakebed.index.record import build as record_build
from lakebed.metadata import MetadataTable
from lakebed.model.commit import CommitMetadata
from lakebed.model.words import Action
from lakebed.observe import Silent
from lakebed.options import WriteOptions
from lakebed.services.indexing import catch_up
from lakebed.storage.faults import Call, Crash, Fault
from lakebed.transaction.section import Section
from lakebed.transaction.transactions import Transactions
from lakebed.write.columnar import ColumnarPlane
from lakebed.write.verbs import TableWrites
from lakebed.write.writer import Writer
from services.compaction_tables import context_of
from services.worlds import contents, faulty, indexes_on, made, rows

WRITING = ("create", "replace", "publish")
KINDS = ("record_index", "record_partitioned", "bloom_filters", "column_stats", "partition_stats")
MDT = ".hoodie/metadata"
OWN_FILES = {"hoodie.parquet.small.file.limit": "0"}


@dataclass
class Meanwhile(Silent):
    """Does something once, when the first piece of an index is done: without the lock, while it is being built."""

    do: Callable[[], object]
    is_done: bool = False

    def progress(self, what: str, done: int, total: int) -> None:
        del what, done, total
        if not self.is_done:
            self.is_done = True
            self.do()


def table_without(path: Path, kind: str, table_type: str) -> Table:
    table = made(path, table_type)
    for name in ("partition_stats", "column_stats") if kind == "column_stats" else (partition_of(kind),):
        if any(info.name == name for info in table.indexes.list()):
            table.indexes.drop(name)
    return table


def partition_of(kind: str) -> str:
    return "record_index" if kind.startswith("record") else kind


def build(table: Table, kind: str, do: Callable[[], object] = lambda: None) -> None:
    """Builds the index, and does something in the middle of it."""
    meanwhile = Meanwhile(do)
    if kind.startswith("record"):
        table.indexes.create("record_index", kind=kind.replace("_index", ""), shards=2, observer=meanwhile)
    else:
        table.indexes.create(kind, observer=meanwhile)
    assert meanwhile.is_done


def check(path: Path, kind: str) -> None:
    """The index agrees with the rows, and nothing of its build is left."""
    table = open_table(path)
    found = table.indexes.validate(partition_of(kind))
    assert found.is_sound, (found, found.examples)
    assert table.config.metadata_partitions_inflight == ()
    assert table.timeline.pending() == ()
    assert table.doctor() == ()


WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(30, 50, ts=5)),
    "late rows": lambda table: table.upsert(rows(20, 20, ts=0)),
    "delete": lambda table: table.delete(["k000", "k001", "k050"]),
    "overwrite": lambda table: table.overwrite(rows(0, 3, ts=5)),
    "delete partitions": lambda table: table.delete_partitions(["oslo"]),
    "delete and insert": lambda table: (table.delete(["k000", "k003"]), table.upsert(rows(0, 4, ts=7))),
}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", WRITES)
def test_case_3b_a_write_that_begins_during_the_build_commits_once_and_is_in_the_index(
    tmp_path: Path, table_type: str, kind: str, write: str
) -> None:
    table = table_without(tmp_path / "t", kind, table_type)
    other = open_table(tmp_path / "t")
    commits = len(other.timeline.commits())
    build(table, kind, lambda: WRITES[write](other))
    assert len(open_table(tmp_path / "t").timeline.commits()) == commits + (2 if "and" in write else 1)
    check(tmp_path / "t", kind)


@contextmanager
def build_under_way(table: Table, kind: str):
    """Builds the index in a thread, which stands still in the middle until the block ends."""
    is_building, may_end, errors = threading.Event(), threading.Event(), []

    def work() -> None:
        try:
            build(table, kind, lambda: (is_building.set(), may_end.wait(60)))
        except BaseException as error:
            errors.append(error)
            is_building.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert is_building.wait(60)
        yield
    finally:
        may_end.set()
        thread.join(60)
    assert errors == []


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
def test_case_3a_a_write_in_flight_when_the_build_begins_commits_once_and_is_in_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, kind: str
) -> None:
    table = table_without(tmp_path / "t", kind, table_type)
    writer, expected = open_table(tmp_path / "t", options=OWN_FILES), len(contents(table)) + 20
    prepare, blocks = ColumnarPlane.prepare, []

    def late(self: ColumnarPlane, *arguments: object) -> object:
        monkeypatch.setattr(ColumnarPlane, "prepare", prepare)
        blocks.append(build_under_way(table, kind))
        blocks[0].__enter__()
        return prepare(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ColumnarPlane, "prepare", late)
    writer.upsert(rows(50, 30, ts=5))
    assert table.timeline.pending() != (), "the index is still being built"
    blocks[0].__exit__(None, None, None)
    assert len(contents(open_table(tmp_path / "t"))) == expected
    check(tmp_path / "t", kind)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
def test_case_1_a_writer_that_dies_leaves_the_build_undisturbed(tmp_path: Path, table_type: str, kind: str) -> None:
    table = table_without(tmp_path / "t", kind, table_type)
    before = contents(table)
    for what in (".inflight", ".parquet" if table_type == "cow" else ".log.", f"{MDT}/files", ".deltacommit"):
        build(table, kind, lambda what=what: write_and_die(tmp_path / "t", what))
        assert contents(open_table(tmp_path / "t")) == before, what
        found = open_table(tmp_path / "t").indexes.validate(partition_of(kind))
        assert found.is_sound, (what, found.examples)
        die(tmp_path / "t")
        assert len(table.services.rollback_failed_writes()) == 1, what
        check(tmp_path / "t", kind)
        table.indexes.drop(partition_of(kind))


def write_and_die(path: Path, what: str) -> None:
    """Upserts in a process that dies after a call to the store."""

    def decide(call: Call) -> Fault | None:
        return Fault.CRASH_AFTER if call.verb in ("create", "publish") and what in call.path else None

    context = context_of(open_table(path), storage=faulty(path, decide))
    with pytest.raises(Crash):
        TableWrites(context.handle, context.transactions, WriteOptions()).upsert(rows(50, 30, ts=5))


def die(path: Path) -> None:
    """Makes heartbeats and leases too old to be alive."""
    for folder in (".heartbeat", ".leases"):
        for beat in (path / ".hoodie" / folder).glob("*"):
            os.utime(beat, (1, 1))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", [".indexing.inflight", ".hfile", ".deltacommit"])
def test_case_2_an_indexer_that_dies_stops_no_writer_and_the_next_call_ends_right(
    tmp_path: Path, table_type: str, kind: str, where: str
) -> None:
    table = table_without(tmp_path / "t", kind, table_type)
    build_and_die(tmp_path / "t", kind, where)
    partition = partition_of(kind)
    table.upsert(rows(50, 30, ts=5))
    table.delete(["k000"])
    assert partition not in table.config.metadata_partitions
    assert {info.name: info.state for info in table.indexes.list()}[partition] == "building"
    with pytest.raises(ServiceRunningError, match=f"building {partition}") as raised:
        build(table, kind)
    assert "considered dead in" in raised.value.hint
    die(tmp_path / "t")
    table.upsert(rows(60, 30, ts=6))
    build(table, kind)
    check(tmp_path / "t", kind)


def build_and_die(path: Path, kind: str, where: str) -> None:
    def decide(call: Call) -> Fault | None:
        is_there = where in call.path and (where != ".deltacommit" or "_" in call.path.rpartition("/")[2])
        return Fault.CRASH_AFTER if call.verb in ("create", "publish") and is_there else None

    indexes, is_keys = indexes_on(faulty(path, decide)), kind.startswith("record")
    with pytest.raises(Crash):
        indexes.create(partition_of(kind), kind=kind.replace("_index", "") if is_keys else None)


@pytest.mark.parametrize("cure", ["rollback_failed_writes", "doctor", "drop", "services"])
def test_a_dead_build_is_taken_back_by_whoever_looks_after_the_table(tmp_path: Path, cure: str) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    build_and_die(tmp_path / "t", "record_index", ".hfile")
    die(tmp_path / "t")
    if cure == "rollback_failed_writes":
        table.services.rollback_failed_writes()
    elif cure == "doctor":
        table.doctor(repair=True)
    elif cure == "services":
        table.services.run()
    else:
        table.indexes.drop("record_index")
    table = open_table(tmp_path / "t")
    assert table.timeline.pending() == ()
    assert table.config.metadata_partitions_inflight == ()
    assert all(info.name != "record_index" for info in table.indexes.list())
    assert not (tmp_path / "t" / MDT / "record_index").exists() or not files_of(tmp_path / "t", "record_index")
    assert table.doctor() == ()


def files_of(path: Path, partition: str) -> list[str]:
    return sorted(file.name for file in (path / MDT / partition).iterdir() if file.suffix != ".crc")


@pytest.mark.parametrize("kind", KINDS)
def test_case_4_services_of_the_table_and_of_its_metadata_table_complete_during_the_build(
    tmp_path: Path, kind: str
) -> None:
    table = table_without(tmp_path / "t", kind, "mor")
    other = open_table(tmp_path / "t", options={"hoodie.clean.commits.retained": "1"})
    done: list[object] = []

    def serve() -> None:
        for number in range(10):
            other.upsert(rows(3 * number, 30, ts=5 + number))
            done.append(other.services.log_compact())
        done.append(other.services.compact())
        other.upsert(rows(0, 60, ts=20))
        done.append(other.services.cluster(order_by=["ts"]))
        done.append(other.services.clean())
        assert metadata_compactions(tmp_path / "t") > compactions, "the metadata table was compacted meanwhile"
        bases.update(name for name in files_of(tmp_path / "t", partition_of(kind)) if name.endswith(".hfile"))

    bases: set[str] = set()
    compactions = metadata_compactions(tmp_path / "t")
    build(table, kind, serve)
    assert sum(result is not None for result in done) >= 3
    assert all(name.split("_")[-1].startswith("0000") for name in bases), "nothing else was stored in base files"
    check(tmp_path / "t", kind)


def metadata_compactions(path: Path) -> int:
    return len([*(path / MDT / ".hoodie/timeline").glob("*.commit")])


def test_case_5_a_write_in_flight_since_before_is_not_waited_for_and_is_in_the_index(tmp_path: Path) -> None:
    """C1 to C4, C5 in flight, C6 to C8: the plan says C4, and C5 commits into the index when it is done."""
    table = table_without(tmp_path / "t", "record_index", "mor")
    last = table.timeline.commits()[-1].requested_at
    with write_under_way(tmp_path / "t", rows(300, 5)):
        for number in range(3):
            table.upsert(rows(310 + 5 * number, 5))
        build(table, "record_index")
        done = [i for i in table.timeline.completed() if i.action is Action.INDEXING][-1]
        assert upto(table, done.requested_at) == last
        assert table.lookup(["k310", "k300"]).num_rows == 1
    assert table.lookup(["k310", "k300"]).num_rows == 2
    check(tmp_path / "t", "record_index")


def upto(table: Table, instant: str) -> str:
    path = f".hoodie/timeline/{instant}.indexing.requested"
    return decode_index_plan(table._handle.storage.get(path), path=path).partitions[0].up_to


@contextmanager
def write_under_way(path: Path, new: pa.Table):
    """An upsert in a thread, whose files are written and which commits when the block ends."""
    is_prepared, may_end, errors = threading.Event(), threading.Event(), []
    context = context_of(open_table(path))

    class Slow(ColumnarPlane):
        def prepare(self, *arguments: object) -> object:
            is_prepared.set()
            may_end.wait(60)
            return super().prepare(*arguments)  # type: ignore[arg-type]

    def work() -> None:
        try:
            writes = TableWrites(context.handle, context.transactions, WriteOptions())
            writes._writer = Writer(context.handle, context.transactions, Slow(WriteOptions()))
            writes.upsert(new)
        except BaseException as error:
            errors.append(error)
            is_prepared.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert is_prepared.wait(60)
        yield
    finally:
        may_end.set()
        thread.join(60)
    assert errors == []


def test_case_5_a_compaction_that_nobody_executes_is_not_waited_for_and_keeps_the_index_later(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    planned = table.services.schedule("compaction")
    table.upsert(rows(300, 5))
    build(table, "record_index")
    assert planned is not None
    table.services.execute(planned)
    check(tmp_path / "t", "record_index")


@pytest.mark.parametrize("name", ["clean", "deltacommit"])
def test_case_5_work_of_another_engine_in_flight_is_waited_for_then_the_build_is_taken_back(
    tmp_path: Path, name: str
) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    impatient = open_table(tmp_path / "t", options={"hoodie.metadata.index.check.timeout.seconds": "0"})
    timeline = tmp_path / "t/.hoodie/timeline"
    files = [timeline / f"20260101000000000.{name}.{state}" for state in ("requested", "inflight")]
    beat = tmp_path / "t/.hoodie/.heartbeat/20260101000000000"  # Empty, as those of Apache Hudi.
    for file in (*files, beat):
        file.write_bytes(b"")
    with pytest.raises(WriteConflictError, match="20260101000000000 of another engine was in flight") as raised:
        build(impatient, "record_index")
    assert "hoodie.metadata.index.check.timeout.seconds" in raised.value.hint
    assert [i.action for i in table.timeline.pending()] == [Action(name)], "nothing of the build is left"
    assert files_of(tmp_path / "t", "record_index") == []
    for file in (*files, beat):
        file.unlink()
    build(impatient, "record_index")
    check(tmp_path / "t", "record_index")


def knows_the_config_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits as of an engine that does not look at index plans: without entries, and without a word about it."""

    def found(section: Section, metadata: MetadataTable) -> Obliged:
        obliged = find_obliged(section, metadata)
        return Obliged({name: ids for name, ids in obliged.groups.items() if name not in obliged.building})

    monkeypatch.setattr(entries, "find_obliged", found)


FOREIGN: dict[str, Callable[[Table], object]] = {**WRITES, "compaction": lambda table: table.services.compact()}


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", FOREIGN)
def test_what_another_engine_commits_during_the_build_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, kind: str, write: str
) -> None:
    """Covered commits before and after it touch the same keys: entries stand where their commits stand."""
    table = table_without(tmp_path / "t", kind, table_type)
    other = open_table(tmp_path / "t")

    def work() -> None:
        other.upsert(rows(25, 10, ts=4))
        with monkeypatch.context() as patched:
            knows_the_config_only(patched)
            FOREIGN[write](other)
        other.delete(["k003"])
        other.upsert(rows(28, 40, ts=6))

    build(table, kind, work)
    check(tmp_path / "t", kind)


def test_what_another_engine_commits_while_the_build_waits_for_it_is_caught_up_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    waited: list[int] = []

    def unsettled(self: catch_up.CatchUp, section: Section) -> list[str]:
        del self, section
        waited.append(len(waited))
        return ["20260101000000000"] if len(waited) == 1 else []

    def commit(*_: object) -> None:
        with monkeypatch.context() as patched:
            knows_the_config_only(patched)
            open_table(tmp_path / "t").upsert(rows(300, 5))

    monkeypatch.setattr(catch_up.CatchUp, "_find_unsettled", unsettled)
    monkeypatch.setattr(catch_up, "_SECONDS_BETWEEN_LOOKS", 0)
    get_ready = catch_up.CatchUp.get_ready
    monkeypatch.setattr(catch_up.CatchUp, "get_ready", lambda self: (get_ready(self), waited == [0] and commit()))
    build(table, "record_index")
    assert len(waited) > 1
    assert table.lookup(["k300"]).num_rows == 1
    check(tmp_path / "t", "record_index")


def test_ctrl_c_takes_the_build_back(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(table, "record_index", interrupt)
    assert table.timeline.pending() == ()
    assert files_of(tmp_path / "t", "record_index") == []
    assert open_table(tmp_path / "t").doctor() == ()
    build(table, "record_index")
    check(tmp_path / "t", "record_index")


def test_a_build_that_was_taken_back_is_told_so_and_leaves_no_files(tmp_path: Path) -> None:
    """Its process was only paused: what it stores now must not count as a shard of the next build."""
    table = table_without(tmp_path / "t", "record_index", "mor")

    def take_back() -> None:
        die(tmp_path / "t")
        assert open_table(tmp_path / "t").services.rollback_failed_writes()

    with pytest.raises(RolledBackError, match="presumed the build of record_index dead"):
        build(table, "record_index", take_back)
    assert files_of(tmp_path / "t", "record_index") == []
    assert open_table(tmp_path / "t").timeline.pending() == ()
    build(table, "record_index")
    check(tmp_path / "t", "record_index")


def test_a_second_indexer_is_told_who_builds(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    other = open_table(tmp_path / "t")
    told: list[LakebedError] = []

    def create() -> None:
        for work in (lambda: build(other, "record_index"), lambda: other.indexes.drop("record_index")):
            with pytest.raises(ServiceRunningError) as raised:
                work()
            told.append(raised.value)

    build(table, "record_index", create)
    assert all("record_index since" in str(error) for error in told)
    check(tmp_path / "t", "record_index")


def test_other_indexes_are_created_and_dropped_during_the_build(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    other = open_table(tmp_path / "t")

    def work() -> None:
        build(other, "bloom_filters")
        other.indexes.drop("partition_stats")
        other.upsert(rows(300, 5))

    build(table, "record_index", work)
    check(tmp_path / "t", "record_index")
    check(tmp_path / "t", "bloom_filters")


def test_the_newest_write_is_not_rolled_back_during_the_build(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    other = open_table(tmp_path / "t")

    def roll_back() -> None:
        with pytest.raises(InvalidInputError, match="record_index is being built"):
            other.rollback(other.timeline.commits()[-1].requested_at)

    build(table, "record_index", roll_back)
    check(tmp_path / "t", "record_index")


def test_a_restore_is_refused_during_the_build_and_takes_a_dead_one_back(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    other, before = open_table(tmp_path / "t"), contents(table)
    saved = other.timeline.commits()[-1].requested_at
    other.savepoint(saved)

    def restore() -> None:
        other.upsert(rows(300, 5))
        with pytest.raises(WriteConflictError, match="is in flight"):
            other.restore(saved)

    build(table, "record_index", restore)
    table.indexes.drop("record_index")
    build_and_die(tmp_path / "t", "record_index", ".hfile")
    die(tmp_path / "t")
    other.restore(saved)
    assert contents(open_table(tmp_path / "t")) == before
    assert open_table(tmp_path / "t").timeline.pending() == ()
    build(table, "record_index")
    check(tmp_path / "t", "record_index")


@pytest.mark.parametrize("where", ["heartbeat", ".rollback.inflight"])
def test_no_index_is_built_from_a_write_that_is_about_to_be_rolled_back(tmp_path: Path, where: str) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    before = contents(table)
    newest = table.upsert(rows(300, 5)).instant

    def decide(call: Call) -> Fault | None:
        return Fault.CRASH_AFTER if call.verb in WRITING and where in call.path else None

    rollbacks = context_of(table, storage=faulty(tmp_path / "t", decide)).transactions.rollbacks
    planned = context_of(table).transactions.rollbacks.schedule_completed(newest)
    with pytest.raises(Crash):
        rollbacks.execute(planned)
    if where == "heartbeat":
        with pytest.raises(WriteConflictError, match=f"{newest} is about to be rolled back"):
            build(table, "record_index")
        die(tmp_path / "t")
    build(table, "record_index")  # It is not waited for once it is not visible any more.
    die(tmp_path / "t")
    table.services.rollback_failed_writes()
    assert contents(open_table(tmp_path / "t")) == before
    check(tmp_path / "t", "record_index")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_entries_that_are_caught_up_with_stand_where_their_commits_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str
) -> None:
    """Under the instant of the build they would lie below entries of earlier commits, and lose to them for ever."""
    table = table_without(tmp_path / "t", "record_index", table_type)
    other = open_table(tmp_path / "t")

    def work() -> None:
        other.upsert(rows(25, 5, ts=4))
        with monkeypatch.context() as patched:
            knows_the_config_only(patched)
            other.overwrite(rows(0, 30, ts=5))

    build(table, "record_index", work)
    check(tmp_path / "t", "record_index")


def plan(table: Table, kind: str) -> None:
    """Plans the index and builds nothing."""
    if kind.startswith("record"):
        info = table.indexes.create("record_index", kind=kind.replace("_index", ""), shards=2, wait=False)
    else:
        info = table.indexes.create(kind, wait=False)
    assert info.state == "scheduled"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("write", WRITES)
def test_a_planned_index_has_what_was_written_since_and_any_process_builds_it(
    tmp_path: Path, table_type: str, kind: str, write: str
) -> None:
    table = table_without(tmp_path / "t", kind, table_type)
    plan(table, kind)
    assert not [*(tmp_path / "t/.hoodie/.heartbeat").glob("2*")], "nobody is at it"
    table.upsert(rows(55, 10, ts=3))
    other = open_table(tmp_path / "t")
    meanwhile = Meanwhile(lambda: WRITES[write](other))
    assert other.indexes.run(partition_of(kind), observer=meanwhile).state == "ready"
    assert meanwhile.is_done
    check(tmp_path / "t", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_service_runner_builds_what_is_planned(tmp_path: Path, kind: str) -> None:
    table = table_without(tmp_path / "t", kind, "mor")
    plan(table, kind)
    table.upsert(rows(55, 10, ts=3))
    done = open_table(tmp_path / "t").services.run()
    assert [each.service for each in done if each.service == "indexing" and not each.problem] == ["indexing"]
    check(tmp_path / "t", kind)


@pytest.mark.parametrize("how", ["create", "drop"])
def test_a_plan_that_nobody_runs_is_replaced_or_dropped(tmp_path: Path, how: str) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    plan(table, "record_index")
    table.upsert(rows(55, 10, ts=3))
    if how == "create":
        build(table, "record_index")
        check(tmp_path / "t", "record_index")
        return
    table.indexes.drop("record_index")
    assert open_table(tmp_path / "t").timeline.pending() == ()
    assert files_of(tmp_path / "t", "record_index") == []


def test_duplicates_are_handled_as_whoever_planned_the_index_asked_for(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "cow")
    table.insert(rows(0, 3, ts=9))
    plan(table, "record_index")
    with pytest.raises(InvalidInputError, match="more than once"):
        open_table(tmp_path / "t").indexes.run("record_index")
    assert open_table(tmp_path / "t").timeline.pending() == (), "what cannot be built is taken back"
    table.indexes.create("record_index", kind="record", on_duplicate="latest", wait=False)
    assert open_table(tmp_path / "t").indexes.run("record_index").state == "ready"


def test_what_cannot_be_planned_or_run_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    pending = open_table(tmp_path / "t").timeline.pending()
    with pytest.raises(InvalidInputError, match="no build of record_index is planned") as raised:
        table.indexes.run("record_index")
    assert "indexes.create" in raised.value.hint
    with pytest.raises(InvalidInputError, match="built at once"):
        table.indexes.create("files", rebuild=True, wait=False)
    with pytest.raises(InvalidInputError, match="would not be used"):
        table.indexes.create("column_stats", rebuild=True, wait=False)
    with pytest.raises(InvalidInputError, match="do not see the lock") as raised:
        indexes_on(faulty(tmp_path / "t", lambda _: None)).create("record_index", wait=False)
    assert "hoodie.write.lock.provider" in raised.value.hint
    assert open_table(tmp_path / "t").timeline.pending() == pending
    assert open_table(tmp_path / "t").doctor() == ()


def test_a_plan_that_is_run_is_not_run_twice(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    plan(table, "record_index")
    other = open_table(tmp_path / "t")

    def run() -> None:
        with pytest.raises(ServiceRunningError, match="building record_index"):
            other.indexes.run("record_index")

    table.indexes.run("record_index", observer=Meanwhile(run))
    check(tmp_path / "t", "record_index")


def test_rows_are_counted_without_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From footers, if commits do not tell: a large table has thousands."""
    table = table_without(tmp_path / "t", "record_index", "cow")
    held: list[bool] = []
    counted: list[bool] = []
    section, footer = Transactions.section, record_build.decode_parquet_footer

    @contextmanager
    def noted(self: Transactions, *arguments: object, **named: object):
        with section(self, *arguments, **named) as opened:  # type: ignore[arg-type]
            held.append(True)
            try:
                yield opened
            finally:
                held.clear()

    def read(*arguments: object, path: str) -> object:
        counted.append(bool(held))
        return footer(*arguments, path=path)  # type: ignore[arg-type]

    monkeypatch.setattr(Transactions, "section", noted)
    monkeypatch.setattr(record_build, "decode_parquet_footer", read)
    monkeypatch.setattr(CommitMetadata, "stats", property(lambda self: ()))
    build(table, "record_index")
    assert counted
    assert not any(counted)


def test_what_another_engine_began_between_plan_and_build_is_waited_for(tmp_path: Path) -> None:
    table = table_without(tmp_path / "t", "record_index", "mor")
    impatient = open_table(tmp_path / "t", options={"hoodie.metadata.index.check.timeout.seconds": "0"})
    plan(impatient, "record_index")
    late = int(table.timeline.pending()[-1].requested_at) + 1
    files = [tmp_path / f"t/.hoodie/timeline/{late}.deltacommit.{state}" for state in ("requested", "inflight")]
    for file in (*files, tmp_path / f"t/.hoodie/.heartbeat/{late}"):
        file.write_bytes(b"")
    with pytest.raises(WriteConflictError, match=f"{late} of another engine was in flight"):
        impatient.indexes.run("record_index")
    assert [i.requested_at for i in table.timeline.pending()] == [str(late)]
