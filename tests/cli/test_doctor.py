"""`lakebed doctor`: what it shows, what it writes, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakebed.cli.app import app
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
    assert document == {"table": str(path), "is_healthy": True, "findings": []}


def test_a_dry_run_is_the_default_and_ends_with_1(path: Path) -> None:
    beat = put_old(path, BEAT)
    for args in ((path,), (path, "--dry-run"), (path, "--quick")):
        shown = run(*args)
        assert shown.exit_code == 1
        assert f"leftover  {BEAT}\n  wrong   the heartbeat stopped" in shown.stdout
        assert "\n  repair  remove it" in shown.stdout
        assert shown.stderr == "1 finding, 1 of which --repair puts right\n"
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
