"""Compaction: 10 file groups with 1,000,000 rows in all and 10 log files each, against Apache Hudi on the same table.

The table is made once, with Avro log blocks as Apache Hudi writes them, and kept under .bench. Each turn is a plan and
its execution on a copy of it. In the end both must have left the same rows.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from benchmarks.append import copy_table
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, make_rows
from benchmarks.peer import Peer, running_peer
from benchmarks.report import Bar, Line, Times, faster_by, print_lines, seconds_text
from benchmarks.settings import Settings
from benchmarks.tables import CITIES, SEED
from lakebed.engine.engines import InProcess
from lakebed.options import parse_write_options
from lakebed.services.compaction.run import execute_compaction, schedule_compaction
from lakebed.services.values import ServiceContext
from lakebed.storage import open_storage
from lakebed.table import TableHandle
from lakebed.table.transactions import open_ports, open_transactions
from lakebed.timeline.config import load_config

ROUNDS, LOGS = 3, 10
TIMES_MIN = 4.0
_LATER = 10**9
_OPTIONS = {"hoodie.logfile.data.block.format": "avro"}


def main(settings: Settings) -> None:
    """Prints one table."""
    source = source_table(settings)
    with running_peer() as peer, tempfile.TemporaryDirectory(dir=BENCH) as folder:
        ours, cpu, theirs = _measure(source, Path(folder), peer, settings.rounds or ROUNDS)
    title = f"compaction: {settings.rows:,} rows in {len(CITIES)} file groups, {LOGS} log files each of "
    lines = [
        _line(ours, theirs),
        Line("  processor time", seconds_text(cpu.median)),
    ]
    print_lines(f"{title}{settings.batch_rows // len(CITIES):,} updates; medians", lines)


def source_table(settings: Settings) -> Path:
    """The table whose copies are compacted, made now if this is the first time."""
    folder = BENCH / f"compaction-{settings.rows}-{settings.batch_rows}"
    if not (folder / "done").exists():
        print(f"writing {settings.rows:,} rows and {LOGS} batches of {settings.batch_rows:,} updates ...", flush=True)
        _make_table(folder, settings)
    return folder / "table"


def _line(ours: Times, theirs: Times | None) -> Line:
    what, bar = "plan and execute", f">= {TIMES_MIN:g}x"
    if theirs is None:
        return Line(what, str(ours), "Apache Hudi 1.2", bar=Bar(bar, None))
    met = theirs.median / ours.median >= TIMES_MIN
    return Line(what, str(ours), "Apache Hudi 1.2", str(theirs), faster_by(ours, theirs), Bar(bar, met))


def _make_table(folder: Path, settings: Settings) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # What is there was not finished.
    rng = np.random.default_rng(SEED)
    loaded = make_rows(settings.rows, rng)
    table = lakebed.create_table(
        folder / "table",
        schema=loaded.schema,
        key=KEY,
        partition_by=PARTITION,
        ordering=ORDERING,
        table_type="mor",
        options=_OPTIONS,
    )
    table.bulk_insert(loaded)
    for number in range(LOGS):
        chosen = loaded.take(pa.array(rng.choice(settings.rows, settings.batch_rows, replace=False)))
        later = pc.add(chosen[ORDERING], (number + 1) * _LATER)
        table.upsert(chosen.set_column(chosen.schema.get_field_index(ORDERING), ORDERING, later))
    assert [len(each.logs) for each in table.files()] == [LOGS] * len(CITIES)
    (folder / "done").touch()


def _measure(source: Path, folder: Path, peer: Peer | None, rounds: int) -> tuple[Times, Times, Times | None]:
    """Seconds, processor seconds and the peer's seconds. One turn of each is done before, and not counted."""
    spent: list[float] = []
    cpu: list[float] = []
    theirs: list[float] = []
    for number in range(rounds + 1):
        began = time.process_time()
        spent.append(_compact(_copied(source, folder / "ours")))
        cpu.append(time.process_time() - began)
        print(f"  lakebed: {seconds_text(spent[-1])} (cpu {seconds_text(cpu[-1])})", flush=True)
        if peer is not None:
            path = _copied(source, folder / "theirs")
            theirs.append(float(peer.ask("compact", path=str(path))["seconds"]))
            print(f"  Apache Hudi: {seconds_text(theirs[-1])}", flush=True)
            _check_same_rows(peer, folder, is_first=number == 0)
    return Times(tuple(spent[1:])), Times(tuple(cpu[1:])), Times(tuple(theirs[1:])) if theirs else None


def _copied(source: Path, target: Path) -> Path:
    copy_table(source, target)
    return target


def _compact(path: Path) -> float:
    started = time.perf_counter()
    storage, options = open_storage(path), parse_write_options({})
    transactions = open_transactions(open_ports(storage, {}), heartbeat_ms=60_000, heartbeat_misses=2)
    context = ServiceContext(TableHandle(storage, load_config(storage)), transactions, InProcess(), options)
    instant = schedule_compaction(context)
    assert instant is not None
    result = execute_compaction(context, instant)
    seconds = time.perf_counter() - started
    assert result.counts["file_groups"] == len(CITIES), result
    return seconds


def _check_same_rows(peer: Peer, folder: Path, *, is_first: bool) -> None:
    if not is_first:
        return
    columns = ["count(*)", f"sum({ORDERING})", "sum(cast(amount * 100 as bigint))"]
    seen: list[Any] = []
    for name in ("ours", "theirs"):
        files = lakebed.open_table(folder / name).files()
        if any(each.logs for each in files):
            raise RuntimeError(f"{name} was not compacted")
        seen.append(peer.ask("digest", path=str(folder / name), columns=columns)["digest"])
    if seen[0] != seen[1]:
        raise RuntimeError(f"the tables differ: {seen}")
