"""The readers that a table must look the same to, and Apache Hudi as another writer of it."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interop.peer import HERE, HOME
from interop.test_reads import alike
from interop.write_histories import Model
from lakebed.api import open_table
from lakebed.engine.session import find_java_home
from lakebed.index.column_stats.ranges import find_column_ranges
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.files import FileSlice
from lakebed.model.words import META_COLUMNS, PARTITION_PATH, RECORD_KEY, TableType
from lakebed.read.file_slice import read_slice
from lakebed.read.scan import plan_scan
from lakebed.table import TableState, open_handle
from lakebed.view import list_data_files

WITH_METADATA = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
WITHOUT_METADATA = {"hoodie.metadata.enable": "false"}
STRICT_SKIPPING = {**WITH_METADATA, "hoodie.fileIndex.dataSkippingFailureMode": "strict"}
# What hudi-rs 0.5 fails at by itself: updates of some columns in a table whose columns became wider.
PEER_DEFECTS = ("partial-update column",)
_SECONDS_TO_END = 60


class PeerError(Exception):
    """What Apache Hudi or hudi-rs said when it failed at a request."""


class HudiPeer:
    """Apache Hudi and hudi-rs in a process of their own; one request at a time."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._numbers = itertools.count()
        if self._answer() != {"ready": True}:
            raise PeerError(f"Apache Hudi did not start, see {folder}/log")

    def read(self, path: Path, options: Mapping[str, str]) -> pa.Table:
        """The rows that Apache Hudi reads."""
        (rows,) = self.read_where(path, options, ["true"])
        return rows

    def read_where(self, path: Path, options: Mapping[str, str], filters: Sequence[str]) -> list[pa.Table]:
        """The rows that Apache Hudi reads by each of the filters."""
        outs = [self._file() for _ in filters]
        self.ask("read", path=str(path), outs=[str(out) for out in outs], options=dict(options), filters=[*filters])
        return [_taken(out) for out in outs]

    def read_rs(self, path: Path) -> pa.Table:
        """The rows that hudi-rs reads."""
        out = self._file()
        self.ask("read_rs", path=str(path), out=str(out))
        return _taken(out)

    def write(self, path: Path, rows: pa.Table, operation: str, options: Mapping[str, str]) -> None:
        """Has Apache Hudi write rows."""
        file = self._file()
        pq.write_table(rows, file)
        options = {**options, "hoodie.datasource.write.operation": operation}
        try:
            self.ask("write", path=str(path), rows=str(file), options=options)
        finally:
            file.unlink()

    def sql(self, *statements: str, settings: Mapping[str, str] | None = None) -> list[list[str]]:
        """Runs statements in the peer's session; the rows of the last."""
        rows: list[list[str]] = self.ask("sql", statements=list(statements), settings=dict(settings or {}))["rows"]
        return rows

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a request; PeerError if it failed."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        answer = self._answer()
        if "error" in answer:
            raise PeerError(f"{do}: {answer['error']}\n  see {self._folder}/log")
        return answer

    def end(self) -> None:
        """Closes its input and waits."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_SECONDS_TO_END)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"Apache Hudi ended, see {self._folder}/log")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _file(self) -> Path:
        return self._folder / f"{next(self._numbers)}.parquet"


@functools.cache
def running_peer() -> HudiPeer:
    """The one peer of this run, which ends with it; PeerError where it is not installed."""
    jars, python = sorted(HOME.glob("hudi-spark*.jar")), HOME / "venv" / "bin" / "python"
    java_home = find_java_home()
    if not jars or not python.exists() or java_home is None:
        raise PeerError("the Apache Hudi peers are not installed; `make interop` installs them (Java 17 needed)")
    folder = Path(tempfile.mkdtemp(prefix="hudi-peer-"))
    settings = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TZ": "UTC",
        "PYTHONPATH": "",
    }
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [python, HERE / "hudi_server.py", jars[-1], folder],
            env={**os.environ, **settings},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    peer = HudiPeer(process, folder)
    atexit.register(peer.end)
    return peer


def _taken(file: Path) -> pa.Table:
    rows = pq.read_table(file)
    file.unlink()
    return rows


def readers(peer: HudiPeer, path: Path) -> dict[str, Callable[[], pa.Table]]:
    """Everyone who reads the table, by name."""
    return {
        "lakebed": lambda: open_table(path).to_arrow(),
        "lakebed without metadata": lambda: open_table(path, options=WITHOUT_METADATA).to_arrow(),
        "Apache Hudi": lambda: peer.read(path, WITH_METADATA),
        "Apache Hudi without metadata": lambda: peer.read(path, WITHOUT_METADATA),
        "hudi-rs": lambda: peer.read_rs(path),
    }


def differences(peer: HudiPeer, path: Path, model: Model, without: tuple[str, ...] = ()) -> list[str]:
    """What each reader sees otherwise than the model says; `without` names readers to leave out."""
    found = []
    for name, read in readers(peer, path).items():
        if name not in without:
            try:
                found += [f"{name}: {line}" for line in difference(read(), model)]
            except Exception as error:
                if any(defect in str(error) for defect in PEER_DEFECTS):
                    continue
                found.append(f"{name} failed: {type(error).__name__}: {error}")
    return found


def difference(rows: pa.Table, model: Model, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> list[str]:
    """Lines about rows that are missing, extra, double or of other values than in the model."""
    expected = {key: row for key, row in model.rows.items() if wanted(row)}
    if rows.num_rows == 0:
        return [f"no rows of {len(expected)}"] if expected else []
    lines = list(_schema_difference(rows.schema, model.schema))
    given = [_plain(row) for row in rows.to_pylist()]
    keys = Counter((row[PARTITION_PATH], row[RECORD_KEY]) for row in given)
    lines += [f"{key} is there {count} times" for key, count in keys.items() if count > 1]
    lines += [f"{key} is missing" for key in expected.keys() - keys.keys()]
    for row in given:
        key = (row[PARTITION_PATH], row[RECORD_KEY])
        if key not in expected:
            lines.append(f"{key} is there, and should not: {row}")
            continue
        other = {
            name: (row.get(name), value) for name, value in _plain(expected[key]).items() if row.get(name) != value
        }
        if other:
            lines.append(f"{key} of {row['_hoodie_commit_time']} (read, expected): {other}")
    return lines[:6]


def _schema_difference(read: pa.Schema, expected: pa.Schema) -> Iterator[str]:
    names = [*META_COLUMNS, *expected.names]
    if read.names != names:
        yield f"columns {read.names}, expected {names}"
        return
    for column in expected:
        kind = read.field(column.name).type
        if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
            continue
        if not alike(kind, column.type):
            yield f"{column.name} is {kind}, expected {column.type}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astimezone(timezone.utc) if _is_zoned(value) else value for name, value in row.items()}


def _is_zoned(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def index_differences(path: Path, *, statistics: bool = True) -> list[str]:
    """Where the metadata table says otherwise than storage and a scan of the rows.

    Without `statistics` where Apache Hudi wrote base files: its bounds of a column that is null throughout are zeros.
    """
    state = open_handle(path).state()
    if not isinstance(state.metadata, MetadataTable):
        return [f"the metadata table is not used: {state.metadata.reason}"]
    lines = [*_listing_difference(state)]
    rows = {task.file_slice: read_slice(task) for task in plan_scan(state).tasks}
    if statistics and "column_stats" in state.metadata.ready:
        lines += _column_stats_difference(state, state.metadata, rows)
    if statistics and "partition_stats" in state.metadata.ready:
        lines += _partition_stats_difference(state, state.metadata, rows)
    if "record_index" in state.metadata.ready:
        lines += _record_index_difference(state.metadata, rows)
    return lines[:10]


def _listing_difference(state: TableState) -> Iterator[str]:
    def committed(files: Mapping[str, Any]) -> dict[tuple[str, str], int]:
        return {
            (partition, file.name): file.size
            for partition, of_partition in files.items()
            for file in of_partition
            if state.latest.completion_of(file.instant) is not None
        }

    known, stored = committed(state.files), committed(list_data_files(state.storage))
    for name in sorted(known.keys() | stored.keys()):
        if known.get(name) != stored.get(name):
            yield f"file {name} has size {stored.get(name)}, in the metadata table {known.get(name)}"


def _ranged(state: TableState) -> list[pa.Field]:
    """The columns that have statistics."""
    indexed = state.definitions["column_stats"].source_fields
    return [column for column in state.schema(state.latest) if column.name in indexed]


def _column_stats_difference(
    state: TableState, metadata: MetadataTable, rows: Mapping[FileSlice, pa.Table]
) -> Iterator[str]:
    for column in _ranged(state):
        ranges = find_column_ranges(metadata, "column_stats", column.name, column.type)
        by_file = {entry["file_name"]: entry for entry in ranges.to_pylist()}
        for file_slice, of_slice in rows.items():
            if file_slice.base is None:
                continue
            entry = by_file.get(file_slice.base.name)
            if not file_slice.logs and entry is not None:
                yield from _bounds_difference(f"{column.name} in {file_slice.base.name}", entry, of_slice[column.name])
            if entry is None and column.name in _filled_columns(state, file_slice):
                yield f"{column.name} in {file_slice.base.name} has no column stats"


def _filled_columns(state: TableState, file_slice: FileSlice) -> list[str]:
    """The columns of the base file; none if it has no rows, as after a compaction of deletes: then it has no stats."""
    assert file_slice.base is not None
    path = "/".join(filter(None, (file_slice.group.partition, file_slice.base.name)))
    footer = pq.read_metadata(f"{state.storage.url}/{path}")
    names: list[str] = footer.schema.to_arrow_schema().names if footer.num_rows else []
    return names


def _partition_stats_difference(
    state: TableState, metadata: MetadataTable, rows: Mapping[FileSlice, pa.Table]
) -> Iterator[str]:
    by_partition: dict[str, list[pa.Table]] = {}
    for file_slice, of_slice in rows.items():
        by_partition.setdefault(file_slice.group.partition, []).append(of_slice)
    is_exact = state.config.table_type is TableType.COPY_ON_WRITE
    # What a writer did not mark as tight, since another engine wrote at the same time, may be wider than the rows.
    for column in _ranged(state):
        ranges = find_column_ranges(metadata, "partition_stats", column.name, column.type)
        known = {entry["file_name"]: entry for entry in ranges.to_pylist()}
        for partition, tables in by_partition.items():
            values = pa.concat_tables(tables)[column.name]
            if partition not in known:
                if values.null_count < len(values):
                    yield f"{column.name} in partition {partition!r} has no partition stats"
            elif is_exact and known[partition]["is_tight_bound"]:
                yield from _bounds_difference(f"{column.name} in {partition}", known[partition], values)
            else:
                yield from _outside(f"{column.name} in {partition}", known[partition], values)


def _bounds_difference(what: str, entry: dict[str, Any], values: pa.ChunkedArray) -> Iterator[str]:
    bounds = pc.min_max(values).as_py()
    counts = {"null_count": values.null_count, "value_count": len(values)}
    for name, value in {**bounds, **counts}.items():
        if entry[name] != value:
            yield f"{name} of {what} is {value}, in the metadata table {entry[name]}"


def _outside(what: str, entry: dict[str, Any], values: pa.ChunkedArray) -> Iterator[str]:
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None or entry["min"] is None:
        return
    if entry["min"] > bounds["min"] or entry["max"] < bounds["max"]:
        yield f"{what} has values from {bounds['min']} to {bounds['max']}, in the metadata table {entry}"


def _record_index_difference(metadata: MetadataTable, rows: Mapping[FileSlice, pa.Table]) -> Iterator[str]:
    expected = {
        (key, partition, file_slice.group.file_id)
        for file_slice, of_slice in rows.items()
        for key, partition in zip(of_slice[RECORD_KEY].to_pylist(), of_slice[PARTITION_PATH].to_pylist(), strict=True)
    }
    entries = read_record_index(metadata)
    columns = (entries[column].to_pylist() for column in ("key", "partition", "file_id"))
    found = list(zip(*columns, strict=True))
    for entry in sorted({*found} ^ expected):
        yield f"record index: {entry} is {'extra' if entry in found else 'missing'}"
