"""The table services as users call them, in Python and on the command line."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakebed
from lakebed.cli.app import app
from lakebed.cli.services import parse_seconds
from lakebed.model.words import Action
from lakebed.services.table_services import WAITING, Done, TableServices
from observers import Recorded

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
RETAIN_FEW = {"hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}

BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    kind: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "table_type": "mor"}
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, **kind, options={**RETAIN_FEW, **BY_HAND})
    write(table, 6)
    return table


def write(table: lakebed.Table, commits: int, first: int = 0) -> None:
    for ts in range(first, first + commits):
        ids = [f"k{n}" for n in range(20)]
        table.upsert(pa.table([ids, [f"c{n % 2}" for n in range(20)], [ts] * 20], schema=SCHEMA))


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def path_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


def times(table: lakebed.Table) -> list[int]:
    return sorted({row["ts"] for row in table.to_arrow().to_pylist()})


def test_a_pass_leaves_alone_what_another_process_has_executed_meanwhile(
    table: lakebed.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    instant = table.services.schedule("compaction")
    waiting = table.timeline.pending()
    lakebed.open_table(path_of(table)).services.execute(str(instant))
    monkeypatch.setattr(TableServices, "_waiting", lambda services: waiting)
    assert [done for done in table.services.run() if done.problem or done.service == "compaction"] == []


def test_one_process_schedules_and_another_executes(table: lakebed.Table) -> None:
    instant = table.services.schedule("compaction")
    assert [i.action for i in table.timeline.pending()] == [Action.COMPACTION]
    other = lakebed.open_table(path_of(table))
    result = other.services.execute(str(instant))
    assert (result.instant, result.service) == (instant, "compaction")
    assert not table.timeline.pending()
    assert all(not file_slice.logs for file_slice in table.files())
    assert times(table) == [5]
    with pytest.raises(lakebed.InvalidInputError, match="already been executed"):
        table.services.execute(str(instant))
    with pytest.raises(lakebed.InvalidInputError, match="no plan"):
        table.services.execute("20200101000000000")


def test_nothing_to_do_is_said(table: lakebed.Table) -> None:
    assert table.services.compact() is not None
    assert table.services.compact() is None
    assert table.services.log_compact() is None
    assert table.services.rollback_failed_writes() == ()


def test_unknown_services_and_layouts_are_refused(table: lakebed.Table) -> None:
    with pytest.raises(lakebed.InvalidInputError, match="compaction, logcompaction"):
        table.services.schedule("vacuum")
    with pytest.raises(lakebed.InvalidInputError, match="zorder"):
        table.services.cluster("ts", layout="spiral")
    assert not table.timeline.pending()


def test_a_pass_does_what_is_due(table: lakebed.Table) -> None:
    done = {each.service for each in table.services.run()}
    assert "compaction" in done
    write(table, 6, first=6)
    before = len(list(Path(path_of(table)).rglob("*.log.*")))
    later = table.services.run() + table.services.run()
    assert {"compaction", "clean"} <= {each.service for each in later}
    assert not [each.problem for each in later if each.problem]
    assert len(list(Path(path_of(table)).rglob("*.log.*"))) < before
    assert times(table) == [11]


def test_running_for_ever_ends_when_told(table: lakebed.Table) -> None:
    seen: list[str] = []
    table.services.run_forever(0.01, until=lambda: bool(seen), report=lambda done: seen.append(str(done)))
    assert seen[0].startswith("compaction 20")


def test_it_ends_after_the_step_that_is_under_way(table: lakebed.Table) -> None:
    seen = Recorded()
    table.services.run_forever(60, until=lambda: "compaction" in seen.phases, observer=seen)
    assert seen.phases == ["rollback", "compaction", WAITING]
    assert all(not file_slice.logs for file_slice in table.files())


def test_a_look_that_fails_is_told(table: lakebed.Table) -> None:
    """And the next pass looks again."""
    properties = Path(path_of(table), ".hoodie/hoodie.properties")
    whole = properties.read_bytes()
    table.upsert(pa.table([["a"], ["c0"], [9]], schema=SCHEMA))
    properties.write_bytes(b"nothing")
    done = table.services.run()
    assert done
    assert all(each.outcome == "failed" for each in done)
    properties.write_bytes(whole)
    assert "compaction" in {each.service for each in table.services.run() if each.outcome == "done"}


def test_two_runners_execute_every_plan_once(table: lakebed.Table) -> None:
    path = path_of(table)
    assert table.services.schedule("logcompaction") is not None
    both = threading.Barrier(2)

    def keep(number: int) -> list[Done]:
        services = lakebed.open_table(path, options=RETAIN_FEW).services
        both.wait()
        return [*services.run(), *services.run()]

    with ThreadPoolExecutor(2) as pool:
        done = [each for found in pool.map(keep, range(2)) for each in found]
    assert not [each for each in done if each.problem]
    instants = [each.instant for each in done if each.service != "archive"]
    assert len(instants) == len(set(instants))
    assert {"logcompaction", "compaction"} <= {each.service for each in done}
    assert not table.timeline.pending()
    assert times(table) == [5]


def test_a_savepoint_is_what_a_restore_comes_back_to(table: lakebed.Table) -> None:
    kept = table.savepoint()
    write(table, 3, first=6)
    table.services.clean()
    result = table.restore(kept)
    assert result.service == "restore"
    assert times(table) == [5]
    table.delete_savepoint(kept)
    with pytest.raises(lakebed.InvalidInputError):
        table.restore(kept)


def test_the_commands(table: lakebed.Table) -> None:
    path = path_of(table)
    scheduled = json.loads(run("services", "schedule", path, "compaction", "--json").stdout)["services"][0]
    assert scheduled["state"] == "scheduled"
    executed = run("services", "execute", path, scheduled["instant"], "--json")
    assert json.loads(executed.stdout)["services"][0]["counts"]["file_groups"] == 2
    assert "nothing to do" in run("compact", path).stdout
    assert run("cluster", path, "--order-by", "ts", "--layout", "spiral").exit_code == 2
    assert run("services", "execute", path, "20200101000000000").exit_code == 1
    assert run("services", "run", path).exit_code == 0
    kept = json.loads(run("savepoint", path, "--json").stdout)["services"][0]["instant"]
    assert run("savepoint", path, "--delete").exit_code == 2
    assert "removed" in run("savepoint", path, kept, "--delete").stdout
    assert run("rollback", path).exit_code == 0
    assert run("services", "run", path, "--every", "soon").exit_code == 2


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("60s", 60), ("1.5m", 90), ("2h", 7200)])
def test_times_of_the_command_line(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
