"""A cold start beside a warm one: an empty home and no compiled code, or all of it ready; a fresh process each time.

The job is create, two upserts, read, lookup, compaction and delete, on a merge-on-read table with a record index. Its
time is that of the whole process, import included. After a warm-up, what its calls compile is counted.

With --spark: the first upsert of a session, 100,000 rows in `local[2]` and 2,500,000 on two executors of a standalone
cluster. Both tables have as many rows before, half of which are updated. The driver and each worker have homes of their
own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import lakebed
from benchmarks.append import copy_table
from benchmarks.batches import BENCH, make_batches
from benchmarks.cluster import LOOPBACK, running_cluster
from benchmarks.folders import fresh_folder
from benchmarks.memory_spark import ROWS as ROWS_SQL
from benchmarks.peer import HERE
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings

ROUNDS, SPARK_ROUNDS = 5, 3
BARS = {1_000: (2.0, 0.5), 100_000: (3.0, 1.0)}
"""Rows of an upsert, and how often the warm time, plus how many seconds, a cold start may take."""
LOCAL_ROWS, CLUSTER_ROWS, SPARK_TIMES_MAX = 100_000, 2_500_000, 1.3
_OWN = ("LAKEBED_", "NUMBA_", "XDG_")
_MARK = "BENCHMARKS_COLD"
"""A variable that names its home to each process that is started here, and to all that it starts."""
_CLUSTER_OPTIONS = {
    "spark.executor.memory": "1g",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "180s",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


@dataclass(frozen=True, slots=True)
class Run:
    """A process that has ended: its seconds on the clock and of processors, and what it said last."""

    wall: float
    cpu: float
    said: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Runs:
    """The same, done several times."""

    runs: tuple[Run, ...]

    @property
    def wall(self) -> float:
        """The middle one, by the clock."""
        return median(run.wall for run in self.runs)

    @property
    def cpu(self) -> float:
        """The middle one, in processor time; other processes on the machine disturb it less."""
        return median(run.cpu for run in self.runs)

    @property
    def peak(self) -> str:
        """The most memory that one of the processes held."""
        return f"{max(run.said['peak_bytes'] for run in self.runs) / 2**20:.0f} MiB"

    def __str__(self) -> str:
        return f"{seconds_text(self.wall)} (cpu {seconds_text(self.cpu)})"


def main(settings: Settings) -> None:
    """Prints one table, or with --spark another one."""
    with fresh_folder() as folder:
        ready = make_home(folder / "ready")
        line = warm_up(ready)
        measure = spark_lines if settings.spark else job_lines
        print_lines("cold starts, medians of processes in turn", [line, *measure(folder, ready, settings.rounds)])


def warm_up(home: Path) -> Line:
    """Compiles all there is for a home."""
    done = Runs((run_child([sys.executable, "-m", "benchmarks.cold_job", "compile"], home),))
    return Line(f"warm-up, {done.runs[0].said['compiled']} functions", str(done), "its peak", done.peak)


def job_lines(folder: Path, ready: Path, rounds: int | None) -> Iterator[Line]:
    """The job with both numbers of rows: seconds, memory, and what was compiled."""
    for rows, (times, seconds) in BARS.items():
        batches = make_batches(rows, rows)
        asked = [batches.load, batches.batch(0)]
        starts = {"cold": empty_home(folder), "warm": lambda: ready}
        runs = take_turns(starts, lambda home, asked=asked: run_job(folder, home, asked), rounds or ROUNDS)
        cold, warm = runs["cold"], runs["warm"]
        bar = Bar(f"<= {times:g}x + {seconds:g} s", cold.wall <= times * warm.wall + seconds)
        yield Line(f"{rows:,} rows, cold", str(cold), "warm", str(warm), ratio(cold, warm), bar)
        yield Line("  peak of the process", cold.peak, "warm", warm.peak)
        counted = run_job(folder, ready, [*asked, "count"]).said
        compiled, started = sum(counted["by_call"].values()), counted["processes"]
        what = f"{compiled} functions, {started} compilers started"
        yield Line("  compiled after the warm-up", what, bar=Bar("none in any call", compiled + started == 0))


def run_job(folder: Path, home: Path, asked: Sequence[str]) -> Run:
    """The job in a fresh process. A compiler that it has started ends with it, so that the next one is not slowed."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        load, batch, *count = asked
        command = [sys.executable, "-m", "benchmarks.cold_job", "rows", load, batch, f"{made}/table", *count]
        try:
            return run_child(command, home)
        finally:
            end_processes(home)


def spark_lines(folder: Path, ready: Path, rounds: int | None) -> Iterator[Line]:
    """The first upsert of a session, in one process and on two executors."""
    yield from local_lines(folder, ready, rounds or SPARK_ROUNDS)
    yield from cluster_lines(folder, ready, rounds or SPARK_ROUNDS)


def local_lines(folder: Path, ready: Path, rounds: int) -> Iterator[Line]:
    """In one process with its Python workers."""
    table = spark_table(LOCAL_ROWS, ready)
    runs = take_turns(
        {"cold": empty_home(folder), "warm": lambda: ready},
        lambda home: upsert_on_spark(folder, table, LOCAL_ROWS, home, {}),
        rounds,
    )
    yield spark_line(f"{LOCAL_ROWS:,} rows, local[2], cold", runs["cold"], runs["warm"])


def cluster_lines(folder: Path, ready: Path, rounds: int) -> Iterator[Line]:
    """On a cluster whose workers, and then the driver too, have nothing in their caches."""
    table, homes = spark_table(CLUSTER_ROWS, ready), [make_home(folder / f"worker-{number}") for number in range(2)]

    def start(*, driver_is_ready: bool) -> Path:
        for home in homes:
            shutil.rmtree(home)
            make_home(home)
        return ready if driver_is_ready else empty_home(folder)()

    with running_cluster(folder, [environment(home) for home in homes]) as address:
        starts: dict[str, Callable[[], Path]] = {
            "executors": lambda: start(driver_is_ready=True),
            "warm": lambda: ready,  # Executors keep what the run before this one has left them.
            "all": lambda: start(driver_is_ready=False),
        }
        options = {**_CLUSTER_OPTIONS, "spark.master": address, "spark.driver.host": LOOPBACK}

        def upsert(home: Path) -> Run:
            try:
                return upsert_on_spark(folder, table, CLUSTER_ROWS, home, options)
            finally:
                end_processes(*homes, but="org.apache.spark.deploy.")

        runs = take_turns(starts, upsert, rounds, in_order=True)
    what = f"{CLUSTER_ROWS:,} rows, two executors"
    yield spark_line(f"{what} without code", runs["executors"], runs["warm"])
    yield spark_line(f"{what}, driver without code", runs["all"], runs["warm"])


def spark_table(rows: int, home: Path) -> Path:
    """A table to upsert to, made once and kept under .bench."""
    folder = BENCH / f"cold-spark-{rows}"
    if not (folder / "done").exists():
        print(f"writing {rows:,} rows ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        sql = ROWS_SQL.format(first=0, last=rows, ts=1)
        run_child([sys.executable, "-m", "benchmarks.cold_job", "load", sql, f"{folder}/table", "{}"], home)
        (folder / "done").touch()
    return folder / "table"


def upsert_on_spark(folder: Path, table: Path, rows: int, home: Path, options: Mapping[str, str]) -> Run:
    """An upsert of a copy of the table, half of it updates, by a new session; its seconds are of that call alone."""
    sql = ROWS_SQL.format(first=rows // 2, last=rows + rows // 2, ts=2)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        copy_table(table, Path(made, "table"))
        asked = ["upsert", sql, f"{made}/table", json.dumps(options)]
        try:
            run = run_child([sys.executable, "-m", "benchmarks.cold_job", *asked], home)
        finally:
            end_processes(home)
    if (run.said["updated"], run.said["inserted"]) != (rows // 2, rows // 2):
        raise RuntimeError(f"not what was to be upserted: {run.said}")
    return Run(run.said["seconds"], run.cpu, run.said)


def spark_line(what: str, cold: Runs, warm: Runs) -> Line:
    """A cold upsert beside a warm one."""
    bar = Bar(f"<= {SPARK_TIMES_MAX:g}x", cold.wall <= SPARK_TIMES_MAX * warm.wall)
    jobs = f" in {cold.runs[0].said['jobs']} Spark jobs"
    times = f"{cold.wall / warm.wall:.2f}x its time"
    return Line(what, seconds_text(cold.wall) + jobs, "warm", seconds_text(warm.wall), times, bar)


def ratio(cold: Runs, warm: Runs) -> str:
    """How much of the warm time the cold one is."""
    return f"{cold.wall / warm.wall:.2f}x its time (cpu {cold.cpu / warm.cpu:.2f}x)"


def take_turns(
    starts: Mapping[str, Callable[[], Path]], run: Callable[[Path], Run], rounds: int, *, in_order: bool = False
) -> dict[str, Runs]:
    """Runs from each start, in turn, after one round that is not counted; forth and back unless `in_order`."""
    spent: dict[str, list[Run]] = {name: [] for name in starts}
    for number in range(rounds + 1):
        for name in starts if in_order or number % 2 == 0 else reversed(starts):
            done = run(starts[name]())
            print(f"  {name}{'' if number else ', not counted'}: {Runs((done,))}", flush=True)
            if number:
                spent[name].append(done)
    return {name: Runs(tuple(runs)) for name, runs in spent.items()}


def empty_home(folder: Path) -> Callable[[], Path]:
    """Makes a home with nothing in it, another one each time."""
    return lambda: make_home(Path(tempfile.mkdtemp(dir=folder)))


def make_home(path: Path) -> Path:
    """A home, with a folder for temporary files in it."""
    (path / "tmp").mkdir(parents=True)
    return path


def environment(home: Path) -> dict[str, str]:
    """What a process sees that lives in a home: nothing points to caches elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    paths = os.pathsep.join([str(Path(lakebed.__file__).parents[1]), str(HERE.parent)])
    return {**kept, "HOME": str(home), _MARK: str(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": paths, "TZ": "UTC"}


def run_child(command: Sequence[str], home: Path) -> Run:
    """Runs a process that says something as JSON in its last line; its processor time has that of its children."""
    started = time.perf_counter()
    with subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, text=True, cwd=BENCH) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {process.returncode}")
    return Run(seconds, usage.ru_utime + usage.ru_stime, json.loads(said.splitlines()[-1]))


def end_processes(*homes: Path, but: str | None = None) -> None:
    """Ends what was started here and still runs in these homes, such as a compiler; not what has `but` in its name."""
    marks = {f"{_MARK}={home}".encode() for home in homes}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            is_ours = marks & {*(folder / "environ").read_bytes().split(b"\0")}
            if is_ours and (but is None or but not in command):
                os.kill(int(folder.name), signal.SIGKILL)
