"""A package and a home that cannot be written cost time, nothing else."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lakebed
from lakebed.format import compiled as module
from lakebed.format.compiled import compiled

_WRITE_AND_LOOK_UP = """
import logging, sys
import lakebed
import pyarrow as pa
logging.basicConfig()
schema = pa.schema({"id": pa.string(), "v": pa.int64()})
table = lakebed.create_table(sys.argv[1], schema=schema, key="id", indexes=["record"])
table.upsert([{"id": f"k{n}", "v": n} for n in range(10_000)])
table.upsert([{"id": f"k{n}", "v": -n} for n in range(5_000, 15_000)])
rows = table.lookup(["k1", "k7000", "nobody"])
print(sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist())))
print(table.to_arrow().num_rows, lakebed.__file__)
"""


def copy_that_cannot_be_written(folder: Path) -> Path:
    """The package, where no compiled code can be kept, not even by root: the name of the folder for it is taken."""
    package = shutil.copytree(
        Path(lakebed.__file__).parent, folder / "lakebed", ignore=shutil.ignore_patterns("__pycache__")
    )
    for each in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (each / "__pycache__").write_bytes(b"")
    return folder


def test_neither_the_package_nor_the_home_can_be_written(tmp_path: Path) -> None:
    source = copy_that_cannot_be_written(tmp_path / "install")
    (tmp_path / "file").write_bytes(b"")
    unset = ("NUMBA_CACHE_DIR", "LAKEBED_CACHE_DIR", "XDG_CACHE_HOME")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_AND_LOOK_UP, str(tmp_path / "table")],
        env={**env, "HOME": str(tmp_path / "file" / "home"), "PYTHONPATH": str(source)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, counts = done.stdout.splitlines()
    assert rows == "[('k1', 1), ('k7000', -7000)]"
    assert counts == f"15000 {source / 'lakebed' / '__init__.py'}"
    assert done.stderr.count("set NUMBA_CACHE_DIR") == 1
    assert done.stderr.count("record index cache") == 1


def twice(numbers: np.ndarray) -> np.ndarray:
    return numbers + numbers


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for compiled code; nobody was told yet that it cannot be kept."""
    from numba.core import config

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "_WARNED", type(module._WARNED)())
    return tmp_path


def test_a_full_disk_keeps_no_code(
    told: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from numba.core.caching import IndexDataCacheFile

    def full(self: object, path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", full)
    assert list(compiled(twice)(np.arange(3))) == [0, 2, 4]
    assert caplog.text.count("set NUMBA_CACHE_DIR") == 1


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("keep", [0, 1, 40])
def test_code_that_is_damaged_is_made_again(told: Path, pattern: str, keep: int) -> None:
    assert list(compiled(twice)(np.arange(3))) == [0, 2, 4]
    for file in told.rglob(pattern):
        file.write_bytes(file.read_bytes()[:keep])
    again = compiled(twice)
    assert list(again(np.arange(3))) == [0, 2, 4]
    assert sum(again.stats.cache_hits.values()) == 0
    third = compiled(twice)
    assert list(third(np.arange(3))) == [0, 2, 4]
    assert sum(third.stats.cache_hits.values()) == 1
