"""Those who write, each in a process of its own that answers one request at a time and is idle in between.

Python peers get environments under .bench, made on first use; jars come through Maven. What cannot be had is left out,
with a word about why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lakebed
from benchmarks.batches import BENCH
from benchmarks.peer import HERE, HOME, LOG, Peer
from lakebed.engine.session import find_java_home

PACKAGES = {
    "deltalake": ("deltalake==1.6.6", "pyarrow==21.0.0"),
    "paimon": ("pypaimon==2.1.0",),
    "delta": ("pyspark==4.0.1",),
}
DELTA_JARS = ("io.delta:delta-spark_2.13:4.0.0", "io.delta:delta-storage:4.0.0")
TITLES = {
    "lakebed": "lakebed",
    "deltalake": "deltalake 1.6",
    "paimon": "pypaimon 2.1",
    "hudi": "Apache Hudi 1.2",
    "delta": "Delta 4.0 on Spark",
    "base": "lakebed of the other checkout",
}


class WriterMissingError(Exception):
    """A writer that cannot be had here."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work took: seconds on the clock, and of processors, by all processes that had a part in it."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer that runs."""

    name: str
    peer: Peer
    pid: int

    @property
    def title(self) -> str:
        """What people call it."""
        return TITLES[self.name]

    def first_load(self, path: str, rows: str, table_type: str, *, record_index: bool) -> Spent:
        """Makes a table of the rows in a file."""
        return self._write("first_load", path, rows, table_type, record_index)

    def upsert(self, path: str, rows: str, table_type: str, *, record_index: bool) -> Spent:
        """Upserts the rows in a file."""
        return self._write("upsert", path, rows, table_type, record_index)

    def totals(self, path: str) -> list[int]:
        """Numbers that tell whether another table has the same rows."""
        found: list[int] = self.peer.ask("totals", path=path)["totals"]
        return found

    def _write(self, do: str, path: str, rows: str, table_type: str, record_index: bool) -> Spent:
        self.peer.ask("take", rows=rows)
        before = cpu_seconds(self.pid)
        answer = self.peer.ask(do, path=path, table_type=table_type, record_index=record_index)
        return Spent(answer["seconds"], cpu_seconds(self.pid) - before)


@contextmanager
def running_writers(names: Sequence[str], *, on_spark: bool) -> Iterator[dict[str, Writer]]:
    """Those of the named writers that can be had."""
    BENCH.mkdir(exist_ok=True)
    LOG.write_text("")
    commands = {name: _find_command(name, on_spark=on_spark) for name in names}
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, command in commands.items():
            if command is not None:
                processes[name] = _start(command)
        yield {name: Writer(name, Peer(process), process.pid) for name, process in processes.items()}
    finally:
        for process in processes.values():
            with process:  # Closes its input, at which it ends, and waits.
                pass


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and all that descend from it, those that have ended included."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # It ended meanwhile.
            continue
        parents[int(folder.name)] = int(fields[1])
        ticks[int(folder.name)] = sum(map(int, fields[11:15]))
    family, size = {pid}, 0
    while len(family) > size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(ticks.get(member, 0) for member in family) / os.sysconf("SC_CLK_TCK")


def _start(command: list[str]) -> subprocess.Popen[str]:
    # lakebed comes from where this process has it, which may be another checkout than the one that is installed.
    paths = (HERE.parent, Path(lakebed.__file__).parents[1]) if command[0] == sys.executable else (HERE.parent,)
    settings = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    java = find_java_home()
    if java is not None:
        settings["JAVA_HOME"] = str(java)
    with LOG.open("a") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **settings, "PYSPARK_PYTHON": command[0]},
            cwd=BENCH,
        )


def _find_command(name: str, *, on_spark: bool) -> list[str] | None:
    try:
        return _command(name, on_spark=on_spark)
    except (WriterMissingError, subprocess.CalledProcessError) as error:
        print(f"skipped: {TITLES[name]}: {error}", flush=True)
        return None


def _command(name: str, *, on_spark: bool) -> list[str]:
    if name == "lakebed":
        return [sys.executable, "-m", "benchmarks.peer_lakebed", *(["--spark"] if on_spark else [])]
    if on_spark and find_java_home() is None:
        raise WriterMissingError("there is no Java")
    if name == "hudi":
        jars, python = sorted(HOME.glob("hudi-spark*.jar")), HOME / "venv" / "bin" / "python"
        if not jars or not python.exists():
            raise WriterMissingError("`make interop` prepares it (Java 17 and Maven needed)")
        return [str(python), "-m", "benchmarks.peer_hudi", str(jars[-1]), str(BENCH)]
    jars = [_jar(artifact) for artifact in DELTA_JARS] if name == "delta" else []
    arguments = [str(BENCH), *map(str, jars)] if name == "delta" else []
    return [str(_environment(name)), "-m", f"benchmarks.peer_{name}", *arguments]


def _environment(name: str) -> Path:
    """The interpreter of a peer's environment, made now if this is the first time."""
    folder = BENCH / f"env-{name}"
    python, stamp, wanted = folder / "bin" / "python", folder / "installed", "\n".join(PACKAGES[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {', '.join(PACKAGES[name])} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]], check=True)
        stamp.write_text(wanted)
    return python


def _jar(artifact: str) -> Path:
    """A jar, fetched now if this is the first time."""
    _, name, version = artifact.split(":")
    jar = BENCH / "jars" / f"{name}-{version}.jar"
    if not jar.exists():
        try:
            subprocess.run(["mvn", "-q", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"], check=True)
            copy = ["mvn", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}"]
            subprocess.run(copy, check=True)
        except FileNotFoundError as error:
            raise WriterMissingError("Maven (mvn) fetches its jars, and is not there") from error
    return jar
