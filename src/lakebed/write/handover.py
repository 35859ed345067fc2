"""The staging area of a Spark job: Arrow files in a folder of the job, to be written by another process.

The job has no instant yet. So each of its tasks, and the process that writes its rows, keeps a heartbeat in the folder:
the job is alive while some file there is younger than the heartbeat timeout, by the clock of the store. Only the commit
that is given the paths uses the rows. A job that ends removes its folder; the next sweep removes those of dead jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from lakebed.engine.randomness import new_token
from lakebed.errors import CorruptTableError, WriteConflictError
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file, delete_file, replace_file
from lakebed.transaction.heartbeats import Timing, storage_time
from lakebed.transaction.ports import Ports
from lakebed.write.rows.conform import conform_batch
from lakebed.write.rows.prepare import PreparePlan, prepare_batch

_TEMP = ".hoodie/.temp"
_PREFIX = "rows-"
_BEAT = ".beat"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The staged files of a job, and when the last one was written, by the clock of the store."""

    folder: str
    files: int
    bytes: int
    modified: datetime


def new_folder() -> str:
    """A new folder name for the rows of one job."""
    return f"{_TEMP}/{_PREFIX}{new_token()}"


@contextmanager
def kept_alive(ports: Ports, timing: Timing, folder: str) -> Iterator[None]:
    """Writes heartbeats to the folder of a job in the body; none if it ends before the first is due."""
    path, beats = f"{folder}/{ports.tokens()}{_BEAT}", 0

    def beat() -> bool:
        nonlocal beats
        beats += 1
        replace_file(ports.storage, path, str(beats).encode())
        return True

    stop = ports.background.every(timing.heartbeat_seconds, beat)
    try:
        yield
    finally:
        stop()
        if beats:
            delete_file(ports.storage, path)


def hand_over(
    storage: Storage,
    folder: str,
    columns: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    check: PreparePlan | None = None,
) -> str | None:
    """Stages rows in a new file with `columns`; returns its path, None if there are no rows.

    Raises InvalidInputError for rows that cannot be prepared by the plan `check`, so that no table is created for them.
    """
    sink, rows = pa.BufferOutputStream(), 0
    with pa.ipc.new_file(sink, columns) as writer:
        for batch in batches:
            given = conform_batch(batch, columns, first_row=rows)
            if check is not None:
                prepare_batch(given, check, first_row=rows)
            writer.write_batch(given)
            rows += batch.num_rows
    if not rows:
        return None
    path = f"{folder}/{new_token()}.arrow"
    create_file(storage, path, sink.getvalue().to_pybytes())
    return path


def take_over(storage: Storage, paths: Iterable[str], columns: pa.Schema) -> pa.RecordBatchReader:
    """Reads staged rows, file by file."""
    return pa.RecordBatchReader.from_batches(columns, _read(storage, paths))


def drop_rows(storage: Storage, folder: str) -> None:
    """Deletes the staged files of a job."""
    for listed in storage.list(folder):
        delete_file(storage, listed.path)


def sweep_rows(ports: Ports, timing: Timing) -> None:
    """Deletes the staged files of dead jobs, by the rule for heartbeats."""
    if not list_staged(ports.storage):
        return
    # Take the time first: if this process pauses in between, others look younger than they are, never older.
    now = storage_time(ports)
    for folder, staged in list_staged(ports.storage).items():
        if now - staged.modified > timing.dead_after:
            drop_rows(ports.storage, folder)


def list_staged(storage: Storage) -> Mapping[str, StagedRows]:
    """Staged rows of jobs that have not ended, by folder."""
    found: dict[str, StagedRows] = {}
    for listed in storage.list(_TEMP, recursive=True):
        folder = "/".join(listed.path.split("/")[:3])
        if folder.startswith(f"{_TEMP}/{_PREFIX}"):
            seen = found.get(folder, StagedRows(folder, 0, 0, listed.modified))
            rows = 0 if listed.path.endswith(_BEAT) else 1
            found[folder] = StagedRows(
                folder, seen.files + rows, seen.bytes + rows * listed.size, max(seen.modified, listed.modified)
            )
    return found


def _read(storage: Storage, paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with _open(storage, path) as file:
            reader = pa.ipc.open_file(file)
            yield from (reader.get_batch(number) for number in range(reader.num_record_batches))


def _open(storage: Storage, path: str) -> pa.NativeFile:
    try:
        return storage.arrow_file(path)
    except CorruptTableError as error:
        raise WriteConflictError(
            f"rows that this job staged are gone: {path}",
            hint="run it again: its tasks wrote no heartbeat for too long, so the staging area was removed",
        ) from error
