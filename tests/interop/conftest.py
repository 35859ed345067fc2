"""Tables that Apache Hudi writes for this run, with what it reads from them.

LAKEBED_SEEDS (default 1, several with commas) and LAKEBED_TABLES (tables per seed, default 12) say which. Tables are kept
under .interop/tables and written again when the seed, the number or the writer changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.engine.jvm import find_java_home

HERE = Path(__file__).parent
PEER = HERE.parents[1] / ".interop"
SEEDS = [int(seed) for seed in os.environ.get("LAKEBED_SEEDS", "1").split(",")]
TABLES = int(os.environ.get("LAKEBED_TABLES", "12"))


@dataclass(frozen=True)
class PeerTable:
    """A table that Apache Hudi wrote, and what it did and read there."""

    path: Path
    design: dict[str, Any]
    steps: list[dict[str, Any]]
    reads: list[dict[str, Any]]

    def answered(self, kind: str) -> list[tuple[dict[str, Any], pa.Table]]:
        """The reads of a kind that Apache Hudi answered, with its rows."""
        known = [read for read in self.reads if read["kind"] == kind and "rows" in read]
        return [(read, pq.read_table(self.path.with_name(read["rows"]))) for read in known]

    def about(self) -> str:
        """What one needs to know to look into a difference."""
        traits = ", ".join(f"{key}={value}" for key, value in self.design.items() if key != "partition_values")
        return f"{self.path}\n  {traits}\n  steps: {', '.join(step['action'] for step in self.steps)}"


@pytest.fixture(scope="session")
def write_tables():
    """A function from a seed to the folder of its tables, which are written unless they are there."""

    def write(seed: int) -> Path:
        scripts = [HERE / "histories.py", HERE / "hudi_writer.py"]
        digest = hashlib.sha256(b"".join(script.read_bytes() for script in scripts)).hexdigest()[:12]
        folder = PEER / "tables" / f"{seed}-{TABLES}-{digest}"
        if not (folder / "done").exists():
            run_writer(scripts[1], folder, seed)
            (folder / "done").touch()
        return folder

    return write


@pytest.fixture(params=[(seed, number) for seed in SEEDS for number in range(TABLES)], ids=lambda p: f"seed{p[0]}-t{p[1]:02d}")
def peer_table(request: pytest.FixtureRequest, write_tables) -> PeerTable:
    """One table; each test runs on all of them."""
    seed, number = request.param
    path = write_tables(seed) / f"t{number:02d}_{seed}"
    return PeerTable(path, **json.loads(path.with_suffix(".json").read_text()))


def run_writer(script: Path, folder: Path, seed: int) -> None:
    """Have Apache Hudi write the tables of a seed; its messages go to a log beside them."""
    jars = sorted(PEER.glob("hudi-spark*.jar"))
    python = PEER / "venv" / "bin" / "python"
    if not jars or not python.exists():
        pytest.fail("the Apache Hudi peers are not installed; `make interop` installs them and runs these tests")
    home = find_java_home()
    if home is None:
        pytest.fail("Apache Hudi needs Java 17: install it and set JAVA_HOME")
    environment = {**os.environ, "JAVA_HOME": str(home), "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("w") as messages:
        command = [python, script, folder, str(seed), str(TABLES), jars[-1]]
        run = subprocess.run(command, env=environment, cwd=folder.parent, stdout=messages, stderr=messages, check=False)
    if run.returncode != 0:
        pytest.fail(f"the Apache Hudi writer failed, see {log}")
