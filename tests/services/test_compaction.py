"""Compaction of merge-on-read tables: planned by one process, executed by any, invisible to readers."""

from __future__ import annotations

import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.engine.engines import InProcess
from lakebed.engine.spark import OnSpark
from lakebed.errors import CorruptTableError, InvalidInputError, ServiceRunningError, UnsupportedTableError
from lakebed.format.timeline.metadata import decode_commit, decode_compaction_plan, encode_compaction_plan
from lakebed.model.words import Action
from lakebed.services.compaction import run as compaction_run
from lakebed.services.compaction.plan import CompactionOptions, parse_compaction_options
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.services.compaction.tasks import CompactionTask
from lakebed.storage import open_storage
from lakebed.storage.faults import Call, FaultyStorage
from services.compaction_tables import (
    all_rows,
    before_commit,
    check_table,
    context_of,
    die,
    logs_of,
    new_table,
    row,
    rows,
    url_of,
    values,
)


def compact(table: lakebed.Table) -> Any:
    context = context_of(table)
    instant = schedule_compaction(context)
    assert instant is not None
    return execute_compaction(context_of(table), instant)


def a_history(table: lakebed.Table) -> dict[str, int]:
    table.upsert(rows(*((n, 1) for n in range(8))))
    table.upsert(rows((0, 2), (1, 2), (8, 2)))
    table.upsert(rows((1, 1), (2, 3)))  # The first comes too late.
    table.delete(["k3", "k4"])
    expected = {"k0": 2, "k1": 2, "k2": 3, "k5": 1, "k6": 1, "k7": 1, "k8": 2}
    assert values(table) == expected
    return expected


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
@pytest.mark.parametrize("indexes", [(), ("record", "column_stats", "bloom")])
def test_rows_are_the_same_before_and_after(tmp_path: Path, indexes: tuple[str, ...], log_format: str) -> None:
    table = new_table(tmp_path, indexes=indexes, options={"hoodie.logfile.data.block.format": log_format})
    expected = a_history(table)
    before = all_rows(table)
    assert max(logs_of(table)) > 1

    result = compact(table)

    assert logs_of(table) == [0, 0]
    assert all_rows(table) == before, "rows keep the instants and numbers of the writes that made them"
    assert values(table) == expected
    assert {each.base.instant for each in table.files() if each.base} == {result.instant}
    assert (result.service, result.counts["file_groups"], result.counts["rows"]) == ("compaction", 2, 7)
    check_table(table)
    table.upsert(rows((0, 9), (3, 9), (11, 9)))
    assert values(table) == {**expected, "k0": 9, "k3": 9, "k11": 9}
    check_table(table)


def test_file_names_in_rows_are_those_of_the_new_files(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    compact(table)
    names = {each.base.name for each in table.files() if each.base}
    assert set(table.to_arrow(columns=["_hoodie_file_name"])["_hoodie_file_name"].to_pylist()) == names


def test_a_commit_says_what_was_merged(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    before = {each.group: each for each in table.files()}
    result = compact(table)
    (done,) = (i for i in table.timeline.completed() if i.requested_at == result.instant)
    assert (done.action, done.completed_at) == (Action.COMMIT, result.completed_at)
    path = Path(url_of(table), ".hoodie/timeline", f"{result.instant}_{result.completed_at}.commit")
    said = decode_commit(path.read_bytes(), path="")
    assert (said.operation, said.compacted) == ("COMPACT", True)
    assert "fare" in (said.schema_json or "")
    (stat,) = said.write_stats["oslo"]
    (group,) = (each for each in before if each.partition == "oslo")
    assert before[group].base is not None
    assert (stat.prev_commit, stat.prev_base_file) == (before[group].base.instant, before[group].base.name)
    assert (stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) == (4, 2, 1, 1)
    assert stat.extra["totalLogFilesCompacted"] == len(before[group].logs)
    assert stat.extra["totalLogRecords"] == 4
    assert stat.extra["totalUpdatedRecordsCompacted"] == 4
    assert stat.extra["totalLogSizeCompacted"] == sum(log.size or 0 for log in before[group].logs)


def test_a_slice_without_rows_becomes_an_empty_base_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (2, 1), (1, 1)))
    table.delete(["k0", "k2"])
    compact(table)
    (oslo,) = (each for each in table.files() if each.group.partition == "oslo")
    assert oslo.base is not None
    assert pq.read_table(Path(url_of(table), oslo.path(oslo.base.name))).num_rows == 0
    assert values(table) == {"k1": 1}
    check_table(table)
    table.upsert(rows((0, 5), (4, 5)))
    assert values(table) == {"k0": 5, "k1": 1, "k4": 5}
    check_table(table)


def test_logs_that_are_appended_meanwhile_lie_on_top(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    context = context_of(table)
    instant = schedule_compaction(context)
    assert instant is not None
    table.upsert(rows((0, 10), (5, 10)))
    table.delete(["k6"])
    expected = values(table)
    assert (expected["k0"], "k6" in expected) == (10, False)

    execute_compaction(context, instant)

    assert values(table) == expected
    assert sorted(logs_of(table)) == [1, 2]
    assert all(each.base and each.base.instant == instant for each in table.files())
    check_table(table)
    compact(table)
    assert (values(table), logs_of(table)) == (expected, [0, 0])
    check_table(table)


class Between(InProcess):
    """An engine that lets something happen while tasks run."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.event = event

    def map(self, tasks: Any, run: Any) -> list[Any]:
        done = [run(pickle.loads(pickle.dumps(task))) for task in tasks]
        self.event()
        return done


def test_a_write_that_ends_while_tasks_run_is_not_lost(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    context = context_of(table, engine=Between(lambda: table.upsert(rows((0, 20), (15, 20)))))
    instant = schedule_compaction(context)
    assert instant is not None
    execute_compaction(context, instant)
    found = values(table)
    assert (found["k0"], found["k15"]) == (20, 20)
    check_table(table)


@pytest.mark.parametrize("ordering", ["ts", None])
def test_a_write_that_began_before_the_plan_and_ended_after_it_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: str | None
) -> None:
    """Its log file has a smaller time than the new base file, and yet lies on top of it."""
    table = new_table(tmp_path, ordering=ordering)
    a_history(table) if ordering else table.upsert(rows((0, 1), (1, 1)))
    table.upsert(rows((0, 8), (1, 8)))
    planned: list[Any] = []
    before_commit(monkeypatch, lambda: planned.append(schedule_compaction(context_of(table))))
    write = table.upsert(rows((0, 10), (1, 10)))
    (instant,) = planned
    assert write.instant < instant < write.completed_at
    execute_compaction(context_of(table), instant)
    assert (values(table)["k0"], values(table)["k1"]) == (10, 10)
    assert all([log.instant for log in each.logs] == [write.instant] for each in table.files())
    check_table(table)


def test_a_column_that_is_added_while_tasks_run_stays(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    wider = rows((0, 20)).append_column("tip", pa.array([1.5]))
    context = context_of(table, engine=Between(lambda: table.upsert(wider)))
    instant = schedule_compaction(context)
    assert instant is not None
    execute_compaction(context, instant)
    assert "tip" in table.schema.names
    assert {each["id"]: each["tip"] for each in table.to_arrow().to_pylist()}["k0"] == 1.5
    check_table(table)


def test_a_column_that_is_added_at_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path)
    a_history(table)
    describe = compaction_run._metadata

    def add_column(*given: Any) -> Any:
        monkeypatch.undo()
        table.upsert(rows((0, 20)).append_column("tip", pa.array([1.5])))
        return describe(*given)

    monkeypatch.setattr(compaction_run, "_metadata", add_column)
    compact(table)
    assert {each["id"]: each["tip"] for each in table.to_arrow().to_pylist()}["k0"] == 1.5
    check_table(table)


def test_plans_never_share_a_file_group(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    first = schedule_compaction(context_of(table))
    assert first is not None
    table.upsert(rows((0, 10)))
    assert schedule_compaction(context_of(table)) is None
    execute_compaction(context_of(table), first)
    second = schedule_compaction(context_of(table))
    assert second is not None
    execute_compaction(context_of(table), second)
    assert values(table)["k0"] == 10
    check_table(table)


def test_nothing_to_compact(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert schedule_compaction(context_of(table)) is None
    table.upsert(rows((0, 1), (1, 1)))
    assert schedule_compaction(context_of(table)) is None
    cow = new_table(tmp_path, table_type="cow")
    cow.upsert(rows((0, 1)))
    cow.upsert(rows((0, 2)))
    assert schedule_compaction(context_of(cow)) is None
    assert not cow.timeline.pending()


def test_planning_asks_the_metadata_table_not_folders(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    folders: list[str] = []

    def note(call: Call) -> None:
        if call.verb == "list":
            folders.append(call.path)

    storage = FaultyStorage(open_storage(url_of(table)), note)
    assert schedule_compaction(context_of(table, storage=storage)) is not None
    assert folders
    assert all(folder.startswith(".hoodie") for folder in folders)


def test_a_write_under_way_is_not_in_the_plan(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    transactions = context_of(table).transactions
    attempt = transactions.begin(Action.DELTA_COMMIT)
    (oslo,) = (each for each in table.files() if each.group.partition == "oslo")
    stray = f".{oslo.group.file_id}_{attempt.instant}.log.1_0-0-0"
    Path(url_of(table), "oslo", stray).write_bytes(b"not committed")
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    plan = Path(url_of(table), ".hoodie/timeline", f"{instant}.compaction.requested").read_bytes()
    operations = decode_compaction_plan(plan, path="").operations
    assert len(operations) == 2
    assert not any(stray in operation.log_files for operation in operations)
    transactions.abandon(attempt)


def test_a_plan_that_names_a_missing_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    before = all_rows(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    path = Path(url_of(table), ".hoodie/timeline", f"{instant}.compaction.requested")
    (log, *_) = decode_compaction_plan(path.read_bytes(), path="").operations[0].log_files
    (found,) = Path(url_of(table)).rglob(log)
    found.rename(tmp_path / "gone")
    with pytest.raises(CorruptTableError, match="missing") as caught:
        execute_compaction(context_of(table), instant)
    assert caught.value.hint
    (tmp_path / "gone").rename(found)
    assert all_rows(table) == before
    execute_compaction(context_of(table), instant)
    assert all_rows(table) == before
    check_table(table)


def test_a_plan_that_names_a_file_that_no_commit_has(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    before = all_rows(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    path = Path(url_of(table), ".hoodie/timeline", f"{instant}.compaction.requested")
    plan = decode_compaction_plan(path.read_bytes(), path="")
    (first, *others) = plan.operations
    wrong = replace(first, log_files=(*first.log_files, first.log_files[0].replace(".log.1", ".log.2")))
    path.write_bytes(encode_compaction_plan(replace(plan, operations=(wrong, *others))))
    with pytest.raises(CorruptTableError, match=r"\.log\.2") as caught:
        execute_compaction(context_of(table), instant)
    assert "restore" in (caught.value.hint or "")
    assert all_rows(table) == before
    assert not list(Path(url_of(table)).rglob(f"*_{instant}.parquet"))
    check_table(table)


@pytest.mark.parametrize("act", ["compacts", "overwrites"])
def test_a_plan_whose_slices_another_engine_has_replaced_can_be_executed(tmp_path: Path, act: str) -> None:
    """Ours never do that while a plan is there, so it is out of sight for a while. It would stay for ever otherwise."""
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    plan = Path(url_of(table), ".hoodie/timeline", f"{instant}.compaction.requested")
    plan.rename(tmp_path / "plan")
    if act == "compacts":
        compact(table)
    else:
        table.overwrite(rows((0, 70)))
        expected = {key: ts for key, ts in expected.items() if int(key[1:]) % 2} | {"k0": 70}
    table.upsert(rows((0, 80)))
    (tmp_path / "plan").rename(plan)

    result = execute_compaction(context_of(table), instant)

    assert result.counts["skipped"] == (2 if act == "compacts" else 1)
    assert values(table) == {**expected, "k0": 80}
    assert not table.timeline.pending()
    check_table(table)


def test_a_write_that_is_rolled_back_after_it_was_planned(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    last = table.upsert(rows((0, 50), (1, 50)))
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    table.rollback(last.instant)
    assert values(table) == expected
    execute_compaction(context_of(table), instant)
    assert (values(table), logs_of(table)) == (expected, [0, 0])
    check_table(table)


@pytest.mark.spark
def test_on_spark(tmp_path: Path, spark: Any) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    execute_compaction(context_of(table, engine=OnSpark(spark)), instant)
    assert (values(table), logs_of(table)) == (expected, [0, 0])
    check_table(table)


def test_what_cannot_be_executed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    with pytest.raises(InvalidInputError, match="no plan"):
        execute_compaction(context_of(table), table.timeline.completed()[0].requested_at[:-1] + "x")  # type: ignore[arg-type]
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    execute_compaction(context_of(table), instant)
    with pytest.raises(InvalidInputError, match="already"):
        execute_compaction(context_of(table), instant)


def test_two_executors_of_one_plan(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    refused: list[str] = []

    def second() -> None:
        with pytest.raises(ServiceRunningError) as caught:
            execute_compaction(context_of(table), instant)
        refused.append(str(caught.value))

    execute_compaction(context_of(table, engine=Between(second)), instant)
    assert len(refused) == 1
    assert values(table) == expected
    check_table(table)


def test_an_executor_that_was_taken_for_dead_has_no_effect(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None

    def overtake() -> None:
        die(table, instant)
        execute_compaction(context_of(table), instant)

    with pytest.raises(lakebed.errors.LakebedError):
        execute_compaction(context_of(table, engine=Between(overtake)), instant)
    assert values(table) == expected
    assert not table.timeline.pending()
    on_disk = {path.name for path in Path(url_of(table)).rglob(f"*_{instant}.parquet")}
    assert on_disk == {each.base.name for each in table.files() if each.base}
    check_table(table)


def test_one_that_wakes_up_does_not_touch_the_files_of_the_next(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None
    wrote, woke = threading.Event(), threading.Event()

    def pause() -> None:
        wrote.set()
        assert woke.wait(60)

    with ThreadPoolExecutor(1) as pool:
        others: list[Any] = []

        def overtake() -> None:
            die(table, instant)
            others.append(pool.submit(execute_compaction, context_of(table, engine=Between(pause)), instant))
            assert wrote.wait(60)

        with pytest.raises(lakebed.errors.LakebedError):
            execute_compaction(context_of(table, engine=Between(overtake)), instant)
        woke.set()
        assert others[0].result().counts["file_groups"] == 2
    assert (values(table), logs_of(table)) == (expected, [0, 0])
    check_table(table)


def test_files_of_tasks_that_ran_twice_are_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)

    class Twice(InProcess):
        def map(self, tasks: Any, run: Any) -> list[Any]:
            super().map(tasks, run)
            return super().map(tasks, run)

    instant = schedule_compaction(context_of(table))
    assert instant is not None
    execute_compaction(context_of(table, engine=Twice()), instant)
    on_disk = {path.name for path in Path(url_of(table)).rglob(f"*_{instant}.parquet")}
    assert on_disk == {each.base.name for each in table.files() if each.base}


def test_a_failed_task_leaves_the_plan_to_the_next(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    before = a_history(table)
    instant = schedule_compaction(context_of(table))
    assert instant is not None

    def fail() -> None:
        raise OSError("out of memory")

    with pytest.raises(OSError, match="memory"):
        execute_compaction(context_of(table, engine=Between(fail)), instant)
    assert values(table) == before
    execute_compaction(context_of(table), instant)
    assert values(table) == before
    on_disk = {path.name for path in Path(url_of(table)).rglob(f"*_{instant}.parquet")}
    assert on_disk == {each.base.name for each in table.files() if each.base}
    check_table(table)


def test_tasks_travel(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    seen: list[CompactionTask] = []

    class Keeps:
        def map(self, tasks: Any, run: Any) -> list[Any]:
            seen.extend(tasks)
            return [run(pickle.loads(pickle.dumps(task))) for task in tasks]

    instant = schedule_compaction(context_of(table))
    assert instant is not None
    execute_compaction(context_of(table, engine=Keeps()), instant)
    assert all(isinstance(task, CompactionTask) for task in seen)
    assert len(seen) == 2


def test_partial_updates_are_completed(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (2, 1)))
    table.upsert(pa.table({"id": ["k0"], "city": ["oslo"], "ts": [5]}), partial=True)
    before = all_rows(table, kept=False)
    assert before[0] == row(0, 5, 1.0)
    compact(table)
    assert (all_rows(table, kept=False), logs_of(table)) == (before, [0])
    check_table(table)


def test_commit_time_tables(tmp_path: Path) -> None:
    table = new_table(tmp_path, ordering=None)
    table.upsert(rows((0, 9), (1, 9), (2, 9)))
    table.upsert(rows((0, 1), (4, 1)))
    table.delete(["k2"])
    table.upsert(rows((2, 0)))
    expected = {"k0": 1, "k1": 9, "k2": 0, "k4": 1}
    assert values(table) == expected
    compact(table)
    assert values(table) == expected
    check_table(table)


def test_a_table_that_we_cannot_write_is_refused(unpack: Any) -> None:
    table = lakebed.open_table(unpack("hudi111_mor_part_cdc").path)
    with pytest.raises(UnsupportedTableError):
        schedule_compaction(context_of(table))


def logs_by_city(table: lakebed.Table) -> dict[str, int]:
    return {each.group.partition: len(each.logs) for each in table.files()}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (CompactionOptions(), {"oslo": 0, "lima": 0}),
        (CompactionOptions(strategy="log_size", log_bytes_min=1 << 30), {"oslo": 3, "lima": 1}),
        (CompactionOptions(strategy="log_count", log_files_min=2), {"oslo": 0, "lima": 1}),
        (CompactionOptions(strategy="log_count", target_io_mib=0), {"oslo": 0, "lima": 1}),
        (CompactionOptions(strategy="bounded_io", target_io_mib=0), {"oslo": 3, "lima": 0}),
        (CompactionOptions(strategy="unbounded", target_io_mib=0, log_files_min=9), {"oslo": 0, "lima": 0}),
    ],
)
def test_strategies(tmp_path: Path, options: CompactionOptions, left: dict[str, int]) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (1, 1)))
    for ts in (2, 3):
        table.upsert(rows((0, ts)))
    table.upsert(rows((0, 4), (1, 4)))
    instant = schedule_compaction(context_of(table), options)
    if instant is not None:
        execute_compaction(context_of(table), instant)
    assert logs_by_city(table) == left
    assert values(table) == {"k0": 4, "k1": 4}


def test_when_a_compaction_is_due(tmp_path: Path) -> None:
    table = new_table(tmp_path)

    def due(**given: Any) -> bool:
        context = context_of(table)
        instant = schedule_compaction(context, CompactionOptions(**given), only_if_due=True)
        if instant is not None:
            execute_compaction(context, instant)
        return instant is not None

    table.upsert(rows((0, 1), (1, 1)))
    for ts in range(2, 5):
        table.upsert(rows((0, ts)))
    assert not due()
    assert not due(trigger="time_elapsed")
    assert not due(trigger="num_and_time", delta_commits=1)
    assert not due(trigger="num_or_time")
    table.upsert(rows((0, 9)))
    assert due()
    assert not due(delta_commits=1), "nothing was written since"
    table.upsert(rows((0, 10)))
    assert not due()
    assert due(trigger="time_elapsed", delta_seconds=0)
    table.upsert(rows((0, 11)))
    assert due(trigger="num_and_time", delta_commits=1, delta_seconds=0)
    table.upsert(rows((0, 12), (1, 12)))
    assert due(trigger="num_or_time", delta_commits=1)


def test_delta_commits_count_from_the_last_request_if_asked(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (1, 1)))
    table.upsert(rows((0, 2)))
    assert schedule_compaction(context_of(table)) is not None
    table.upsert(rows((1, 2)))
    asked = CompactionOptions(trigger="num_commits_after_last_request", delta_commits=2)
    assert schedule_compaction(context_of(table), asked, only_if_due=True) is None
    counted = CompactionOptions(delta_commits=3)
    assert schedule_compaction(context_of(table), counted, only_if_due=True) is not None


def test_options_by_the_names_of_apache_hudi() -> None:
    given = {
        "hoodie.compact.inline.trigger.strategy": "NUM_OR_TIME",
        "hoodie.compact.inline.max.delta.commits": "3",
        "hoodie.compact.inline.max.delta.seconds": "60",
        "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy.BoundedIOCompactionStrategy",
        "hoodie.compaction.target.io": "10",
        "hoodie.compaction.logfile.size.threshold": "7",
        "hoodie.compaction.logfile.num.threshold": "8",
        "something.else": "1",
    }
    assert parse_compaction_options(given) == CompactionOptions(
        trigger="num_or_time",
        delta_commits=3,
        delta_seconds=60,
        strategy="bounded_io",
        target_io_mib=10,
        log_bytes_min=7,
        log_files_min=8,
    )
    assert parse_compaction_options({}) == CompactionOptions()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.compact.inline.trigger.strategy", "sometimes"),
        ("hoodie.compaction.strategy", "org.example.Mine"),
        ("hoodie.compact.inline.max.delta.commits", "few"),
        ("hoodie.compaction.target.io", "-1"),
    ],
)
def test_options_that_mean_nothing(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=key.replace(".", r"\.")) as caught:
        parse_compaction_options({key: value})
    assert caught.value.hint


def test_a_table_without_a_metadata_table(tmp_path: Path) -> None:
    table = new_table(tmp_path, indexes=())
    shutil.rmtree(Path(url_of(table), ".hoodie/metadata"))
    properties = Path(url_of(table), ".hoodie/hoodie.properties")
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if "metadata.partitions" not in line))
    table = lakebed.open_table(url_of(table))
    assert not table.config.metadata_partitions
    expected = a_history(table)
    compact(table)
    assert (values(table), logs_of(table)) == (expected, [0, 0])
