"""Apache Hudi as `make interop` installs it, and the tables that it writes for a run.

LAKEBED_SEEDS (default 1; several with commas) and LAKEBED_TABLES (tables per seed, default 12) say which. They are
kept under .interop/tables and written again when the seed, the number or the writer changes.
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

from lakebed.engine.session import find_java_home

HERE = Path(__file__).parent
HOME = HERE.parents[1] / ".interop"
SEEDS = tuple(int(seed) for seed in os.environ.get("LAKEBED_SEEDS", "1").split(","))
TABLES = int(os.environ.get("LAKEBED_TABLES", "12"))
WRITER = HERE / "hudi_writer.py"


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


def load_table(folder: Path, seed: int, number: int) -> PeerTable:
    """One table of a folder that `write_tables` filled."""
    path = folder / f"t{number:02d}_{seed}"
    return PeerTable(path, **json.loads(path.with_suffix(".json").read_text()))


def tables_folder(seed: int) -> Path:
    """Where the tables of a seed are, or will be; another writer gets another folder."""
    scripts = (HERE / "histories.py").read_bytes() + WRITER.read_bytes()
    return HOME / "tables" / f"{seed}-{TABLES}-{hashlib.sha256(scripts).hexdigest()[:12]}"


def write_tables(folder: Path, seed: int) -> None:
    """Have Apache Hudi write the tables of a seed; its messages go to a log beside them. Raises RuntimeError."""
    jars = sorted(HOME.glob("hudi-spark*.jar"))
    python = HOME / "venv" / "bin" / "python"
    java_home = find_java_home()
    if not jars or not python.exists():
        raise RuntimeError("the Apache Hudi peers are not installed; `make interop` installs them and runs these tests")
    if java_home is None:
        raise RuntimeError("Apache Hudi needs Java 17: install it and set JAVA_HOME")
    settings = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("w") as messages:
        command = [python, WRITER, folder, str(seed), str(TABLES), jars[-1]]
        run = subprocess.run(
            command, env={**os.environ, **settings}, cwd=folder.parent, stdout=messages, stderr=messages, check=False
        )
    if run.returncode != 0:
        raise RuntimeError(f"the Apache Hudi writer failed, see {log}")
    (folder / "done").touch()
