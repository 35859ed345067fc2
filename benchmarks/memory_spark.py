"""Memory of large writes from Spark: 10,000,000 rows into a new copy-on-write table with a record index, then an upsert
of a quarter as many, half of them updates. Each Python process is watched: the driver's, and the workers'.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION
from benchmarks.peer import HERE
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings

TIMES_OF_WRITE = 10
UPSERT_SHARE = 4
PARTITIONS = 8
WORKER_GIB_MAX = DRIVER_GIB_MAX = 1.0
ROWS = f"""
select
    substr(sha2(cast(id as string), 256), 1, 36) as {KEY}, {{ts}}L + id as {ORDERING},
    concat('customer-', lpad(id % 1000000, 6, '0')) as name, round(rand(7) * 1000, 2) as amount,
    concat('city-', id % 10) as {PARTITION}, substr(sha2(cast(-id as string), 256), 1, 20) as note
from range({{first}}, {{last}}, 1, {PARTITIONS})
"""
_SECONDS_BETWEEN = 0.1


def main(settings: Settings) -> None:
    """Prints one table. It has 10 times the rows of the other benchmarks of writes."""
    rows = settings.rows * TIMES_OF_WRITE
    command = [sys.executable, "-m", "benchmarks.memory_spark", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent)
    lines = []
    for name, spent in json.loads(done.stdout.splitlines()[-1]).items():
        driver, worker = spent["driver"] / 2**20, max(spent["workers"]) / 2**20
        lines += [
            Line(name, f"{seconds_text(spent['wall'])}, {spent['jobs']} Spark jobs, {spent['files']} files"),
            Line(
                "  peak of the driver's Python",
                f"{driver:.2f} GiB",
                bar=Bar(f"<= {DRIVER_GIB_MAX:g} GiB", driver <= DRIVER_GIB_MAX),
            ),
            Line("    before the write", f"{spent['before'] / 2**20:.2f} GiB"),
            Line(
                f"  peak of the largest of {len(spent['workers'])} Python workers",
                f"{worker:.2f} GiB",
                bar=Bar(f"<= {WORKER_GIB_MAX:g} GiB", worker <= WORKER_GIB_MAX),
            ),
        ]
    print_lines(f"memory of writes from a DataFrame of {rows:,} rows, COW, record index, local[2]", lines)


def write(rows: int) -> dict[str, Any]:
    """Writes, and says what that took; sizes are in KiB."""
    folder = BENCH / f"memory-spark-{rows}"
    shutil.rmtree(folder, ignore_errors=True)
    spark = lakebed.local_session(cores=2)
    load = spark.sql(ROWS.format(first=0, last=rows, ts=1))
    some = spark.sql(ROWS.format(first=rows - rows // UPSERT_SHARE // 2, last=rows + rows // UPSERT_SHARE // 2, ts=2))
    table = lakebed.create_table(
        folder, schema=load.schema, key=KEY, partition_by=PARTITION, ordering=ORDERING, indexes=("record",)
    )
    spent = {
        f"upsert of {rows:,} new rows": _watched(lambda: table.upsert(load)),
        f"upsert of {rows // UPSERT_SHARE:,} rows, half of them updates": _watched(lambda: table.upsert(some)),
    }
    spark.stop()
    shutil.rmtree(folder)
    return spent


def _watched(run: Callable[[], lakebed.WriteResult]) -> dict[str, Any]:
    peaks: dict[int, int] = {}
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(_SECONDS_BETWEEN):
            for pid in _workers():
                with suppress(OSError):
                    peaks[pid] = max(peaks.get(pid, 0), _peak_kib(pid))

    Path("/proc/self/clear_refs").write_text("5")  # The peak of the driver begins anew.
    before, started = _peak_kib(os.getpid()), time.perf_counter()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    result = run()
    stopped.set()
    thread.join()
    return {
        "wall": time.perf_counter() - started,
        "jobs": result.jobs,
        "files": len(result.files),
        "before": before,
        "driver": _peak_kib(os.getpid()),
        "workers": sorted(peaks.values()) or [0],
    }


def _workers() -> Iterator[int]:
    """Processes below ours that run PySpark's daemon, or were forked by it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        with suppress(OSError):
            if _is_below(pid, os.getpid(), parents) and b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


def _is_below(pid: int, above: int, parents: dict[int, int]) -> bool:
    while pid in parents:
        pid = parents[pid]
        if pid == above:
            return True
    return False


def _peak_kib(pid: int) -> int:
    """The most that a process ever held in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    print(json.dumps(write(int(sys.argv[1]))))
