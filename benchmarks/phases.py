"""Where the time of lakebed's own upserts goes, in process: seconds of each phase, by the clock and of processors.

One phase runs at a time, on one thread, so that they add up; two cores would take about half as long over what is done
per file. Phases inside others are indented.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, make_batches
from benchmarks.settings import Settings

ROUNDS = 3
PHASES = (
    ("open the table", "lakebed.open_table"),
    ("prepare rows", "lakebed.write.rows.input.ArrowInput.prepare"),
    ("begin", "lakebed.transaction.transactions.Transactions.begin"),
    ("context", "lakebed.write.planner.write_context"),
    ("combine duplicates", "lakebed.write.rows.arrange.combine_duplicates"),
    ("plan", "lakebed.write.planner.plan_rows"),
    ("  tag by the record index", "lakebed.write.planner.tag_by_index"),
    ("  tag by reading keys", "lakebed.write.planner.find_in_files"),
    ("    ask footers", "lakebed.write.tag.files._may_hold"),
    ("    read keys", "lakebed.write.tag.files.read_slice"),
    ("  assign", "lakebed.write.plan.assign_rows"),
    ("  group rows", "lakebed.write.plan._tasks"),
    ("declare", "lakebed.transaction.transactions.Transactions.declare"),
    ("execute", "lakebed.write.columnar.ColumnarPlane.execute"),
    ("  merge base files", "lakebed.write.execute.merge_base_file"),
    ("    read rows", "lakebed.write.files.merge.read_stored"),
    ("    match keys", "lakebed.write.files.merge._merge"),
    ("    bloom filter", "lakebed.write.files.merge._known_keys"),
    ("    gather columns", "lakebed.write.files.merge._merged_table"),
    ("    markers", "lakebed.write.files.merge.write_markers"),
    ("  new base files", "lakebed.write.execute.create_base_file"),
    ("  base files of both", "lakebed.write.files.base._encode"),
    ("    footer", "lakebed.write.files.base.footer_metadata"),
    ("    column options", "lakebed.write.files.base.cached_options"),
    ("    put", "lakebed.write.files.base.create_file"),
    ("    column statistics", "lakebed.write.files.base.base_file_stats"),
    ("  log files", "lakebed.write.files.log._draft"),
    ("    column statistics", "lakebed.write.files.log.log_stats"),
    ("  put log files", "lakebed.write.files.log.create_files"),
    ("  markers of log files", "lakebed.write.files.log.write_markers"),
    ("  delete strays", "lakebed.write.columnar.delete_strays"),
    ("commit", "lakebed.write.writer.commit"),
    ("  metadata table", "lakebed.commit.entries.CommitEntries.write"),
    ("    log files", "lakebed.commit.entries.write_change"),
    ("maintain the metadata table", "lakebed.write.columnar.ColumnarPlane.maintain"),
)


class Timer:
    """What the calls of one function took."""

    def __init__(self) -> None:
        self.calls, self.wall, self.cpu = 0, 0.0, 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            wall, cpu = time.perf_counter(), time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.calls += 1
                self.wall += time.perf_counter() - wall
                self.cpu += time.process_time() - cpu

        return timed


def main(settings: Settings) -> None:
    """Prints a table for each kind of table."""
    batches, rounds = make_batches(settings.rows, settings.batch_rows), settings.rounds or ROUNDS
    for kind in ("cow", "mor"):
        with tempfile.TemporaryDirectory(dir=BENCH) as folder:
            path, rows = Path(folder, kind), pq.read_table(batches.load)
            indexes = ("record",) if settings.record_index else ()
            table = lakebed.create_table(
                path,
                schema=rows.schema,
                key=KEY,
                partition_by=PARTITION,
                ordering=ORDERING,
                table_type=kind,
                indexes=indexes,
            )
            table.bulk_insert(rows)
            table.upsert(pq.read_table(batches.batch(0)))
            inputs = [pq.read_table(batches.batch(number)) for number in range(1, rounds + 1)]
            with one_thread(), timing() as timers:
                wall, cpu = _upsert_all(path, inputs)
        _print(f"upsert, {kind.upper()}, {settings.batch_rows:,} rows, mean of {rounds}", timers, wall, cpu, rounds)


def _upsert_all(path: Path, inputs: list[pa.Table]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for rows in inputs:
        lakebed.open_table(path).upsert(rows)
    return time.perf_counter() - wall, time.process_time() - cpu


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps lakebed's tasks and Arrow's from running side by side, as long as the block lasts."""
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        with patch("os.cpu_count", lambda: 1):
            yield
    finally:
        pa.set_cpu_count(cores)


@contextmanager
def timing() -> Iterator[dict[str, Timer]]:
    """Takes the times of all phases, by the dotted name of their function, as long as the block lasts."""
    timers: dict[str, Timer] = {}
    with ExitStack() as stack:
        for _, name in PHASES:
            home, attribute = _resolve(name)
            timers[name] = Timer()
            stack.enter_context(patch.object(home, attribute, timers[name].around(getattr(home, attribute))))
        yield timers


def _resolve(name: str) -> tuple[object, str]:
    """The module or class that has a dotted name's last part."""
    home, _, attribute = name.rpartition(".")
    try:
        return import_module(home), attribute
    except ModuleNotFoundError:
        module, _, class_name = home.rpartition(".")
        return getattr(import_module(module), class_name), attribute


def _print(title: str, timers: dict[str, Timer], wall: float, cpu: float, rounds: int) -> None:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.add_column("phase")
    for heading in ("calls", "ms", "cpu ms"):
        table.add_column(heading, justify="right")
    table.add_column("function")
    table.add_row("whole", "1", f"{wall / rounds * 1e3:.0f}", f"{cpu / rounds * 1e3:.0f}", "")
    for phase, name in PHASES:
        timer = timers[name]
        if timer.calls:
            figures = (timer.calls / rounds, timer.wall / rounds * 1e3, timer.cpu / rounds * 1e3)
            table.add_row(phase, *(f"{figure:.0f}" for figure in figures), name.removeprefix("lakebed."))
    Console(width=150).print(table)
