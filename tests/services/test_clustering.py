"""Clustering: rows stay, files change; plans are executed by anyone; writers go first."""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.engine.engines import InProcess
from lakebed.engine.spark import OnSpark
from lakebed.errors import (
    InvalidInputError,
    ServiceCancelledError,
    ServiceRunningError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakebed.format.timeline.plans import decode_clustering_plan, encode_clustering_plan
from lakebed.model.commit import ClusteringPlan, CommitMetadata, WriteStat
from lakebed.model.files import FileSlice
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.clustering.plan import ClusteringSizing, Layout
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.heartbeats import Timing
from services.clustering_tables import (
    CITIES,
    SCHEMA,
    SMALL_FILES,
    check_sound,
    content,
    fill,
    new_table,
    rows_of,
    service_context,
)
from tables import copied


@pytest.fixture(params=["cow", "mor"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables with eight small files in two partitions."""
    root = tmp_path_factory.mktemp("originals")
    for table_type in ("cow", "mor"):
        fill(new_table(root / table_type, table_type))
    return {table_type: root / table_type for table_type in ("cow", "mor")}


@pytest.fixture
def path(originals: dict[str, Path], tmp_path: Path, table_type: str) -> Path:
    return copied(originals, table_type, tmp_path / "t")


def scheduled(path: Path, **asked: Any) -> InstantTime:
    instant = schedule_clustering(service_context(path), **asked)
    assert instant is not None
    return instant


def clustered(path: Path, **asked: Any) -> dict[str, int]:
    return dict(execute_clustering(service_context(path), scheduled(path, **asked)).counts)


def files_of(path: Path) -> tuple[FileSlice, ...]:
    return lakebed.open_table(path).files()


def values(path: Path, file: FileSlice, column: str) -> list[Any]:
    assert file.base is not None
    found: list[Any] = pq.read_table(path / file.path(file.base.name))[column].to_pylist()
    return found


def test_small_files_become_one_per_partition_and_rows_stay(path: Path) -> None:
    before = content(path)
    counts = clustered(path)
    assert (counts["rows"], counts["file_groups"], counts["replaced_file_groups"]) == (40, 2, 8)
    assert [(len(file.logs), file.group.partition) for file in files_of(path)] == [(0, "oslo"), (0, "rome")]
    assert content(path) == before, "down to commit times and sequence numbers"
    check_sound(path)
    assert schedule_clustering(service_context(path)) is None, "nothing is left to stitch"


def test_the_commit_is_a_replace_commit_of_a_clustering(path: Path) -> None:
    old = {(file.group.partition, file.group.file_id) for file in files_of(path)}
    instant = scheduled(path)
    execute_clustering(service_context(path), instant)
    state = service_context(path).handle.state()
    (done,) = [i for i in state.timeline.commits() if i.requested_at == instant]
    assert done.action is Action.REPLACE_COMMIT
    metadata = state.documents.commit(done)
    assert metadata.operation == "CLUSTER"
    assert {(p, file_id) for p, file_ids in metadata.replaced_file_ids.items() for file_id in file_ids} == old
    assert sum(stat.num_inserts for stat in metadata.stats) == 40
    assert all(stat.prev_commit is None for stat in metadata.stats)
    folders = (".hoodie/.heartbeat", f".hoodie/.temp/{instant}")
    assert not [listed for folder in folders for listed in state.storage.list(folder)]


def test_earlier_snapshots_are_still_there(path: Path) -> None:
    table = lakebed.open_table(path)
    last, before = table.timeline.commits()[-1].requested_at, content(path)
    clustered(path, order_by=["fare"])
    assert table.to_arrow(as_of=last).num_rows == len(before)
    since = table.changes(since=last)
    assert since.num_rows == 0, "rows are not new because they moved"


def test_rows_are_sorted_across_the_files_of_a_group(path: Path) -> None:
    size = sum(file.base.size or 0 for file in files_of(path) if file.base)
    counts = clustered(path, order_by=["fare", "zone"], sizing=ClusteringSizing(target_file_bytes=size // 7))
    assert counts["file_groups"] >= 6
    by_partition: dict[str, list[list[Any]]] = {}
    for file in files_of(path):
        rows = [*zip(values(path, file, "fare"), values(path, file, "zone"), strict=True)]
        assert rows == sorted(rows)
        by_partition.setdefault(file.group.partition, []).append(rows)
    for files in by_partition.values():
        rows = [row for file in sorted(files) for row in file]
        assert rows == sorted(rows), "no two files overlap"
        assert max(map(len, files)) - min(map(len, files)) <= 1
    check_sound(path)


def test_statistics_are_those_of_the_rows_of_each_file(path: Path) -> None:
    """Ordered by time, files have few commit times each, and their bounds are no wider."""
    clustered(path, order_by=["ts"], sizing=ClusteringSizing(target_file_bytes=1))
    assert len(files_of(path)) == 40, "a file has a row at least"
    check_sound(path)


@pytest.mark.parametrize("layout", ["linear", "z-order", "hilbert"])
def test_filters_touch_fewer_files(path: Path, layout: Layout) -> None:
    table = lakebed.open_table(path)
    where = ("fare = 37.0", "zone = 11")
    before = [table.explain(where=each).slices for each in where]
    rows = [table.to_arrow(where=each).num_rows for each in where]
    size = sum(file.base.size or 0 for file in table.files() if file.base)
    sizing = ClusteringSizing(target_file_bytes=size // 8)
    clustered(path, order_by=["fare", "zone"], layout=layout, sizing=sizing)
    after = [table.explain(where=each).slices for each in where]
    assert len(table.files()) >= 7
    assert after[0] < before[0]
    if layout != "linear":
        assert after[1] < before[1], "the second column gains too"
    assert [table.to_arrow(where=each).num_rows for each in where] == rows


def test_keys_are_found_where_they_now_lie(path: Path) -> None:
    clustered(path, order_by=["fare"])
    table = lakebed.open_table(path)
    assert sorted(table.lookup(["k3", "k20", "nobody"])["id"].to_pylist()) == ["k20", "k3"]
    table.upsert(rows_of(range(5), ts=9))
    table.delete(["k6"])
    rows = content(path)
    assert len(rows) == 39
    assert sum(row["ts"] == 9 for row in rows) == 5
    check_sound(path)


def test_a_partitioned_record_index_follows(tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "t"
    fill(new_table(path, table_type, indexes=["record_partitioned", "column_stats"]))
    before = content(path)
    clustered(path, order_by=["zone"])
    assert content(path) == before
    check_sound(path)


def test_a_table_without_partitions_or_metadata_table(tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "t"
    table = new_table(path, table_type, partition_by=None, indexes=[], options=SMALL_FILES)
    fill(table)
    before = content(path)
    counts = clustered(path, order_by=["fare"])
    assert counts["file_groups"] == 1
    assert content(path) == before
    assert schedule_clustering(service_context(path)) is None


def test_columns_that_came_later_are_null_in_older_rows(path: Path) -> None:
    table = lakebed.open_table(path, options=SMALL_FILES)
    wider = rows_of(range(50, 52)).append_column("tip", pa.array([1.5, 2.5]))
    table.upsert(wider)
    clustered(path, order_by=["tip"])
    tips = [row["tip"] for row in content(path)]
    assert Counter(tips) == {None: 40, 1.5: 1, 2.5: 1}
    assert {row["tip"] for file in files_of(path) for row in [{"tip": values(path, file, "tip")[0]}]} == {1.5, 2.5}


def test_deleted_rows_stay_deleted(path: Path) -> None:
    table = lakebed.open_table(path, options=SMALL_FILES)
    table.delete([f"k{number}" for number in range(0, 40, 2)])
    before = content(path)
    assert len(before) == 20
    clustered(path, order_by=["fare"])
    assert content(path) == before
    check_sound(path)


def test_a_group_without_rows_leaves_no_file(path: Path) -> None:
    table = lakebed.open_table(path, options=SMALL_FILES)
    table.delete([f"k{number}" for number in range(0, 40, 2)])
    counts = clustered(path, partitions=["oslo"])
    assert (counts["rows"], counts["file_groups"], counts["replaced_file_groups"]) == (0, 0, 4)
    assert {file.group.partition for file in files_of(path)} == {"rome"}
    check_sound(path)


@pytest.mark.parametrize("index", ["record", "record_partitioned"])
def test_rows_of_one_key_stay_apart(tmp_path: Path, table_type: str, index: str) -> None:
    """Plain inserts may repeat a key; clustering is not the place to decide between such rows."""
    path = tmp_path / "t"
    table = new_table(path, table_type, indexes=[index])
    for ts in (1, 2, 3):
        moved = rows_of(range(2), ts).set_column(1, "city", pa.array(["oslo", "oslo"] if ts == 3 else list(CITIES)))
        table.bulk_insert(moved)
    before = content(path)
    assert len(before) == 6
    clustered(path, order_by=["ts"], sizing=ClusteringSizing(target_file_bytes=1))
    assert content(path) == before
    assert set(table.lookup(["k0", "k1"])["id"].to_pylist()) == {"k0", "k1"}


def test_another_process_executes_a_plan(path: Path) -> None:
    instant = scheduled(path, order_by=["fare"], layout="hilbert")
    (pending,) = lakebed.open_table(path).timeline.pending()
    assert (pending.requested_at, pending.action) == (instant, Action.CLUSTERING)
    before = content(path)
    assert execute_clustering(service_context(path), instant).service == "clustering"
    assert content(path) == before
    with pytest.raises(InvalidInputError, match="already"):
        execute_clustering(service_context(path), instant)
    with pytest.raises(InvalidInputError, match="no plan"):
        execute_clustering(service_context(path), InstantTime("20200101000000000"))


def test_file_groups_of_a_plan_are_not_planned_again(path: Path) -> None:
    scheduled(path, partitions=["oslo"])
    second = scheduled(path, order_by=["fare"])
    assert {each.partition for each in load_plan(path, second).file_groups} == {"rome"}
    assert schedule_clustering(service_context(path), order_by=["fare"]) is None


def load_plan(path: Path, instant: InstantTime) -> ClusteringPlan:
    file = path / f".hoodie/timeline/{instant}.clustering.requested"
    return decode_clustering_plan(file.read_bytes(), path=file.name)


def test_what_cannot_be_ordered_by_is_refused_before_anything_is_written(path: Path) -> None:
    context = service_context(path)
    with pytest.raises(InvalidInputError, match="'fair'"):
        schedule_clustering(context, order_by=["fair"])
    with pytest.raises(InvalidInputError, match="layout"):
        schedule_clustering(context, order_by=["fare"], layout="zigzag")  # type: ignore[arg-type]
    assert not lakebed.open_table(path).timeline.pending()


def change_plan(path: Path, instant: InstantTime, **changes: Any) -> None:
    file = path / f".hoodie/timeline/{instant}.clustering.requested"
    plan = replace(load_plan(path, instant), **changes)
    file.write_bytes(encode_clustering_plan(plan, table_url=str(path)))


def test_a_strategy_that_we_do_not_know_is_left_to_apache_hudi(path: Path) -> None:
    instant = scheduled(path)
    change_plan(path, instant, strategy="org.apache.hudi.SparkConsistentBucketClusteringExecutionStrategy")
    with pytest.raises(UnsupportedTableError, match="ConsistentBucket"):
        execute_clustering(service_context(path), instant)
    assert not lakebed.open_table(path).timeline.completion_of(instant)
    assert len(files_of(path)) == 8


def test_a_plan_for_files_that_are_no_more_is_refused(path: Path) -> None:
    instant = scheduled(path)
    groups = load_plan(path, instant).groups
    other = replace(groups[0].slices[0], base_file=f"other_0-0-0_{instant}.parquet")
    change_plan(path, instant, groups=(replace(groups[0], slices=(other, *groups[0].slices[1:])), *groups[1:]))
    with pytest.raises(WriteConflictError, match="has changed since"):
        execute_clustering(service_context(path), instant)


def test_meta_columns_are_made_anew_where_a_plan_says_so(path: Path) -> None:
    instant = scheduled(path)
    change_plan(path, instant, preserve_meta_columns=False)
    before = content(path)
    execute_clustering(service_context(path), instant)
    after = content(path)
    assert {row["_hoodie_commit_time"] for row in after} == {instant}
    assert len({row["_hoodie_commit_seqno"] for row in after}) == len(after)
    assert [row["id"] for row in after] == [row["id"] for row in before]


def test_another_service_is_not_begun(path: Path) -> None:
    transactions = service_context(path).transactions
    instant = transactions.executions.schedule(Action.CLEAN, lambda *_: b"")
    assert instant is not None
    with pytest.raises(InvalidInputError, match="not a clustering"):
        execute_clustering(service_context(path), instant)
    (pending,) = lakebed.open_table(path).timeline.pending()
    assert str(pending.state) == "requested"


class Interrupted(InProcess):
    """An engine that lets something else happen before, or after, the work is done."""

    def __init__(self, before: Any = None, after: Any = None) -> None:
        super().__init__(threads=1)
        self._before, self._after = before, after

    def map(self, tasks: Any, run: Any) -> list[Any]:
        if self._before is not None:
            self._before()
        results = super().map(tasks, run)
        if self._after is not None:
            self._after()
        return results


def writer(path: Path) -> lakebed.Table:
    return lakebed.open_table(path, options=SMALL_FILES)


def test_inserts_go_on_while_files_are_clustered(path: Path) -> None:
    instant = scheduled(path, order_by=["fare"])
    engine = Interrupted(after=lambda: writer(path).upsert(rows_of(range(70, 75), ts=7)))
    execute_clustering(service_context(path, engine=engine), instant)
    assert len(content(path)) == 45
    check_sound(path)
    rows = lakebed.open_table(path).to_arrow(where="fare >= 0 and ts = 7")
    assert rows.num_rows == 5, "statistics of partitions have both"


def test_an_immutable_plan_refuses_writers_of_its_files(path: Path) -> None:
    instant = scheduled(path)
    with pytest.raises(WriteConflictError, match="clustering is planned"):
        writer(path).upsert(rows_of(range(3), ts=9))
    execute_clustering(service_context(path), instant)
    writer(path).upsert(rows_of(range(3), ts=9))
    assert sum(row["ts"] == 9 for row in content(path)) == 3
    check_sound(path)


def test_a_writer_cancels_a_removable_plan_that_is_in_its_way(path: Path) -> None:
    instant = scheduled(path, removable=True)
    writer(path).upsert(rows_of(range(3), ts=9))
    with pytest.raises(ServiceCancelledError):
        execute_clustering(service_context(path), instant)
    writer(path).upsert(rows_of(range(3), ts=10))
    assert not lakebed.open_table(path).timeline.pending(), "the next writer has taken it away"
    assert sum(row["ts"] == 10 for row in content(path)) == 3
    check_sound(path)


def test_writers_of_other_files_leave_a_removable_plan_alone(path: Path) -> None:
    instant = scheduled(path, removable=True, partitions=["oslo"])
    writer(path).upsert(rows_of(range(1, 4, 2), ts=9))
    execute_clustering(service_context(path), instant)
    check_sound(path)
    assert len(content(path)) == 40


def test_a_removable_clustering_that_is_cancelled_while_it_runs_stops(path: Path) -> None:
    before = len(content(path))
    instant = scheduled(path, removable=True)
    engine = Interrupted(before=lambda: writer(path).upsert(rows_of(range(3), ts=9)))
    with pytest.raises(ServiceCancelledError):
        execute_clustering(service_context(path, engine=engine), instant)
    assert not list(path.glob(f"*/*_{instant}.parquet")), "it stopped before it wrote"
    service_context(path).transactions.rollbacks.run()
    assert not lakebed.open_table(path).timeline.pending()
    assert len(content(path)) == before
    check_sound(path)


def test_a_removable_clustering_that_is_cancelled_at_the_end_has_no_effect(path: Path) -> None:
    instant = scheduled(path, removable=True)
    engine = Interrupted(after=lambda: writer(path).upsert(rows_of(range(3), ts=9)))
    with pytest.raises((ServiceCancelledError, WriteConflictError)):
        execute_clustering(service_context(path, engine=engine), instant)
    service_context(path, timing=Timing(service_delay_seconds=0)).transactions.rollbacks.run()
    assert not list(path.glob(f"*/*_{instant}.parquet"))
    assert not lakebed.open_table(path).timeline.pending()
    assert sum(row["ts"] == 9 for row in content(path)) == 3
    check_sound(path)


def begun_writer(path: Path, *, declared: FileSlice | None) -> Attempt:
    """A writer at work in another process, which has said which file group it changes, or has not yet."""
    transactions = service_context(path).transactions
    attempt = transactions.begin(Action.COMMIT)
    if declared is not None:
        group = declared.group
        stat = WriteStat(group.file_id, "", group.partition, prev_commit=declared.base_instant)
        transactions.declare(attempt, CommitMetadata({group.partition: (stat,)}, operation="UPSERT"))
    return attempt


def die(path: Path, attempt: Attempt) -> None:
    attempt.heartbeat.rest()
    file = path / ".hoodie/.heartbeat" / attempt.instant
    os.utime(file, (1, 1))


def test_plans_leave_out_what_a_writer_at_work_is_changing(path: Path) -> None:
    busy = files_of(path)[0]
    attempt = begun_writer(path, declared=busy)
    for removable in (False, True):
        instant = scheduled(
            path, order_by=["fare"], removable=removable, partitions=["oslo"] if removable else ["rome"]
        )
        assert busy.group not in load_plan(path, instant).file_groups
    attempt.heartbeat.stop()


def test_no_immutable_plan_while_a_writer_has_not_said_what_it_changes(path: Path) -> None:
    attempt = begun_writer(path, declared=None)
    assert schedule_clustering(service_context(path)) is None
    die(path, attempt)
    assert schedule_clustering(service_context(path)) is not None, "a dead writer is nobody to wait for"


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_removable_clustering_yields_to_a_writer_at_work(path: Path, is_declared: bool) -> None:
    instant = scheduled(path, removable=True)
    attempts: list[Attempt] = []
    declared = files_of(path)[0] if is_declared else None
    engine = Interrupted(after=lambda: attempts.append(begun_writer(path, declared=declared)))
    with pytest.raises(WriteConflictError, match="has precedence"):
        execute_clustering(service_context(path, engine=engine), instant)
    attempts[0].heartbeat.stop()
    assert lakebed.open_table(path).timeline.completion_of(instant) is None


def test_a_removable_clustering_does_not_yield_to_the_dead_or_to_writers_elsewhere(path: Path) -> None:
    instant = scheduled(path, removable=True, partitions=["oslo"])
    elsewhere = next(file for file in files_of(path) if file.group.partition == "rome")

    def others() -> None:
        die(path, begun_writer(path, declared=None))
        begun_writer(path, declared=elsewhere)

    execute_clustering(service_context(path, engine=Interrupted(after=others)), instant)
    assert lakebed.open_table(path).timeline.completion_of(instant) is not None
    assert len(content(path)) == 40


def test_an_immutable_clustering_does_not_wait(path: Path) -> None:
    """Its plan refuses such a writer anyway: if it waited for the writer, and that tried again, neither would end."""
    instant = scheduled(path)
    attempts: list[Attempt] = []
    engine = Interrupted(after=lambda: attempts.append(begun_writer(path, declared=files_of(path)[0])))
    execute_clustering(service_context(path, engine=engine), instant)
    attempts[0].heartbeat.stop()
    assert len(files_of(path)) == 2


@pytest.mark.parametrize("operation", ["INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"])
def test_overwrites_at_work_are_respected(path: Path, operation: str) -> None:
    transactions = service_context(path).transactions
    attempt = transactions.begin(Action.REPLACE_COMMIT)
    stats = {"rome": (WriteStat("new-0", "", "rome"),)} if operation != "DELETE_PARTITION" else {}
    transactions.declare(attempt, CommitMetadata(stats, operation=operation))
    instant = schedule_clustering(service_context(path))
    if operation == "INSERT_OVERWRITE":
        assert instant is not None
        assert {group.partition for group in load_plan(path, instant).file_groups} == {"oslo"}
    else:
        assert instant is None, "what it hides is not known"
    attempt.heartbeat.stop()


class Pickling(InProcess):
    """Tasks and results that travel, as to the workers of Spark."""

    def map(self, tasks: Any, run: Any) -> list[Any]:
        sent = pickle.loads(pickle.dumps((list(tasks), run)))
        received: list[Any] = pickle.loads(pickle.dumps(super().map(*sent)))
        return received


def test_tasks_travel(path: Path) -> None:
    before = content(path)
    execute_clustering(service_context(path, engine=Pickling()), scheduled(path, order_by=["fare"]))
    assert content(path) == before
    check_sound(path)


@pytest.mark.spark
def test_tasks_run_on_spark(path: Path, spark: Any) -> None:
    before, engine = content(path), OnSpark(spark)
    execute_clustering(service_context(path, engine=engine), scheduled(path, order_by=["fare"], layout="hilbert"))
    assert content(path) == before
    assert engine.jobs == 1
    check_sound(path)


def test_a_task_that_runs_twice_leaves_one_file(path: Path) -> None:
    class Twice(InProcess):
        def map(self, tasks: Any, run: Any) -> list[Any]:
            super().map(tasks, run)
            return super().map(tasks, run)

    before, instant = content(path), scheduled(path)
    execute_clustering(service_context(path, engine=Twice()), instant)
    assert content(path) == before
    named = {file.base.name for file in files_of(path) if file.base}
    assert {file.name for file in path.glob(f"*/*_{instant}.parquet")} == named
    check_sound(path)


def test_an_overwrite_and_a_clustering_of_a_partition_exclude_each_other(path: Path) -> None:
    instant = scheduled(path)
    with pytest.raises(WriteConflictError):
        writer(path).overwrite(rows_of(range(2)))
    execute_clustering(service_context(path), instant)
    instant = scheduled(path, order_by=["fare"], removable=True)
    writer(path).delete_partitions("oslo")
    with pytest.raises(ServiceCancelledError):
        execute_clustering(service_context(path), instant)
    assert {row["city"] for row in content(path)} == {"rome"}
    check_sound(path)


def test_two_executors_of_one_plan(path: Path) -> None:
    instant = scheduled(path)

    def again() -> None:
        with pytest.raises(ServiceRunningError):
            execute_clustering(service_context(path), instant)

    execute_clustering(service_context(path, engine=Interrupted(before=again)), instant)
    check_sound(path)


def test_an_attempt_that_failed_is_followed_at_once(path: Path) -> None:
    instant = scheduled(path)
    before = content(path)

    def fail() -> None:
        raise RuntimeError("a task failed")

    class Failing(InProcess):
        def map(self, tasks: Any, run: Any) -> list[Any]:
            super().map(tasks[:1], run)
            fail()
            return []

    with pytest.raises(RuntimeError, match="a task failed"):
        execute_clustering(service_context(path, engine=Failing()), instant)
    execute_clustering(service_context(path), instant)
    assert content(path) == before
    named = {file.base.name for file in files_of(path) if file.base}
    assert {file.name for file in path.glob(f"*/*_{instant}.parquet")} == named, "what was left is gone"
    check_sound(path)


def test_a_change_of_the_columns_meanwhile_is_not_taken_back(path: Path) -> None:
    instant = scheduled(path, partitions=["oslo"])
    wider = rows_of(range(81, 83, 2)).append_column("tip", pa.array([1.5]))
    engine = Interrupted(after=lambda: writer(path).upsert(wider))
    with pytest.raises(WriteConflictError, match="columns"):
        execute_clustering(service_context(path, engine=engine), instant)
    execute_clustering(service_context(path), instant)
    assert "tip" in lakebed.open_table(path).schema.names
    assert Counter(row["tip"] for row in content(path)) == {None: 40, 1.5: 1}
    check_sound(path)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.lists(st.integers(0, 15), min_size=1, max_size=6)),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 15), min_size=1, max_size=4)),
        st.tuples(st.just("overwrite"), st.lists(st.integers(0, 15), min_size=1, max_size=4)),
        st.tuples(st.just("cluster"), st.tuples(st.sampled_from(["linear", "z-order", "hilbert"]), st.booleans())),
        st.tuples(st.just("plan"), st.booleans()),
        st.tuples(st.just("execute"), st.none()),
    ),
    min_size=3,
    max_size=9,
)
Rows = dict[tuple[str, str], int]
EMPTIED_FILE = [("upsert", [1]), ("upsert", [7]), ("delete", [1])]
"""One of two files of a partition loses its only row."""


@example(steps=EMPTIED_FILE)
@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
def test_any_history_leaves_what_a_dict_has(
    tmp_path_factory: pytest.TempPathFactory, table_type: str, steps: list[tuple[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("history") / "t"
    new_table(path, table_type)
    model: Rows = {}
    for ts, step in enumerate(steps, start=1):
        play(path, step, ts, model)
        assert {(row["city"], row["id"]): row["ts"] for row in content(path)} == model
        assert len(content(path)) == len(model)
    check_sound(path)


def play(path: Path, step: tuple[str, Any], ts: int, model: Rows) -> None:
    try:
        for key in attempted(path, step, ts, model):
            model[key] = ts
    except WriteConflictError:
        assert lakebed.open_table(path).timeline.pending(), "only a plan can be in the way of a single writer"


def attempted(path: Path, step: tuple[str, Any], ts: int, model: Rows) -> Iterator[tuple[str, str]]:
    """Carries a step out; the keys that it writes."""
    table = writer(path)
    match step:
        case ("upsert", numbers):
            table.upsert(batch(numbers, ts))
            yield from ((CITIES[n % 2], f"k{n}") for n in numbers)
        case ("delete", numbers):
            table.delete([f"k{n}" for n in numbers])
            for n in numbers:
                model.pop((CITIES[n % 2], f"k{n}"), None)
        case ("overwrite", numbers):
            table.overwrite(batch(numbers, ts))
            cities = {CITIES[n % 2] for n in numbers}
            for key in [key for key in model if key[0] in cities]:
                del model[key]
            yield from ((CITIES[n % 2], f"k{n}") for n in numbers)
        case ("cluster", (layout, ordered)):
            order = {"order_by": ["fare", "zone"], "layout": layout} if ordered else {}
            instant = schedule_clustering(service_context(path), **order)
            if instant is not None:
                execute_clustering(service_context(path), instant)
        case ("plan", removable):
            schedule_clustering(service_context(path), order_by=["zone"], removable=removable)
        case ("execute", _):
            for plan in table.timeline.pending():
                execute_unless_cancelled(path, plan.requested_at)


def execute_unless_cancelled(path: Path, instant: InstantTime) -> None:
    try:
        execute_clustering(service_context(path), instant)
    except ServiceCancelledError:
        assert load_plan(path, instant).extra_metadata == {"lakebed.removable": "true"}


def batch(numbers: list[int], ts: int) -> pa.Table:
    tables = [rows_of(range(n, n + 1), ts) for n in dict.fromkeys(numbers)]
    return pa.concat_tables(tables).cast(SCHEMA)


def test_a_write_that_a_clustering_waits_for_is_not_taken_back(path: Path) -> None:
    """The plan stays until it is executed, and without what the write left it never could be."""
    newest = lakebed.open_table(path).timeline.commits()[-1].requested_at
    instant = scheduled(path)
    with pytest.raises(InvalidInputError, match=f"the clustering {instant} is planned for"):
        lakebed.open_table(path).rollback(newest)
    execute_clustering(service_context(path), instant)
    check_sound(path)


def test_what_is_about_to_be_taken_back_is_not_clustered(tmp_path: Path, table_type: str) -> None:
    path = tmp_path / "t"
    fill(new_table(path, table_type), writes=2)
    before = content(path)
    newest = lakebed.open_table(path).upsert(rows_of(range(2), ts=9)).instant
    rollbacks = service_context(path).transactions.rollbacks
    rollback = rollbacks.schedule_completed(InstantTime(newest))
    planned = scheduled(path, order_by=["fare"])
    rollbacks.execute(rollback)
    execute_clustering(service_context(path), planned)
    assert content(path) == before
    check_sound(path)


def test_files_of_a_late_attempt_do_not_count(path: Path) -> None:
    """The plan was executed again and has completed when the first attempt at it goes on."""
    clustered(path)
    for file in files_of(path):
        assert file.base is not None
        late = file.base.name.replace(file.group.file_id, f"late-{file.group.file_id}")
        shutil.copy(path / file.path(file.base.name), path / file.path(late))
    without_metadata = lakebed.open_table(path, options={"hoodie.metadata.enable": "false"})
    assert without_metadata.to_arrow().num_rows == len(content(path)) == 40
