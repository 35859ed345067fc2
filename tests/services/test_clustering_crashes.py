"""A process dies at any storage call of a clustering: another carries the plan out, and no row is lost or doubled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import ServiceCancelledError
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.storage import open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, Plan, at, no_faults, on
from lakebed.transaction.heartbeats import Timing
from services.clustering_tables import SMALL_FILES, check_sound, content, new_table, rows_of, service_context

AT_ONCE = Timing(service_delay_seconds=0)
EVERY = int(os.environ.get("LAKEBED_CRASH_EVERY", "7"))
"""Of all calls each one in so many is tried; 1 tries them all."""


def table_of(path: Path, table_type: str) -> None:
    """Two file groups in one partition, and one with an update."""
    table = new_table(path, table_type, indexes=["record", "column_stats"], partition_by=None)
    for ts in (1, 2):
        table.upsert(rows_of(range(3 * ts - 3, 3 * ts), ts))
    table.upsert(rows_of(range(1), 3))


def attempt(path: Path, plan: Plan, *, removable: bool = False) -> FaultyStorage:
    """Schedules and executes, on a storage that fails by plan."""
    storage = FaultyStorage(open_storage(path), plan)
    try:
        context = service_context(path, storage=storage)
        instant = schedule_clustering(context, order_by=["fare"], removable=removable)
        assert instant is not None
        execute_clustering(context, instant)
    except Crash:
        pass
    return storage


def die(path: Path) -> None:
    """Makes all heartbeats old: whoever they belong to is dead."""
    for file in (path / ".hoodie/.heartbeat").glob("*"):
        os.utime(file, (1, 1))


def carry_on(path: Path) -> None:
    """What the next process does: a pending plan is executed, or rolled back if it is removable."""
    service_context(path, timing=AT_ONCE).transactions.rollbacks.run()
    for instant in lakebed.open_table(path).timeline.pending():
        if instant.action is Action.CLUSTERING:
            execute_clustering(service_context(path), instant.requested_at)


def check(path: Path, before: list[dict[str, object]]) -> None:
    assert content(path) == before
    check_sound(path)
    timeline = lakebed.open_table(path).timeline
    assert not timeline.pending()
    done = [i for i in timeline.commits() if i.action is Action.REPLACE_COMMIT]
    assert len(done) <= 1
    named = {file.base.name for file in lakebed.open_table(path).files() if file.base}
    for instant in done:
        assert {file.name for file in path.glob(f"*_{instant.requested_at}.parquet")} == named, "no stray file"
    assert not list((path / ".hoodie/.cancelled").glob("*"))


@pytest.fixture(scope="module", params=["cow", "mor"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "t"
    table_of(path, str(request.param))
    return path


def copied(original: Path, folder: Path) -> Path:
    path = folder / "t"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(original, path)
    return path


@pytest.mark.parametrize("removable", [False, True])
@pytest.mark.parametrize("fault", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
def test_a_crash_at_any_call(original: Path, tmp_path: Path, fault: Fault, removable: bool) -> None:
    before = content(original)
    calls = attempt(copied(original, tmp_path), no_faults, removable=removable).trace
    assert len(calls) > 50
    first = 1 + (fault is Fault.CRASH_AFTER) + 2 * removable
    for number in range(first, len(calls) + 1, EVERY):
        path = copied(original, tmp_path)
        storage = attempt(path, at({number: fault}), removable=removable)
        assert fault in [traced.fault for traced in storage.trace]
        die(path)
        carry_on(path)
        check(path, before)


def test_an_answer_that_was_lost_at_the_commit_is_settled(original: Path, tmp_path: Path) -> None:
    before = content(original)
    for fault in (Fault.LOST_AFTER, Fault.LOST_BEFORE):
        path = copied(original, tmp_path)
        attempt(path, on("publish", fault, path=".replacecommit"))
        assert not lakebed.open_table(path).timeline.pending(), "it took place, at the first try or at the second"
        check(path, before)


def test_a_removable_plan_that_died_is_not_executed_again(original: Path, tmp_path: Path) -> None:
    path = copied(original, tmp_path)
    trace = attempt(copied(original, tmp_path / "dry"), no_faults, removable=True).trace
    begun = next(
        t.call.number for t in trace if t.call.path.endswith(".clustering.inflight") and t.call.verb == "create"
    )
    attempt(path, at({begun: Fault.CRASH_AFTER}), removable=True)
    die(path)
    (plan,) = lakebed.open_table(path).timeline.pending()
    with pytest.raises(ServiceCancelledError, match="rollback_failed_writes"):
        execute_clustering(service_context(path), plan.requested_at)


def test_a_writer_after_a_crash_has_a_sound_table(original: Path, tmp_path: Path) -> None:
    """Writers do not carry plans out: an immutable one stays, and what it wrote so far is seen by nobody."""
    trace = attempt(copied(original, tmp_path / "dry"), no_faults).trace
    files = [t.call.number for t in trace if t.call.verb == "create" and t.call.path.endswith(".parquet")]
    path = copied(original, tmp_path)
    attempt(path, at({files[-1]: Fault.CRASH_AFTER}))
    die(path)
    lakebed.open_table(path, options=SMALL_FILES).upsert(rows_of(range(20, 22), 9))
    assert len(content(path)) == 8
    (plan,) = lakebed.open_table(path).timeline.pending()
    execute_clustering(service_context(path), InstantTime(plan.requested_at))
    assert len(content(path)) == 8
    check_sound(path)
