"""What an upsert of 10,000 random keys costs as the record index grows, on a merge-on-read table.

The rows are those of one table of 1,000,000; a larger index has base files of made-up keys below the entries of the
rows (see `lookup_tables`). Half of a batch are updates, half have new keys. Tables take turns: all meet the same
machine.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from rich.console import Console

import lakebed
from benchmarks.batches import BENCH
from benchmarks.codecs import uuids
from benchmarks.lookup_tables import grown_table, loaded_rows
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings
from benchmarks.tables import CITIES, SEED

COUNTS, LARGE = (1_000_000, 10_000_000), 100_000_000
"""The large one is measured with --large: it takes 3 GB of disk, 4 GB of cache, and minutes to make."""
BATCH, ROUNDS, WARM_UPS = 10_000, 24, 2
GROWTH_MAX = 1.3
_WIDTH = 60


def main(settings: Settings) -> None:
    """Prints a table and draws it."""
    counts = (*COUNTS, LARGE) if settings.large else COUNTS
    rounds = settings.rounds or ROUNDS
    with tempfile.TemporaryDirectory(dir=BENCH) as made:
        paths = {count: _copy(count, Path(made)) for count in counts}
        spent = _take_turns(paths, rounds)
    middle = {count: median(seconds) for count, seconds in spent.items()}
    lines = [_line(count, spent[count], middle[count] / middle[counts[0]]) for count in counts]
    print_lines(f"an upsert of {BATCH:,} random keys, MOR, medians of {rounds} commits in turn", lines)
    _draw(middle)


def _copy(count: int, folder: Path) -> Path:
    """A table that can be written to; files never change, so that copies share them."""
    path, _ = grown_table(count, "mor")
    shutil.copytree(path, folder / f"{count}", copy_function=os.link)
    return folder / f"{count}"


def _take_turns(paths: dict[int, Path], rounds: int) -> dict[int, list[float]]:
    """Seconds of each upsert, also of what some of them do to look after the table."""
    rng, loaded = np.random.default_rng(SEED + 2), loaded_rows()
    spent: dict[int, list[float]] = {count: [] for count in paths}
    for number in range(WARM_UPS + rounds):
        rows = _batch(loaded, number, rng)
        for count, path in paths.items():
            table = lakebed.open_table(path)
            started = time.perf_counter()
            table.upsert(rows)
            if number >= WARM_UPS:
                spent[count].append(time.perf_counter() - started)
    return spent


def _batch(loaded: pa.Table, number: int, rng: np.random.Generator) -> pa.Table:
    """Half updates, half rows with new keys."""
    chosen = loaded.take(pa.array(rng.choice(loaded.num_rows, BATCH // 2, replace=False)))
    new = chosen.set_column(0, "uuid", pa.array(uuids(BATCH // 2, rng)))
    new = new.set_column(1, "city", pa.array(np.array(CITIES)[rng.integers(0, len(CITIES), BATCH // 2)]))
    rows = pa.concat_tables([chosen, new])
    later = pa.array(np.full(rows.num_rows, 10 * loaded.num_rows + number))
    return rows.set_column(rows.schema.get_field_index("ts"), "ts", later)


def _line(count: int, seconds: list[float], growth: float) -> Line:
    """With the mean, too: some commits compact the index, small shards often and large ones when that is worth it."""
    mean = seconds_text(sum(seconds) / len(seconds))
    bar = Bar(f"<= {GROWTH_MAX}x", growth <= GROWTH_MAX) if count > COUNTS[0] else None
    return Line(f"{count:,} keys", seconds_text(median(seconds)), "mean", mean, f"{growth:.2f}x the first", bar)


def _draw(middle: dict[int, float]) -> None:
    """A bar per table, as long as its upserts took."""
    console, most = Console(width=120), max(middle.values())
    for count, seconds in middle.items():
        console.print(f"{count:>13,} keys  {'█' * round(seconds / most * _WIDTH)} {seconds_text(seconds)}")
