"""Clustering: 1,000,000 rows in 100 small files of 10 partitions, sorted into one file each, against Apache Hudi.

The table is written once, by lakebed; each round both plan and execute a clustering of a copy of it. lakebed runs in
this process, on threads; Apache Hudi on Spark, in a session of two cores and 3 GB. Opening the table, planning and the
commit, with all indexes, are in both figures.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

import lakebed
from benchmarks.batches import BENCH, KEY, ORDERING, PARTITION, make_batches
from benchmarks.peer import Peer, running_peer
from benchmarks.report import Bar, Line, Times, print_lines, stopwatch
from benchmarks.settings import Settings
from lakebed.engine.engines import InProcess
from lakebed.options import WriteOptions
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.services.values import ServiceContext
from lakebed.table import open_handle
from lakebed.table.transactions import open_ports, open_transactions

ROUNDS, WRITES, TIMES_MIN = 3, 10, 3.0
ORDER_BY = "amount"


def main(settings: Settings) -> None:
    """Prints one table."""
    with running_peer() as peer, tempfile.TemporaryDirectory(dir=_bench()) as made:
        original = Path(made, "original")
        files = make_table(original, settings)
        contenders: dict[str, Callable[[Path], float]] = {"lakebed": cluster}
        if peer is not None:
            contenders["hudi"] = lambda path: cluster_by_peer(peer, path, record_index=settings.record_index)
        spent = measure(contenders, original, settings.rounds or ROUNDS)
    index = ", with a record index" if settings.record_index else ""
    print_lines(f"clustering {settings.rows:,} rows in {files} files by {ORDER_BY}{index}; medians", [line(spent)])


def make_table(path: Path, settings: Settings) -> int:
    """A table with many small files; how many."""
    rows = pq.read_table(make_batches(settings.rows, settings.batch_rows).load)
    indexes = ["column_stats", *(["record"] if settings.record_index else [])]
    table = lakebed.create_table(
        path, schema=rows.schema, key=KEY, partition_by=PARTITION, ordering=ORDERING, indexes=indexes
    )
    step = -(-rows.num_rows // WRITES)
    for start in range(0, rows.num_rows, step):
        table.bulk_insert(rows.slice(start, step))
    return len(table.files())


def measure(contenders: dict[str, Callable[[Path], float]], original: Path, rounds: int) -> dict[str, Times]:
    """Seconds of each, in turn; the first round is to warm up."""
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name in sorted(contenders, reverse=bool(number % 2)):
            path = original.with_name(f"{name}-{number}")
            shutil.copytree(original, path)
            seconds = contenders[name](path)
            check(original, path)
            shutil.rmtree(path)
            print(f"  {name}{'' if number else ', to warm up'}: {seconds:.2f} s", flush=True)
            if number:
                spent[name].append(seconds)
    return {name: Times(tuple(seconds)) for name, seconds in spent.items()}


def cluster(path: Path) -> float:
    """Plans and executes a clustering in this process; its seconds."""

    def work() -> None:
        handle, options = open_handle(path), WriteOptions()
        ports = open_ports(handle.storage, {})
        transactions = open_transactions(
            ports, heartbeat_ms=options.heartbeat_ms, heartbeat_misses=options.heartbeat_misses
        )
        context = ServiceContext(handle, transactions, InProcess(), options)
        instant = schedule_clustering(context, order_by=[ORDER_BY])
        assert instant is not None
        execute_clustering(context, instant)

    return stopwatch(work)()


def cluster_by_peer(peer: Peer, path: Path, *, record_index: bool) -> float:
    """Has Apache Hudi do the same."""
    seconds: float = peer.ask("cluster", path=str(path), order=ORDER_BY, record_index=record_index)["seconds"]
    return seconds


def check(original: Path, path: Path) -> None:
    """Refuses to compare work that was not done: the same rows, in one file per partition, in order."""
    table = lakebed.open_table(path)
    files = table.files()
    assert len(files) == len({file.group.partition for file in files}), f"{len(files)} files are left"
    assert table.to_arrow(columns=[KEY]).num_rows == lakebed.open_table(original).to_arrow(columns=[KEY]).num_rows
    for file in files:
        assert file.base is not None
        values = pq.read_table(path / file.path(file.base.name), columns=[ORDER_BY])[ORDER_BY].to_numpy()
        assert (values[1:] >= values[:-1]).all(), f"{file.base.name} is not in order"


def line(spent: dict[str, Times]) -> Line:
    """Both figures, and how they relate."""
    ours, theirs = spent["lakebed"], spent.get("hudi")
    times = theirs.median / ours.median if theirs else 0.0
    bar = Bar(f">= {TIMES_MIN:g}x as fast", None if theirs is None else times >= TIMES_MIN)
    return Line(
        "plan and execute, COW",
        str(ours),
        "Apache Hudi 1.2 (Spark)",
        str(theirs or "skipped"),
        f"{times:.1f}x as fast" if theirs else "",
        bar,
    )


def _bench() -> Path:
    BENCH.mkdir(exist_ok=True)
    return BENCH
