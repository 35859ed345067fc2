"""A package, a home and a folder for temporary files that cannot be written cost time, nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import lakebed

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
print(table.to_arrow().num_rows, "numba" in sys.modules, lakebed.__file__)
"""


def copy_that_cannot_be_written(folder: Path) -> Path:
    """The package, where no compiled code can be kept, not even by root: the name of the folder for it is taken."""
    package = shutil.copytree(
        Path(lakebed.__file__).parent, folder / "lakebed", ignore=shutil.ignore_patterns("__pycache__")
    )
    for each in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (each / "__pycache__").write_bytes(b"")
    return folder


def test_nothing_can_be_written(tmp_path: Path) -> None:
    source = copy_that_cannot_be_written(tmp_path / "install")
    (tmp_path / "file").write_bytes(b"")
    unset = ("NUMBA_CACHE_DIR", "LAKEBED_CACHE_DIR", "LAKEBED_COMPILE", "XDG_CACHE_HOME")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    nowhere, temporary = str(tmp_path / "file" / "home"), tmp_path / "temporary"
    temporary.mkdir()
    nothing_ready = {"LAKEBED_COMPILE": "off", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", _WRITE_AND_LOOK_UP, str(tmp_path / "table")],
        env={**env, "HOME": nowhere, "NUMBA_CACHE_DIR": nowhere, "PYTHONPATH": str(source), **nothing_ready},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, counts = done.stdout.splitlines()
    assert rows == "[('k1', 1), ('k7000', -7000)]"
    assert counts == f"15000 False {source / 'lakebed' / '__init__.py'}"
    assert done.stderr.count("record index cache") == 1
