"""Appending log files, and what it costs to read them: Avro against Parquet blocks.

10 file groups of 100,000 rows, made once by Apache Hudi and kept under .bench; to each, 10,000 updates of about 90
bytes are appended as one log file. Each way of writing gets a table of its own, with the same base files. The log files
are then merged on read by lakebed, by hudi-rs and by Apache Hudi, which compacts them in the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.avro import ROWS as ENCODED_ROWS
from benchmarks.avro import sample_batch
from benchmarks.peer import HOME, Peer, PeerMissingError, running_peer
from benchmarks.report import Bar, Line, Measure, Times, print_lines, repeat, seconds_text
from benchmarks.tables import OPTIONS, TYPES, UPDATES, read_tables
from lakebed.format.avro.schema import avro_schema
from lakebed.format.file_names import encode_instant_name
from lakebed.format.log.blocks import decode_records, encode_avro_records
from lakebed.format.log.file import decode_log_file
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.facts import FileFacts
from lakebed.model.commit import CommitMetadata
from lakebed.model.files import FileSlice
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import META_COLUMNS, PARTITION_PATH, RECORD_KEY, Action, State
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.table import open_handle
from lakebed.table.state import TableState
from lakebed.view.blocks import CountedInstants
from lakebed.write.files.log import append_log_file
from lakebed.write.values import POSITION, FileSizing, InMemory, WriteContext, WriteTask

ROUNDS, ROUNDS_OF_PEERS = 7, 3
ENCODE_SECONDS_MAX = 0.04
DIGEST = ("count(*)", "sum(ts)", "sum(crc32(cast(note as binary)))")
TABLE = {
    **OPTIONS,
    "hoodie.table.name": "append",
    "hoodie.datasource.write.table.type": TYPES["mor"],
    "hoodie.index.type": "SIMPLE",
    "hoodie.metadata.enable": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
}
"""Options of a table without a metadata table: a commit is a file on the timeline, and no more."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way of writing log blocks, and the table that is written so."""

    name: str
    format: Literal["avro", "parquet"]
    compression: str = "zstd"

    @property
    def files(self) -> FileSizing:
        """The settings that ask for it."""
        return FileSizing(log_format=self.format, compression=self.compression)


WAYS = (
    Way("Avro", "avro"),
    Way("Parquet, zstd", "parquet", "zstd"),
    Way("Parquet, snappy", "parquet", "snappy"),
    Way("Parquet, plain", "parquet", "none"),
)


def main() -> None:
    """Prints how fast records are encoded, and a table with a column for each way."""
    print_lines("encoding log records, CPU time", [encode_line()])
    with running_peer() as peer:
        try:
            base = base_table(peer)
        except PeerMissingError as error:
            print(f"skipped: {error}")
            return
        print_ways([*measure_ours(base), *measure_peers(base, peer)])


def encode_line() -> Line:
    """Records of 13 columns to the content of an Avro block."""
    batch = sample_batch(ENCODED_ROWS)
    avro_json = avro_schema(batch.schema, name="bench_record", namespace="hoodie.bench")
    times = repeat(cpu_clock(lambda: encode_avro_records(batch, avro_json)), ROUNDS)
    bar = Bar(f"<= {seconds_text(ENCODE_SECONDS_MAX)}", min(times.seconds) <= ENCODE_SECONDS_MAX)
    return Line(f"{ENCODED_ROWS:,} records of 13 columns", str(times), bar=bar)


def base_table(peer: Peer | None) -> Path:
    """A folder with the table `base`, which has no log files, and the rows to append; made when there is none."""
    folder = read_tables(peer).folder
    options = {**TABLE, "hoodie.datasource.write.operation": "insert"}
    mark = hashlib.sha256(json.dumps(options).encode()).hexdigest()[:12]
    home = HOME.parent / ".bench" / f"append-{mark}"
    if not (home / "done").exists():
        if peer is None:
            raise PeerMissingError("there is no table to append to: Apache Hudi makes it, `make interop` prepares it")
        rows = str(folder / "rows.parquet")
        peer.ask("write", path=str(home / "base"), rows=rows, mode="overwrite", options=options)
        shutil.copy(folder / "updates.parquet", home / "updates.parquet")
        (home / "done").touch()
    return home


def measure_ours(home: Path) -> list[tuple[str, list[str]]]:
    """Appending, the size of the log files, and merging them on read."""
    writes = [Writes(home, way) for way in WAYS]
    appended = in_turn([write.append for write in writes], ROUNDS)
    sizes = [write.commit() for write in writes]
    keys = in_turn([cpu_clock(write.read_keys) for write in writes], ROUNDS)
    merged = in_turn([cpu_clock(write.read) for write in writes], ROUNDS)
    return [
        (f"append 10 log files, {UPDATES:,} rows, CPU", [str(times) for times in appended]),
        ("size", [f"{size / 1e6:.1f} MB, {size / UPDATES:.0f} bytes a row" for size in sizes]),
        ("lakebed reads the keys in the logs, CPU", [str(times) for times in keys]),
        ("lakebed merges on read, CPU", [str(times) for times in merged]),
    ]


def measure_peers(home: Path, peer: Peer | None) -> list[tuple[str, list[str]]]:
    """What others need for the same tables."""
    if peer is None:
        return [("hudi-rs 0.5 and Apache Hudi 1.2", ["skipped"] * len(WAYS))]
    paths = [str(home / way.name) for way in WAYS]
    digests = {tuple(peer.ask("digest", path=path, columns=DIGEST)["digest"]) for path in paths}
    if len(digests) != 1:
        raise RuntimeError(f"Apache Hudi sees different rows in tables that should be equal: {digests}")
    rust = in_turn([asked(peer, "scan_rs", path) for path in paths], ROUNDS_OF_PEERS)
    scans = in_turn([asked(peer, "scan", path) for path in paths], ROUNDS_OF_PEERS)
    compactions = [compaction_seconds(home, way, peer) for way in WAYS]
    return [
        ("hudi-rs 0.5 reads", [str(times) for times in rust]),
        ("Apache Hudi 1.2 reads", [str(times) for times in scans]),
        ("Apache Hudi 1.2 upserts a row and compacts", [seconds_text(seconds) for seconds in compactions]),
    ]


class Writes:
    """The log files of one way of writing, on a copy of the base table."""

    def __init__(self, home: Path, way: Way) -> None:
        self._path = home / way.name
        copy_table(home / "base", self._path)
        state = open_handle(self._path).state()
        rows = pq.read_table(home / "updates.parquet")
        self._context = context_of(state, way.files)
        slices = enumerate(state.latest_slices)
        self._tasks = [task_of(number, file_slice, self._context, rows) for number, file_slice in slices]
        self._written: list[FileFacts] = []

    def append(self) -> float:
        """Writes all log files once more, one after the other; the CPU seconds that it takes."""
        for written in self._written:
            (self._path / written.stat.path).unlink()
        shutil.rmtree(self._path / ".hoodie" / ".temp", ignore_errors=True)
        return cpu_clock(self._append)()

    def _append(self) -> None:
        self._written = [written for task in self._tasks for written in append_log_file(task)]

    def commit(self) -> int:
        """Makes the files part of the table; their bytes."""
        context = self._context
        stats = {written.stat.partition: (written.stat,) for written in self._written}
        schema = avro_schema(context.schema, name="append_record", namespace="hoodie.append")
        metadata = CommitMetadata(stats, operation="UPSERT", extra_metadata={"schema": schema})
        content = {State.REQUESTED: b"", State.INFLIGHT: b"", State.COMPLETED: encode_commit(metadata, replace=False)}
        for state, data in content.items():
            completed = after(context.instant) if state is State.COMPLETED else None
            name = encode_instant_name(Instant(context.instant, Action.DELTA_COMMIT, state, completed), layout=2)
            context.storage.create(f"{context.config.timeline_path}/{name}", data)
        return sum(written.stat.file_size for written in self._written)

    def read_keys(self) -> None:
        """The record keys in all log files, as tagging needs them."""
        for written in self._written:
            data = self._context.storage.get(written.stat.path)
            for block in decode_log_file(data, path=written.stat.path):
                decode_records(block, path=written.stat.path, columns=[RECORD_KEY])

    def read(self) -> None:
        """All rows of all slices, one slice after the other."""
        state = open_handle(self._path).state()
        schema, counted = state.schema(state.latest), self._context.counts
        for file_slice in state.latest_slices:
            assert len(file_slice.logs) == 1, file_slice
            read_slice(SliceTask(state.storage, state.config, file_slice, schema, tuple(schema.names), counted))


def cpu_clock(work: Callable[[], object]) -> Measure:
    """`work` as something that can be measured, in CPU seconds of this process: steadier where others are at work."""

    def measure() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return measure


def after(instant: InstantTime) -> InstantTime:
    """A second later."""
    later = datetime.strptime(f"{instant}000", "%Y%m%d%H%M%S%f") + timedelta(seconds=1)
    return InstantTime(later.strftime("%Y%m%d%H%M%S%f")[: len(instant)])


def copy_table(source: Path, target: Path) -> None:
    """A copy that shares data files, which nobody changes."""
    shutil.rmtree(target, ignore_errors=True)

    def copy(file: str, to: str) -> None:
        (shutil.copy2 if ".hoodie" in file else os.link)(file, to)

    shutil.copytree(source, target, copy_function=copy)


def context_of(state: TableState, files: FileSizing) -> WriteContext:
    """What the tasks share."""
    schema = pa.schema([field for field in state.schema(state.latest) if field.name not in META_COLUMNS])
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    last = state.timeline.commits()[-1].completed_at
    assert last is not None
    instant = after(last)
    return WriteContext(
        storage=state.storage,
        config=state.config,
        schema=schema,
        avro_json=avro_schema(pa.schema([*meta, *schema]), name="append_record", namespace="hoodie.append"),
        instant=instant,
        stats_columns=(*META_COLUMNS, *schema.names),
        counts=CountedInstants(frozenset(), instant),
        files=files,
    )


def task_of(number: int, file_slice: FileSlice, context: WriteContext, updates: pa.Table) -> WriteTask:
    """The updates for one slice, with their positions in its base file."""
    partition = file_slice.group.partition
    rows = updates.filter(pc.equal(updates["city"], partition)).combine_chunks()
    keys = rows["uuid"].combine_chunks()
    stored = pq.read_table(context.storage.arrow_file(file_slice.paths[0]), columns=[RECORD_KEY])[RECORD_KEY]
    positions = pc.index_in(keys, value_set=stored.combine_chunks()).cast(pa.int64())
    assert positions.null_count == 0
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * len(keys), pa.int32()), pa.array([partition]))
    columns = {RECORD_KEY: keys, PARTITION_PATH: paths, **{name: rows[name] for name in context.schema.names}}
    prepared = InMemory(pa.table({**columns, POSITION: positions}))
    return WriteTask(context, number, file_slice.group, file_slice, prepared, f"{number}-0-0")


def compaction_seconds(home: Path, way: Way, peer: Peer) -> float:
    """The time for a write of one row that is followed by a compaction of all slices."""
    row = home / "row.parquet"
    pq.write_table(pq.read_table(home / "updates.parquet").slice(0, 1), row)
    options = {**TABLE, "hoodie.datasource.write.operation": "upsert"}
    options |= {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    said = peer.ask("write", path=str(home / way.name), rows=str(row), mode="append", options=options)
    if not any((home / way.name / ".hoodie" / "timeline").glob("*_*.commit")):
        raise RuntimeError(f"Apache Hudi compacted nothing of {way.name}")
    return float(said["seconds"])


def asked(peer: Peer, do: str, path: str) -> Measure:
    """A read by a peer, in the seconds that it says."""
    return lambda: float(peer.ask(do, path=path)["seconds"])


def in_turn(measures: Sequence[Measure], rounds: int) -> list[Times]:
    """All in turn, after one round that does not count, so that whatever else runs treats them alike."""
    spent: list[list[float]] = [[] for _ in measures]
    for number in range(rounds + 1):
        for seconds, measure in zip(spent, measures, strict=True):
            took = measure()
            if number:
                seconds.append(took)
    return [Times(tuple(seconds)) for seconds in spent]


def print_ways(rows: Sequence[tuple[str, list[str]]]) -> None:
    """One row per measurement, one column per way."""
    table = Table(title="log files, 10 groups x 10,000 rows", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("work", *(way.name for way in WAYS)):
        table.add_column(heading)
    for what, cells in rows:
        table.add_row(what, *cells)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
