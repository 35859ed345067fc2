"""Where a run of the tests writes: in memory if there is room, and nothing is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import memory_folder


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_temporary_files_go_there_and_are_removed(tmp_path: Path) -> None:
    remove = memory_folder.use(tmp_path, 0)
    folder = Path(tempfile.mkdtemp())
    assert folder.is_relative_to(tmp_path)
    child = subprocess.run(
        [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.strip() == str(folder.parent)
    remove()
    assert list(tmp_path.iterdir()) == []
    assert "TMPDIR" not in os.environ
    assert not Path(tempfile.gettempdir()).is_relative_to(tmp_path)


def test_what_a_killed_run_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    killed = tmp_path / "lakebed-tests-killed"
    killed.mkdir()
    (killed / "lock").touch()
    removals = [memory_folder.use(tmp_path, 0)]
    del os.environ["TMPDIR"]
    first = {*tmp_path.iterdir()}
    assert killed not in first
    removals.append(memory_folder.use(tmp_path, 0))
    assert first < {*tmp_path.iterdir()}
    removals[1]()
    assert {*tmp_path.iterdir()} == first
    os.environ["TMPDIR"] = str(first.pop())
    removals[0]()


@pytest.mark.parametrize("why", ["no such folder", "no room", "another one is named"])
def test_files_go_where_they_always_go(why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "another one is named":
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    memory = tmp_path / "none" if why == "no such folder" else tmp_path
    remove = memory_folder.use(memory, 1 << 60 if why == "no room" else 0)
    before = os.environ.get("TMPDIR")
    assert list(tmp_path.iterdir()) == []
    remove()
    assert os.environ.get("TMPDIR") == before
