"""Whether a table grows old: small commits with table services in between, and what a commit costs at the end.

Then as many commits without cleaning, and what planning to clean them asks of the store.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pyarrow as pa

import lakebed
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings
from lakebed.engine.engines import InProcess
from lakebed.options import parse_write_options
from lakebed.services.clean.run import schedule_clean
from lakebed.services.values import ServiceContext
from lakebed.storage import Requests, open_storage
from lakebed.storage.faults import FaultyStorage
from lakebed.table import TableHandle
from lakebed.table.transactions import open_ports, open_transactions
from lakebed.timeline.config import load_config

COMMITS = 2000
_ROWS, _KEYS = 100, 20_000
_WINDOWS, _SERVICES_EVERY = 20, 10
_MOST = 1.3
"""A commit at the end may take so many times that of the first ones."""
_BARS = "▁▂▃▄▅▆▇█"
_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.float64()), ("note", pa.string())])
_BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


@dataclass(frozen=True, slots=True)
class Commit:
    """What one commit took."""

    seconds: float
    cpu_seconds: float
    requests: int


def main(settings: Settings) -> None:
    """Small commits to a table of each type, then planning to clean one that nobody has cleaned."""
    commits = settings.rounds or COMMITS
    for table_type in ("mor", "cow"):
        with tempfile.TemporaryDirectory(prefix="lakebed-growth-") as folder:
            _report(table_type, list(_commits(Path(folder), table_type, commits)), Path(folder))
    with tempfile.TemporaryDirectory(prefix="lakebed-growth-") as folder:
        _plan_clean(Path(folder), commits // 2)


def _commits(path: Path, table_type: str, count: int) -> Iterator[Commit]:
    """Commits one after the other, with a pass of the services after every tenth."""
    table, chance = _table(path, table_type), random.Random(1)
    for number in range(count):
        rows = _rows(chance, number)
        began, cpu = time.perf_counter(), time.process_time()
        result = table.upsert(rows)
        yield Commit(time.perf_counter() - began, time.process_time() - cpu, _total(result.requests))
        if number % _SERVICES_EVERY == _SERVICES_EVERY - 1:
            table.services.run()


def _table(path: Path, table_type: str) -> lakebed.Table:
    return lakebed.create_table(
        path, schema=_SCHEMA, key="id", ordering="ts", table_type=table_type, indexes=["record"], options=_BY_HAND
    )


def _rows(chance: random.Random, number: int) -> pa.Table:
    ids = [f"id-{key:08d}" for key in chance.sample(range(_KEYS), _ROWS)]
    notes = [f"note {number} {place}" for place in range(_ROWS)]
    return pa.table([ids, [number] * _ROWS, [number / 2] * _ROWS, notes], schema=_SCHEMA)


def _total(requests: Requests) -> int:
    """Calls to the store, also those that a local disk answers by itself."""
    moved = replace(requests, bytes_read=0, bytes_written=0)
    return sum(getattr(moved, name) for name in moved.__slots__)


def _report(table_type: str, commits: list[Commit], path: Path) -> None:
    size = max(len(commits) // _WINDOWS, _SERVICES_EVERY)
    windows = [commits[start : start + size] for start in range(0, len(commits) - size + 1, size)]
    times = [median(commit.seconds for commit in window) for window in windows]
    cpu = [median(commit.cpu_seconds for commit in window) for window in windows]
    asked = [median(commit.requests for commit in window) for window in windows]
    ratio = times[-1] / times[0]
    bar = Bar(f"<= {_MOST}x", ratio <= _MOST)
    print_lines(
        f"{table_type}: {len(commits)} commits of {_ROWS} rows, a pass of the services after every {_SERVICES_EVERY}",
        [
            Line("commit, median of the last window", _ms(times[-1]), "first", _ms(times[0]), f"{ratio:.2f}x", bar),
            Line("its CPU time", _ms(cpu[-1]), "first", _ms(cpu[0]), f"{cpu[-1] / cpu[0]:.2f}x"),
            Line("its requests", f"{asked[-1]:.0f}", "first", f"{asked[0]:.0f}", f"{asked[-1] / asked[0]:.2f}x"),
            *(Line(f"files in {folder}", str(_files(path / folder))) for folder in _FOLDERS),
            Line("data files", str(len([*path.glob("*.parquet"), *path.glob(".*.log.*")]))),
        ],
    )
    print(f"medians of {size} commits, {seconds_text(min(times))} to {seconds_text(max(times))}: {_plot(times)}")


_FOLDERS = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline", ".hoodie/metadata/record_index")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms"


def _files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.iterdir())


def _plot(values: list[float]) -> str:
    """A bar per value, the highest for the largest."""
    return "".join(_BARS[round(value / max(values) * (len(_BARS) - 1))] for value in values)


def _plan_clean(path: Path, commits: int) -> None:
    table, chance = _table(path, "cow"), random.Random(2)
    for number in range(commits):
        table.upsert(_rows(chance, number))
    storage = FaultyStorage(open_storage(path))
    transactions = open_transactions(open_ports(storage, {}), heartbeat_ms=60_000, heartbeat_misses=2)
    context = ServiceContext(
        TableHandle(storage, load_config(storage)), transactions, InProcess(), parse_write_options({})
    )
    began = time.perf_counter()
    assert schedule_clean(context) is not None
    spent = time.perf_counter() - began
    calls = Counter(_place(traced.call.path) for traced in storage.trace)
    print_lines(
        f"planning to clean {commits} commits",
        [
            Line("time", seconds_text(spent)),
            *(Line(f"calls on {place}", str(count)) for place, count in sorted(calls.items())),
            Line("calls on data files", str(calls["data"]), bar=Bar("0", calls["data"] == 0)),
        ],
    )


def _place(path: str) -> str:
    for folder in (".hoodie/metadata/.hoodie", ".hoodie/metadata", ".hoodie"):
        if path.startswith(folder):
            return folder
    return "tickets" if path.isdecimal() else "data"
