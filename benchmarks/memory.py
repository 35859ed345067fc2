"""Memory of an upsert: 100,000 rows into a copy-on-write table of 20,000,000, in a fresh process.

The table is made once, piece by piece, and kept under .bench; the upsert is rolled back after it was measured.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, make_rows
from benchmarks.peer import HERE
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings
from benchmarks.tables import SEED

ROWS_OF_PIECE = 10_000_000
"""So many that each piece fills files: an upsert then has the largest files to merge that there are by default."""
TIMES_OF_WRITE = 20
GIB_MAX = 2.0


def main(settings: Settings) -> None:
    """Prints one table. It has 20 times the rows of the other benchmarks of writes."""
    rows = settings.rows * TIMES_OF_WRITE
    folder = BENCH / f"memory-{rows}-{settings.batch_rows}"
    if not (folder / "done").exists():
        print(f"writing {rows:,} rows ...", flush=True)
        _in_fresh_process("build", str(folder), str(rows), str(settings.batch_rows))
    spent = _in_fresh_process("upsert", str(folder))
    lakebed.open_table(folder / "table").rollback(spent["instant"])
    gib = spent["peak_bytes"] / 2**30
    print_lines(
        f"memory of an upsert of {settings.batch_rows:,} rows into {rows:,}, COW, {spent['files']} files of it written",
        [
            Line("peak of the process", f"{gib:.2f} GiB", bar=Bar(f"<= {GIB_MAX:g} GiB", gib <= GIB_MAX)),
            Line("  before the upsert", f"{spent['before_bytes'] / 2**30:.2f} GiB"),
            Line("time", f"{seconds_text(spent['wall'])} (cpu {seconds_text(spent['cpu'])})"),
        ],
    )


def build(folder: Path, rows: int, batch_rows: int) -> dict[str, Any]:
    """Makes the table, and the rows that are upserted: half updates from all over it, half inserts."""
    shutil.rmtree(folder, ignore_errors=True)  # What is there was not finished.
    updates, done = [], 0
    table = None
    while done < rows:
        rng = np.random.default_rng([SEED, done])
        piece = make_rows(min(ROWS_OF_PIECE, rows - done), rng)
        if table is None:
            table = lakebed.create_table(
                folder / "table", schema=piece.schema, key=KEY, partition_by=PARTITION, ordering=ORDERING
            )
        table.bulk_insert(piece)
        updates.append(piece.take(pa.array(rng.choice(piece.num_rows, batch_rows * piece.num_rows // rows // 2))))
        done += piece.num_rows
    fresh = make_rows(batch_rows // 2, np.random.default_rng([SEED, rows]))
    pq.write_table(pa.concat_tables([*updates, fresh]), folder / "batch.parquet")
    (folder / "done").touch()
    return {}


def upsert(folder: Path) -> dict[str, Any]:
    """Upserts the batch, and says what that took."""
    batch = pq.read_table(folder / "batch.parquet")
    before, started, cpu = _peak_bytes(), time.perf_counter(), time.process_time()
    result = lakebed.open_table(folder / "table").upsert(batch)
    return {
        "before_bytes": before,
        "peak_bytes": _peak_bytes(),
        "wall": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "instant": result.instant,
        "files": len(result.files),
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_fresh_process(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    _, action, path, *counts = sys.argv
    print(json.dumps(build(Path(path), *map(int, counts)) if action == "build" else upsert(Path(path))))
