"""Building a record index on an existing table, validating and resharding it: time, and memory, in a fresh process.

A copy-on-write table of as many rows as the other benchmarks of writes load, in 10 partitions, with uuid keys.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, make_rows
from benchmarks.peer import HERE
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings
from benchmarks.tables import SEED

KEYS_PER_SECOND_MIN = 1_000_000
ROUNDS = 3


def main(settings: Settings) -> None:
    """Prints one table: the best of a few rounds, each in a fresh process."""
    folder = BENCH / f"index-{settings.rows}"
    if not (folder / "done").exists():
        print(f"writing {settings.rows:,} rows ...", flush=True)
        _in_fresh_process("load", folder, settings.rows)
    rounds = [_in_fresh_process("measure", folder) for _ in range(settings.rounds or ROUNDS)]
    best = {work: min(spent[work] for spent in rounds) for work in ("create", "rebuild", "cpu", "validate", "reshard")}
    speed = settings.rows / best["rebuild"]
    peak = min(spent["peak_bytes"] - spent["before_bytes"] for spent in rounds)
    size = rounds[0]["bytes"]
    print_lines(
        f"a record index of {settings.rows:,} keys on an existing table, {rounds[0]['shards']} shards",
        [
            Line("create, first in its process", f"{seconds_text(best['create'])}"),
            Line(
                "create, warm",
                f"{seconds_text(best['rebuild'])} (cpu {seconds_text(best['cpu'])}), {speed:,.0f} keys/s",
                bar=Bar(f">= {KEYS_PER_SECOND_MIN:,} keys/s", speed >= KEYS_PER_SECOND_MIN),
            ),
            Line("validate", f"{seconds_text(best['validate'])}"),
            Line("reshard to twice as many", f"{seconds_text(best['reshard'])}"),
            Line("memory above that of the open table", f"{peak / 2**20:.0f} MiB"),
            Line("bytes per key", f"{size / settings.rows:.1f}"),
        ],
    )


def measure(folder: Path) -> dict[str, Any]:
    """Seconds of each piece of work, and the memory of all of them."""
    table = lakebed.open_table(folder / "table")
    before = _peak_bytes()
    spent: dict[str, Any] = {"before_bytes": before}
    for work, run in _works(table):
        started, cpu = time.perf_counter(), time.process_time()
        run()
        spent[work] = time.perf_counter() - started
        if work == "rebuild":
            spent["cpu"] = time.process_time() - cpu
            info = next(info for info in table.indexes.list() if info.name == "record_index")
            spent |= {"shards": info.shards, "bytes": info.bytes, "peak_bytes": _peak_bytes()}
    table.indexes.drop("record_index")
    return spent


def _works(table: lakebed.Table) -> list[tuple[str, Callable[[], object]]]:
    indexes = table.indexes
    return [
        ("create", lambda: indexes.create("record_index", kind="record")),
        ("rebuild", lambda: indexes.create("record_index", kind="record", rebuild=True)),
        ("validate", lambda: indexes.validate("record_index")),
        ("reshard", lambda: indexes.reshard(shards=20)),
    ]


def load(folder: Path, rows: int) -> dict[str, Any]:
    """Makes the table."""
    shutil.rmtree(folder, ignore_errors=True)  # What is there was not finished.
    loaded = make_rows(rows, np.random.default_rng([SEED, rows]))
    table = lakebed.create_table(
        folder / "table", schema=loaded.schema, key=KEY, partition_by=PARTITION, ordering=ORDERING
    )
    table.bulk_insert(loaded)
    (folder / "done").touch()
    return {}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_fresh_process(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.index", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=HERE.parent)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    _, action, path, *counts = sys.argv
    print(json.dumps(load(Path(path), int(counts[0])) if action == "load" else measure(Path(path))))
