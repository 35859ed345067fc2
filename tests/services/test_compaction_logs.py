"""Log compaction: many log files of a slice become one that stands for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.errors import InvalidInputError, ServiceCancelledError, WriteConflictError
from lakebed.format.log.file import BlockKind, HeaderKey, decode_log_file
from lakebed.format.timeline.metadata import decode_commit, decode_compaction_plan, encode_compaction_plan
from lakebed.model.words import Action
from lakebed.read.merge import EventKind, Part, Rules, fold_logs, merge_slice
from lakebed.services.compaction.logs import execute_log_compaction, schedule_log_compaction
from lakebed.services.compaction.plan import LogCompactionOptions, parse_log_compaction_options, plan_slices
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.services.values import ServiceResult
from lakebed.transaction.conflicts import Rival, WriteKind, WriteSet, find_conflict, write_set_of
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.transactions import Transactions
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
from services.test_compaction import Between, compact

TWO = LogCompactionOptions(log_files_min=2)


def log_compact(table: lakebed.Table, options: LogCompactionOptions = TWO) -> ServiceResult:
    instant = schedule_log_compaction(context_of(table), options)
    assert instant is not None
    return execute_log_compaction(context_of(table), instant)


def come_back(table: lakebed.Table, *pairs: tuple[int, int]) -> None:
    """Upserts deleted keys where their base rows are: by the record index they would be new, and go elsewhere."""
    lakebed.open_table(url_of(table), options={"hoodie.index.type": "SIMPLE"}).upsert(rows(*pairs))


def a_history(table: lakebed.Table) -> dict[str, int]:
    table.upsert(rows(*((n, 1) for n in range(0, 12, 2))))
    table.upsert(rows((0, 2), (2, 2), (12, 2)))
    table.upsert(rows((2, 1), (4, 3)))
    table.delete(["k6", "k8", "k0"])
    come_back(table, (8, 1), (0, 1))  # Once deleted they come back, whatever their times.
    expected = {"k0": 1, "k2": 2, "k4": 3, "k8": 1, "k10": 1, "k12": 2}
    assert values(table) == expected
    return expected


def blocks_of(table: lakebed.Table, instant: str) -> list[Any]:
    (path,) = (
        Path(url_of(table), each.path(log.name))
        for each in table.files()
        for log in each.logs
        if log.instant == instant
    )
    return list(decode_log_file(path.read_bytes(), path=str(path)))


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
def test_rows_are_the_same_and_one_file_is_read(tmp_path: Path, log_format: str) -> None:
    table = new_table(tmp_path, options={"hoodie.logfile.data.block.format": log_format})
    expected = a_history(table)
    before = all_rows(table)
    (file_slice,) = table.files()
    replaced = [log.instant for log in file_slice.logs]

    result = log_compact(table)

    assert all_rows(table) == before
    assert values(table) == expected
    (after,) = table.files()
    assert (after.base, len(after.logs)) == (file_slice.base, len(replaced) + 1)
    blocks = blocks_of(table, result.instant)
    assert [block.kind is BlockKind.DELETE for block in blocks] == [True, False]
    for block in blocks:
        assert block.header[HeaderKey.INSTANT_TIME] == result.instant
        assert block.header[HeaderKey.COMPACTED_BLOCK_TIMES].split(",") == sorted(replaced, reverse=True)
        assert HeaderKey.RECORD_POSITIONS not in block.header
    check_table(table)


def test_what_the_timeline_says(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    (file_slice,) = table.files()
    result = log_compact(table)
    timeline = Path(url_of(table), ".hoodie/timeline")
    plan = decode_compaction_plan((timeline / f"{result.instant}.logcompaction.requested").read_bytes(), path="")
    assert plan.strategy["compactorClassName"].endswith("LogCompactionExecutionHelper")
    assert plan.preserve_meta_columns
    assert plan.operations[0].log_files == tuple(log.name for log in file_slice.logs)
    said = decode_commit((timeline / f"{result.instant}_{result.completed_at}.deltacommit").read_bytes(), path="")
    assert (said.operation, said.compacted) == ("LOG_COMPACT", True)
    (stat,) = said.stats
    assert (stat.prev_commit, stat.num_writes, stat.num_deletes) == (file_slice.base_instant, 5, 3)
    assert stat.log_files == (stat.path.rpartition("/")[2],)
    assert stat.extra["totalLogFilesCompacted"] == 4


def test_what_is_written_later_goes_on_top_and_all_is_compacted_again(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    first = log_compact(table)
    assert schedule_log_compaction(context_of(table), TWO) is None, "one file is left to read"
    table.upsert(rows((0, 30), (2, 30)))
    table.delete(["k4"])
    expected = {**{k: v for k, v in expected.items() if k != "k4"}, "k0": 30, "k2": 30}
    assert values(table) == expected
    assert schedule_log_compaction(context_of(table), LogCompactionOptions(log_files_min=4)) is None
    second = log_compact(table, LogCompactionOptions(log_files_min=3))
    assert values(table) == expected
    (block, *_) = blocks_of(table, second.instant)
    replaced = block.header[HeaderKey.COMPACTED_BLOCK_TIMES].split(",")
    assert (len(replaced), replaced[-1]) == (3, first.instant)
    check_table(table)
    compact(table)
    assert (values(table), logs_of(table)) == (expected, [0])
    check_table(table)


def test_a_write_that_ends_while_tasks_run_is_not_lost(tmp_path: Path) -> None:
    table = new_table(tmp_path, ordering=None)
    table.upsert(rows((0, 1), (2, 1), (4, 1)))
    table.upsert(rows((0, 2)))
    table.upsert(rows((2, 2)))
    instant = schedule_log_compaction(context_of(table), TWO)
    assert instant is not None
    context = context_of(table, engine=Between(lambda: table.upsert(rows((0, 3)))))
    execute_log_compaction(context, instant)
    assert values(table) == {"k0": 3, "k2": 2, "k4": 1}
    check_table(table)


def test_no_plan_for_file_groups_that_a_write_under_way_may_append_to(tmp_path: Path, monkeypatch: Any) -> None:
    table = new_table(tmp_path)
    a_history(table)
    table.upsert(rows((1, 1), (3, 1)))
    table.upsert(rows((1, 2)))
    table.upsert(rows((1, 3)))
    planned: list[Any] = []
    before_commit(monkeypatch, lambda: planned.append(schedule_log_compaction(context_of(table), TWO)))
    table.upsert(rows((1, 4)))
    plan = Path(url_of(table), ".hoodie/timeline", f"{planned[0]}.logcompaction.requested").read_bytes()
    assert [each.partition for each in decode_compaction_plan(plan, path="").operations] == ["oslo"]
    before = all_rows(table)
    execute_log_compaction(context_of(table), planned[0])
    assert all_rows(table) == before
    attempt = context_of(table).transactions.begin(Action.DELTA_COMMIT)
    assert schedule_log_compaction(context_of(table), TWO) is None, "nobody knows what it is about to write"
    context_of(table).transactions.abandon(attempt)
    check_table(table)


def test_a_base_file_made_of_the_same_logs_excludes_it(tmp_path: Path) -> None:
    """What was merged before a base file was written must not lie on top of it."""
    table = new_table(tmp_path)
    a_history(table)
    result = log_compact(table)
    state = context_of(table).handle.state()
    (done,) = (i for i in state.timeline.commits() if i.requested_at == result.instant)
    rival = Rival(done, write_set_of(done, state.documents.commit(done)))
    group = frozenset(each.group for each in table.files())
    assert find_conflict(WriteSet(WriteKind.UPSERT, rewritten=group), [rival]) is not None
    assert find_conflict(WriteSet(WriteKind.UPSERT, appended=group), [rival]) is None


def test_partial_updates_are_kept_apart(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (2, 1), (4, 1)))
    table.upsert(pa.table({"id": ["k0"], "city": ["oslo"], "ts": [5]}), partial=True)
    table.upsert(rows((2, 6)))
    table.delete(["k4"])
    table.upsert(pa.table({"id": ["k2"], "city": ["oslo"], "ts": [7], "fare": [0.5]}), partial=True)
    before = all_rows(table, kept=False)
    assert before == [row(0, 5, 1.0), row(2, 7, 0.5)]
    log_compact(table)
    assert all_rows(table, kept=False) == before
    table.upsert(pa.table({"id": ["k0"], "city": ["oslo"], "ts": [8]}), partial=True)
    log_compact(table)
    assert all_rows(table, kept=False) == [row(0, 8, 1.0), row(2, 7, 0.5)]
    check_table(table)
    compact(table)
    assert all_rows(table, kept=False) == [row(0, 8, 1.0), row(2, 7, 0.5)]


def test_soft_deletes_stay_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows((0, 1), (2, 1)).append_column("_hoodie_is_deleted", pa.array([False, False])))
    table.upsert(rows((0, 5)).append_column("_hoodie_is_deleted", pa.array([True])))
    table.upsert(rows((2, 2)).append_column("_hoodie_is_deleted", pa.array([False])))
    log_compact(table)
    assert values(table) == {"k2": 2}
    come_back(table, (0, 3))
    assert values(table) == {"k2": 2}, "the delete is newer by its time"
    compact(table)
    assert values(table) == {"k2": 2}


def test_removable_plans_are_cancelled_and_taken_away(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    options = LogCompactionOptions(log_files_min=2, removable=True)
    instant = schedule_log_compaction(context_of(table), options)
    assert instant is not None

    def cancel() -> None:
        context_of(table).transactions.executions.cancel(instant)

    with pytest.raises(ServiceCancelledError):
        execute_log_compaction(context_of(table, engine=Between(cancel)), instant)
    with pytest.raises(ServiceCancelledError):
        execute_log_compaction(context_of(table), instant)
    assert values(table) == expected
    table.upsert(rows((2, 40)))
    assert not table.timeline.pending(), "the next write takes it away"
    assert not list(Path(url_of(table)).rglob(f"*_{instant}.log*"))
    log_compact(table, options)
    assert values(table) == {**expected, "k2": 40}
    check_table(table)


def test_a_task_notices_that_its_plan_was_cancelled(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    instant = schedule_log_compaction(context_of(table), LogCompactionOptions(log_files_min=2, removable=True))
    assert instant is not None

    class CancelsFirst(Between):
        def map(self, tasks: Any, run: Any) -> list[Any]:
            context_of(table).transactions.executions.cancel(instant)
            return super().map(tasks, run)

    with pytest.raises(ServiceCancelledError):
        execute_log_compaction(context_of(table, engine=CancelsFirst(lambda: None)), instant)
    assert not list(Path(url_of(table)).rglob(f"*_{instant}.log*"))


def test_a_plan_that_cannot_be_removed_is_executed_after_a_crash(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_log_compaction(context_of(table), TWO)
    assert instant is not None
    context_of(table).transactions.executions.begin(instant)
    die(table, instant)
    storage = context_of(table)
    assert Transactions(storage.transactions._ports, Timing(service_delay_seconds=0)).rollbacks.run() == ()
    execute_log_compaction(context_of(table), instant)
    assert values(table) == expected
    check_table(table)


def test_file_groups_that_are_compacted_meanwhile_are_left_out(tmp_path: Path) -> None:
    """Apache Hudi plans compactions of file groups that a log compaction is planned for."""
    table = new_table(tmp_path)
    expected = a_history(table)
    instant = schedule_log_compaction(context_of(table), TWO)
    assert instant is not None
    context = context_of(table)
    state = context.handle.state()
    compaction = context.transactions.executions.schedule(
        Action.COMPACTION, lambda _, at: encode_compaction_plan(plan_slices(state, state.latest_slices, at))
    )
    assert compaction is not None
    with pytest.raises(WriteConflictError):
        execute_compaction(context_of(table), compaction)
    result = execute_log_compaction(context_of(table), instant)
    assert (result.counts["file_groups"], result.counts["skipped"]) == (0, 1)
    execute_compaction(context_of(table), compaction)
    assert (values(table), logs_of(table)) == (expected, [0])
    assert not table.timeline.pending()
    check_table(table)


def test_compactions_and_log_compactions_leave_each_other_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    a_history(table)
    instant = schedule_log_compaction(context_of(table), TWO)
    assert instant is not None
    assert schedule_compaction(context_of(table)) is None
    with pytest.raises(InvalidInputError, match="logcompaction"):
        execute_compaction(context_of(table), instant)
    execute_log_compaction(context_of(table), instant)
    assert schedule_compaction(context_of(table)) is not None
    assert schedule_log_compaction(context_of(table), TWO) is None


def test_options_by_the_names_of_apache_hudi() -> None:
    given = {"hoodie.log.compaction.blocks.threshold": "7"}
    assert parse_log_compaction_options(given) == LogCompactionOptions(log_files_min=7)
    assert parse_log_compaction_options({}, removable=True) == LogCompactionOptions(removable=True)


EVENTS = st.tuples(st.integers(0, 3), st.sampled_from(list(EventKind)), st.integers(0, 3))


@settings(max_examples=300)
@given(
    base=st.dictionaries(st.integers(0, 3), st.integers(0, 3)),
    blocks=st.lists(st.lists(EVENTS, min_size=1, max_size=4), min_size=1, max_size=5),
    rules=st.sampled_from([Rules.COMMIT_TIME, Rules.EVENT_TIME]),
)
def test_what_logs_come_to_does_the_same_to_any_base_file(
    base: dict[int, int], blocks: list[list[tuple[int, EventKind, int]]], rules: Rules
) -> None:
    number = iter(range(1000))
    stored = _part([(key, EventKind.RECORD, order) for key, order in base.items()], number, rules)
    logs = [part for block in blocks for part in _parts(block, number, rules)]
    folded = fold_logs(logs, rules, ROWS)
    orders = tuple(folded.ordering)
    again = [
        Part(folded.always, _kinds(folded.always, EventKind.DELETE_ALWAYS), _nulls(len(folded.always), rules), None),
        Part(
            folded.rows["key"].combine_chunks(),
            _kinds(folded.rows, EventKind.RECORD),
            _orders(folded.rows, rules),
            folded.rows,
        ),
        Part(folded.deletes, _kinds(folded.deletes, EventKind.DELETE), orders, None),
    ]
    expected = merge_slice(stored, logs, rules, ROWS).sort_by("key")
    assert merge_slice(stored, again, rules, ROWS).sort_by("key").to_pylist() == expected.to_pylist()


ROWS = pa.schema([("key", pa.string()), ("order", pa.int64()), ("number", pa.int64())])


def _parts(block: list[tuple[int, EventKind, int]], number: Any, rules: Rules) -> list[Part]:
    """A data block and delete blocks, in the order of writing."""
    return [_part([event], number, rules) for event in block]


def _part(events: list[tuple[int, EventKind, int]], number: Any, rules: Rules) -> Part:
    keys = pa.array([f"k{key}" for key, _, _ in events], pa.string())
    kinds = np.array([kind for _, kind, _ in events], np.int8)
    order = pa.array([None if kind is EventKind.DELETE_ALWAYS else order for _, kind, order in events], pa.int64())
    ordering = () if rules is Rules.COMMIT_TIME else (order,)
    if all(kind is EventKind.RECORD for _, kind, _ in events):
        table = pa.table([keys, order, pa.array([next(number) for _ in events], pa.int64())], schema=ROWS)
        return Part(keys, kinds, ordering, table)
    return Part(keys, kinds, ordering, None)


def _kinds(values: Any, kind: EventKind) -> Any:
    return np.full(len(values), kind, np.int8)


def _nulls(count: int, rules: Rules) -> tuple[pa.Array, ...]:
    return () if rules is Rules.COMMIT_TIME else (pa.nulls(count, pa.int64()),)


def _orders(table: pa.Table, rules: Rules) -> tuple[pa.Array, ...]:
    return () if rules is Rules.COMMIT_TIME else (table["order"].combine_chunks(),)
