"""Where compiled code lies, who may have put it there, and who compiles it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from implementations import using
from lakebed.kernels import cache, choice, warm

MANY_ROWS = """
import os, sys
import lakebed, pyarrow as pa
from lakebed.kernels import choice
schema = pa.schema({"id": pa.string(), "v": pa.int64()})
table = lakebed.create_table(sys.argv[1], schema=schema, key="id", ordering="v", indexes=["record"], table_type="mor")
events = []
if choice.is_ready():
    from numba.core import event
    listener = event.install_recorder("numba:compile")
    recorder = listener.__enter__()
    events = recorder.buffer
for start in (0, 4_000):
    table.upsert([{"id": f"k{n}", "v": start + n} for n in range(start, start + 8_000)])
table.delete([f"k{n}" for n in range(3_000)])
table.services.compact()
print(table.to_arrow().num_rows, table.lookup(["k5", "k5000"]).num_rows, len(events))
print("lakebed.kernels.compiled.jit" in sys.modules, sorted(m for m in sys.modules if "kernels.plain." in m) == [])
"""


def run_many_rows(folder: Path, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", MANY_ROWS, str(folder / "t")],
        env={**os.environ, choice.VARIABLE: "off", "LAKEBED_CACHE_DIR": str(folder / "keys"), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No folder can be written, not even by root: their names are those of files."""
    (tmp_path / "file").write_bytes(b"")
    for name in (cache.FOLDER_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file" / "x"))
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "file" / "x"))
    return tmp_path


@pytest.fixture
def own_folder(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder for compiled code, still empty."""
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(nowhere / "cache"))
    folder = cache.make_folder()
    assert folder is not None
    return folder


def test_a_changed_kernel_changes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = shutil.copytree(Path(cache.__file__).parent, tmp_path / "kernels")
    monkeypatch.setattr(cache, "__file__", str(kernels / "cache.py"))
    before = cache.key.__wrapped__()
    callee = kernels / "compiled" / "memory.py"
    callee.write_text(callee.read_text() + "\n")
    assert cache.key.__wrapped__() != before


def test_where_nothing_can_be_written_nothing_is_used(nowhere: Path) -> None:
    assert cache.find_ready() is None
    assert cache.make_folder() is None
    assert not warm.start_in_background()


def test_a_folder_is_ready_once_it_is_marked(own_folder: str) -> None:
    assert cache.find_ready() is None
    cache.mark_ready(own_folder)
    assert cache.find_ready() == own_folder
    cache.discard(own_folder)
    assert cache.find_ready() is None


def test_code_that_others_may_have_written_is_not_executed(own_folder: str) -> None:
    cache.mark_ready(own_folder)
    os.chmod(own_folder, 0o777)
    assert cache.find_ready() is None


def test_one_child_compiles(own_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(warm.subprocess, "Popen", lambda *args, **_: started.append(args))
    assert warm.start_in_background()
    with warm.compile_lock(own_folder, wait=False) as is_ours:
        assert is_ours
        assert not warm.start_in_background()
        with warm.compile_lock(own_folder, wait=False) as is_other:
            assert not is_other
    assert not warm.start_in_background(), "a compilation that failed is not tried again at once"
    assert len(started) == 1


@pytest.mark.parametrize(("wish", "starts"), [("background", 1), ("off", 0), ("plain", 0)])
def test_who_starts_a_compiler(own_folder: str, monkeypatch: pytest.MonkeyPatch, wish: str, starts: int) -> None:
    started: list[object] = []
    monkeypatch.setattr(warm, "start_in_background", lambda: started.append(1))
    monkeypatch.setenv(choice.VARIABLE, wish)
    monkeypatch.setattr(choice, "_PROCESS", type(choice._PROCESS)())
    assert choice.choose("ordering", 10).__name__ == "lakebed.kernels.plain.ordering"
    assert started == [], "small calls look for nothing"
    for _ in range(2):
        assert choice.choose("ordering", 1_000_000).__name__ == "lakebed.kernels.plain.ordering"
    assert len(started) == starts


def ready_folder() -> str:
    """The folder of this host's compiled code, compiled now if it does not lie ready."""
    with using("compiled"):
        folder = cache.find_ready()
    assert folder is not None
    return folder


def test_nothing_is_compiled_where_code_lies_ready(tmp_path: Path) -> None:
    folder = ready_folder()
    root = str(Path(folder).parents[1])
    assert run_many_rows(tmp_path, **{cache.FOLDER_VARIABLE: root})[:4] == ["9000", "1", "0", "True"]


def test_damaged_code_is_left_to_plain_code(tmp_path: Path) -> None:
    folder = ready_folder()
    copy = tmp_path / "cache" / "lakebed-kernels" / Path(folder).name
    shutil.copytree(folder, copy)
    for file in copy.glob("*.nbc"):
        file.write_bytes(file.read_bytes()[:40])
    os.chmod(copy, 0o700)
    assert run_many_rows(tmp_path, **{cache.FOLDER_VARIABLE: str(tmp_path / "cache")})[:3] == ["9000", "1", "0"]
    assert not (copy / "ready").exists()
