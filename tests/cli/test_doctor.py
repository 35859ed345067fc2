"""`lakebed doctor`: what it shows, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakebed
from lakebed.cli.app import app
from lakebed.clock import SystemClock
from lakebed.model.words import Action
from lakebed.services.doctor.doctor import open_doctor_at
from lakebed.services.doctor.under_way import find_under_way
from lakebed.storage import open_storage
from lakebed.timeline.config import load_config
from lakebed.transaction.markers import marker_folder
from lakebed.write.handover import hand_over, new_folder
from services.worlds import made

BEAT = ".hoodie/.heartbeat/20240101000000000"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["doctor", *(str(arg) for arg in args)])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "trips"
    made(path)
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "trips"))


def put_old(path: Path, name: str) -> Path:
    file = path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"{}")
    os.utime(file, (1, 1))
    return file


def test_a_healthy_table(path: Path) -> None:
    shown = run(path)
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", f"{path} is healthy\n")
    document = json.loads(run(path, "--json").stdout)
    assert document == {"table": str(path), "is_healthy": True, "findings": [], "under_way": []}


def test_writes_under_way_are_told_with_their_last_sign_of_life(path: Path) -> None:
    """They are no findings: the table is healthy."""
    attempt = lakebed.open_table(path)._transactions.begin(Action.DELTA_COMMIT)
    attempt.heartbeat.rest()
    grow_old(path / attempt.heartbeat.path, 40)
    staged = path / marker_folder(attempt.instant) / "rows-1.arrow"
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_bytes(b"x" * 2048)
    shown = run(path)
    assert (shown.exit_code, shown.stderr) == (0, f"{path} is healthy\n")
    told = shown.stdout.splitlines()[1].split()
    assert told[:4] == [attempt.instant, "deltacommit", "requested", attempt.heartbeat.owner]
    assert "40.0 s ago" in shown.stdout or "41.0 s ago" in shown.stdout
    (entry,) = json.loads(run(path, "--json").stdout)["under_way"]
    assert (entry["place"], entry["action"], entry["owner"]) == (
        attempt.instant,
        "deltacommit",
        attempt.heartbeat.owner,
    )
    assert 40 <= entry["silent_s"] < 60
    assert 120 < entry["dead_in_s"] <= 140
    assert entry["staged_bytes"] == 2048
    grow_old(path / attempt.heartbeat.path, 1_000)
    dead = json.loads(run(path, "--json").stdout)
    assert (dead["is_healthy"], dead["under_way"]) == (False, [])
    assert "2,048 bytes" in dead["findings"][0]["problem"]


def test_without_a_configuration_the_finding_is_shown(path: Path) -> None:
    (path / ".hoodie/hoodie.properties").unlink()
    shown = run(path, "--json")
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    assert [finding["kind"] for finding in document["findings"]] == ["configuration"]
    assert document["under_way"] == []


def test_their_age_is_by_the_clock_of_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = lakebed.open_table(path)._transactions.begin(Action.DELTA_COMMIT)
    attempt.heartbeat.rest()
    config, doctor = load_config(open_storage(path)), open_doctor_at(path, {})
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr("lakebed.clock.SystemClock.now_ms", lambda _: now_ms - 3_600_000)
    (entry,) = find_under_way(doctor.ports, doctor.timing, config)
    assert entry.silent_s < 60


def test_a_plan_that_waits_is_told(tmp_path: Path) -> None:
    made(tmp_path / "mor", "mor")
    instant = lakebed.open_table(tmp_path / "mor").services.schedule("compaction")
    (entry,) = json.loads(run(tmp_path / "mor", "--json", "--quick").stdout)["under_way"]
    told = {name: entry[name] for name in ("place", "action", "state", "dead_in_s")}
    assert told == {"place": instant, "action": "compaction", "state": "requested", "dead_in_s": None}


def test_staged_rows_of_a_killed_save_are_shown_with_their_size_and_go(path: Path) -> None:
    """Alive until heartbeats would be dead, and not for a day."""
    storage, folder = open_storage(path), new_folder()
    rows = pa.table({"k": ["a", "b"]})
    file = hand_over(storage, folder, rows.schema, rows.to_batches())
    assert file is not None
    size = (path / file).stat().st_size
    (entry,) = json.loads(run(path, "--json", "--quick").stdout)["under_way"]
    assert (entry["place"], entry["action"], entry["staged_bytes"]) == (folder, "save", size)
    grow_old(path / file, 200)
    shown = run(path, "--quick")
    assert shown.exit_code == 1
    assert f"leftover  {folder}\n" in shown.stdout
    assert f"1 file, {size:,} bytes" in shown.stdout
    assert run(path, "--quick", "--repair").exit_code == 0
    assert not (path / folder).exists()


def grow_old(path: Path, seconds: float) -> None:
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))


def test_a_dry_run_is_the_default_and_ends_with_1(path: Path) -> None:
    beat = put_old(path, BEAT)
    for args in ((path,), (path, "--dry-run"), (path, "--quick")):
        shown = run(*args)
        assert shown.exit_code == 1
        assert f"leftover  {BEAT}\n  wrong   the heartbeat expired" in shown.stdout
        assert "\n  repair  remove it" in shown.stdout
        assert shown.stderr == "1 finding, 1 of which --repair fixes\n"
    assert beat.exists()


def test_a_repair_says_first_what_it_does_and_then_what_became_of_it(path: Path) -> None:
    beat = put_old(path, BEAT)
    shown = run(path, "--repair")
    assert shown.exit_code == 0, shown.stderr
    before, after = shown.stdout.split("\n\n")
    assert "\n  repair  remove it" in before
    assert after.split() == ["finding", "place", "outcome", "leftover", BEAT, "repaired"]
    assert shown.stderr == "repairing 1 finding\n1 finding, 1 repaired\n"
    assert not beat.exists()
    assert run(path).exit_code == 0


def test_what_is_left_ends_with_1(path: Path) -> None:
    put_old(path, BEAT)
    lock = put_old(path, ".hoodie/lock")
    shown = run(path, "--repair", "--json")
    assert shown.exit_code == 1
    document = json.loads(shown.stdout)
    assert document["is_healthy"] is False
    outcomes = {finding["place"]: (finding["remedy"], finding["outcome"]) for finding in document["findings"]}
    assert outcomes == {BEAT: ("roll back", "repaired"), ".hoodie/lock": ("by hand", None)}
    assert lock.exists()
    assert "by hand  remove the file if no writer runs" in run(path, "--repair", "--quick").stdout


def test_a_table_that_cannot_be_opened_is_examined_all_the_same(path: Path) -> None:
    config = path / ".hoodie/hoodie.properties"
    config.rename(f"{config}.backup")
    assert run(path, "--repair").exit_code == 0
    assert config.exists()
    assert not Path(f"{config}.backup").exists()
    config.write_bytes(b"")
    shown = run(path, "--repair")
    assert shown.exit_code == 1
    assert "hoodie.table.name is missing; it has no backup" in shown.stdout


def test_there_must_be_a_table(tmp_path: Path) -> None:
    shown = run(tmp_path)
    assert shown.exit_code == 1
    assert "is not a Hudi table" in shown.stderr
