"""Rows that tasks of a Spark job hand over to the process that will write them: Arrow files in a folder of the job.

The job has no instant yet. So each task of it, and the process that writes its rows, keeps a heartbeat of its own in
the folder: the job is alive while something there is as young as a heartbeat has to be, by the clock of the store. Its
rows count for nothing but the one commit that is told their paths. A job that ends removes its folder; what a dead one
left goes with the next sweep.
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
    """What tasks of a job have staged, and when it gave its last sign of life, by the clock of the store."""

    folder: str
    files: int
    bytes: int
    modified: datetime


def new_folder() -> str:
    """A folder for the rows of one job."""
    return f"{_TEMP}/{_PREFIX}{new_token()}"


@contextmanager
def kept_alive(ports: Ports, timing: Timing, folder: str) -> Iterator[None]:
    """Keeps a heartbeat in the folder of a job while its rows are staged or written; none if that takes no time."""
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
    """Puts rows into a new file, with `columns`; its path, or None if there are no rows.

    Rows that cannot be prepared as `check` says raise InvalidInputError: the table that they are for may not be there
    yet, and is not to be made for nothing.
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
    """The rows of files, in the order of these."""
    return pa.RecordBatchReader.from_batches(columns, _read(storage, paths))


def drop_rows(storage: Storage, folder: str) -> None:
    """Removes what tasks of a job have staged."""
    for listed in storage.list(folder):
        delete_file(storage, listed.path)


def sweep_rows(ports: Ports, timing: Timing) -> None:
    """Removes what jobs have staged that are dead, by the rule for heartbeats."""
    if not list_staged(ports.storage):
        return
    # The time comes first: if this process pauses in between, others look younger than they are, never older.
    now = storage_time(ports)
    for folder, staged in list_staged(ports.storage).items():
        if now - staged.modified > timing.dead_after:
            drop_rows(ports.storage, folder)


def list_staged(storage: Storage) -> Mapping[str, StagedRows]:
    """What jobs have staged that did not end, by their folders."""
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
