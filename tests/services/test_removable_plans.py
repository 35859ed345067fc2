"""Plans that make way, and cleaning behind dead writers, as users ask for them in Python and on the command line."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakebed
from lakebed.cli.app import app
from lakebed.clock import SystemClock
from lakebed.format.timeline.metadata import decode_compaction_plan
from lakebed.format.timeline.plans import decode_clustering_plan
from lakebed.model.words import Action
from lakebed.options import parse_write_options, storage_options
from lakebed.transaction.attempt import Attempt
from lakebed.transaction.plans import REMOVABLE

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
RETAIN_ONE = {"hoodie.clean.commits.retained": "1"}
BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
AT_ONCE = {"table_service_rollback_delay": "0"}
MINUTE = 60.0


@pytest.fixture(params=["cow", "mor"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> lakebed.Table:
    return new_table(tmp_path / "t", request.param)


@pytest.fixture
def mor(tmp_path: Path) -> lakebed.Table:
    return new_table(tmp_path / "t", "mor")


def new_table(path: Path, table_type: Any) -> lakebed.Table:
    options = {**RETAIN_ONE, **BY_HAND, "hoodie.parquet.small.file.limit": "0"}
    table = lakebed.create_table(path, schema=SCHEMA, key="id", ordering="ts", table_type=table_type, options=options)
    for number in range(3):
        table.insert(rows(f"f{number}-", 0))
    for ts in range(1, 7):
        table.upsert(rows("f0-", ts))
    return table


def rows(prefix: str, ts: int) -> pa.Table:
    return pa.table([[f"{prefix}{n}" for n in range(10)], [ts] * 10], schema=SCHEMA)


def path_of(table: lakebed.Table) -> Path:
    return Path(str(table).partition("'")[2].rpartition("'")[0])


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def grow_old(path: Path, seconds: float) -> None:
    """Makes a file that was just written so many seconds old."""
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))


def die_writing(table: lakebed.Table) -> str:
    """A write that was begun before others, and whose process is gone; its instant."""
    attempt = begin_write(table)
    for ts in range(7, 12):
        table.upsert(rows("f0-", ts))
    attempt.heartbeat.rest()
    grow_old(path_of(table) / attempt.heartbeat.path, 1_000)
    return attempt.instant


def begin_write(table: lakebed.Table) -> Attempt:
    action = Action.COMMIT if table.config.table_type.name == "COPY_ON_WRITE" else Action.DELTA_COMMIT
    return lakebed.open_table(path_of(table))._transactions.begin(action)


def requested_file(table: lakebed.Table, instant: str | None) -> Path:
    return next((path_of(table) / ".hoodie/timeline").glob(f"{instant}.*.requested"))


def is_removable(table: lakebed.Table, instant: str | None) -> bool:
    file = requested_file(table, instant)
    decode: Any = decode_clustering_plan if "clustering" in file.name else decode_compaction_plan
    return bool(decode(file.read_bytes(), path=file.name).extra_metadata.get(REMOVABLE) == "true")


def pending(table: lakebed.Table) -> list[Action]:
    return [i.action for i in table.timeline.pending()]


def test_a_clean_undoes_what_dead_writers_left_and_then_cleans(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow")
    dead = die_writing(table)
    result = table.services.clean()
    assert dead not in [i.requested_at for i in table.timeline.pending()]
    assert result is not None
    assert result.counts["files"] > 0


def test_the_command_clean_says_what_it_has_undone(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow")
    dead = die_writing(table)
    shown = json.loads(run("clean", path_of(table), "--option", "hoodie.clean.commits.retained=1", "--json").output)
    assert [(each["service"], each["state"]) for each in shown["services"]] == [
        ("rollback", "rolled back"),
        ("clean", "done"),
    ]
    assert shown["services"][0]["instant"] == dead


def test_a_clean_leaves_live_writers_alone(table: lakebed.Table) -> None:
    attempt = begin_write(table)
    table.services.clean()
    assert attempt.instant in [i.requested_at for i in table.timeline.pending()]
    attempt.heartbeat.stop()


def test_a_clean_that_follows_a_write_undoes_what_is_dead(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "cow")
    dead = die_writing(table)
    table.services.run_after_write(["clean"])
    assert dead not in [i.requested_at for i in table.timeline.pending()]
    assert "clean" in {i.action for i in table.timeline.completed()}


@pytest.mark.parametrize("service", ["clustering", "logcompaction"])
def test_plans_are_removable_if_asked_for(mor: lakebed.Table, service: str) -> None:
    instant = mor.services.schedule(service, removable=True)
    assert is_removable(mor, instant)
    assert mor.services.rollback_failed_writes() == ()
    mor.services.cancel(str(instant))
    assert mor.services.rollback_failed_writes() == (instant,)
    assert not is_removable(mor, mor.services.schedule(service))


@pytest.mark.parametrize(("service", "why"), [("compaction", "log files"), ("clean", "again")])
def test_other_plans_stay_and_why_is_said(mor: lakebed.Table, service: str, why: str) -> None:
    with pytest.raises(lakebed.InvalidInputError, match=why):
        mor.services.schedule(service, removable=True)
    assert not pending(mor)
    assert run("services", "schedule", path_of(mor), service, "--removable").exit_code == 1


def test_an_option_makes_all_plans_removable_that_can_be(tmp_path: Path) -> None:
    new_table(tmp_path / "t", "mor")
    table = lakebed.open_table(tmp_path / "t", options={"lakebed.services.removable": "true"})
    assert is_removable(table, table.services.schedule("logcompaction"))
    for plan in table.timeline.pending():
        table.services.execute(plan.requested_at)
    assert is_removable(table, table.services.schedule("clustering"))
    assert table.services.schedule("clean") is None
    with pytest.raises(lakebed.InvalidInputError, match=r"lakebed\.services\.removable"):
        lakebed.open_table(tmp_path / "t", options={"lakebed.services.removable": "maybe"}).services.compact()


def test_a_call_says_otherwise_than_the_option(tmp_path: Path) -> None:
    new_table(tmp_path / "t", "mor")
    table = lakebed.open_table(tmp_path / "t", options={"lakebed.services.removable": "true"})
    assert not is_removable(table, table.services.schedule("clustering", removable=False))


@pytest.mark.parametrize("service", ["clustering", "logcompaction"])
def test_the_flag_of_the_command(mor: lakebed.Table, service: str) -> None:
    assert run("services", "schedule", path_of(mor), service, "--removable").exit_code == 0
    (plan,) = mor.timeline.pending()
    assert is_removable(mor, plan.requested_at)


def test_the_command_cluster_takes_the_flag(mor: lakebed.Table) -> None:
    shown = run("cluster", path_of(mor), "--removable", "--json")
    assert shown.exit_code == 0, shown.output
    (entry,) = json.loads(shown.output)["services"]
    assert is_removable(mor, entry["instant"])


def test_the_delay_goes_by_the_clock_of_the_store(mor: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's file is written by the store: its age counts, not what machines that plan and undo take for now."""
    instant = mor.services.schedule("clustering", removable=True)
    now_ms = SystemClock().now_ms()
    ahead = lakebed.open_table(path_of(mor))
    monkeypatch.setattr("lakebed.clock.SystemClock.now_ms", lambda _: now_ms + 3_600_000)
    assert ahead.services.rollback_failed_writes() == (), "a clock that is an hour ahead makes no plan old"
    monkeypatch.undo()
    grow_old(requested_file(mor, instant), 11 * MINUTE)
    assert mor.services.rollback_failed_writes() == (instant,)


@pytest.mark.parametrize("spelling", ["table_service_rollback_delay", "hoodie.table.service.rollback.delay.minutes"])
def test_the_delay_has_the_name_of_the_rfc_and_may_be_nothing(mor: lakebed.Table, spelling: str) -> None:
    instant = mor.services.schedule("clustering", removable=True)
    assert mor.services.rollback_failed_writes() == ()
    assert lakebed.open_table(path_of(mor), options={spelling: "0"}).services.rollback_failed_writes() == (instant,)
    assert parse_write_options({spelling: "3"}).service_delay_minutes == 3
    assert storage_options({spelling: "3"}) == {}
    with pytest.raises(lakebed.InvalidInputError, match="from 0"):
        parse_write_options({spelling: "-1"})


def test_why_a_plan_counts_as_running_is_said_with_the_time_left(mor: lakebed.Table) -> None:
    instant = str(mor.services.schedule("compaction"))
    attempt = lakebed.open_table(path_of(mor))._transactions.executions.begin(mor.timeline.pending()[0].requested_at)
    attempt.heartbeat.rest()
    grow_old(path_of(mor) / attempt.heartbeat.path, 100)
    with pytest.raises(lakebed.ServiceRunningError, match=r"last heartbeat was 10\d s ago") as caught:
        mor.services.execute(instant)
    assert re.search(r"in (80|7\d) s", caught.value.hint), caught.value.hint
    attempt.heartbeat.stop()


def test_a_plan_that_another_engine_has_begun_tells_when_it_counts_as_dead(mor: lakebed.Table) -> None:
    instant = str(mor.services.schedule("compaction"))
    inflight = path_of(mor) / f".hoodie/timeline/{instant}.compaction.inflight"
    inflight.touch()
    with pytest.raises(lakebed.ServiceRunningError, match="another engine") as caught:
        mor.services.execute(instant)
    assert "10 min" in caught.value.hint
    assert "table_service_rollback_delay" in caught.value.hint


def test_a_removable_plan_of_a_dead_process_tells_when_it_goes(mor: lakebed.Table) -> None:
    instant = mor.services.schedule("clustering", removable=True)
    attempt = lakebed.open_table(path_of(mor))._transactions.executions.begin(mor.timeline.pending()[0].requested_at)
    attempt.heartbeat.rest()
    grow_old(path_of(mor) / attempt.heartbeat.path, 1_000)
    grow_old(requested_file(mor, instant), 4 * MINUTE)
    with pytest.raises(lakebed.ServiceCancelledError, match="died") as caught:
        mor.services.execute(str(instant))
    assert "in 6 min" in caught.value.hint
    assert lakebed.open_table(path_of(mor), options=AT_ONCE).services.rollback_failed_writes() == (instant,)
