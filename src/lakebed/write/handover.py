"""Rows that tasks of a Spark job hand over to the process that will write them: Arrow files in a folder of the job.

The job has no instant yet, so no heartbeat tells whether it is alive. Its rows count for nothing but the one commit
that is told their paths. A job that ends removes its folder; what a dead one left goes once it is a day old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from lakebed.clock import Clock
from lakebed.engine.randomness import new_token
from lakebed.errors import CorruptTableError, WriteConflictError
from lakebed.storage import Storage
from lakebed.transaction.settle import create_file, delete_file
from lakebed.write.conform import conform_batch
from lakebed.write.prepare import PreparePlan, prepare_batch

_TEMP = ".hoodie/.temp"
_PREFIX = "rows-"
_DEAD_AFTER = timedelta(days=1)
"""Time in which a job stages at least one file. One that does not is told to run again; nothing it did is lost."""


def new_folder() -> str:
    """A folder for the rows of one job."""
    return f"{_TEMP}/{_PREFIX}{new_token()}"


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


def sweep_rows(storage: Storage, clock: Clock) -> None:
    """Removes what jobs have staged that did not end."""
    newest: dict[str, datetime] = {}
    for listed in storage.list(_TEMP, recursive=True):
        folder = "/".join(listed.path.split("/")[:3])
        if folder.startswith(f"{_TEMP}/{_PREFIX}"):
            newest[folder] = max(listed.modified, newest.get(folder, listed.modified))
    now = datetime.fromtimestamp(clock.now_ms() / 1000, timezone.utc)
    for folder, modified in newest.items():
        if now - modified > _DEAD_AFTER:
            drop_rows(storage, folder)


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
            f"rows that this job staged are gone: {path}", hint="run it again; it was taken for dead after a day"
        ) from error
