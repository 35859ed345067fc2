"""Committing a write that another process prepared and did not live to commit."""

from __future__ import annotations

from functools import partial
from typing import Any

from lakebed.commit.commit import commit
from lakebed.commit.prepared import PreparedCommit
from lakebed.commit.stored import decode_prepared, encode_prepared
from lakebed.engine.engines import map_tasks
from lakebed.errors import InvalidInputError, RolledBackError
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file
from lakebed.table import TableHandle
from lakebed.transaction.markers import marker_folder
from lakebed.transaction.transactions import Transactions
from lakebed.write.plane import DataPlane
from lakebed.write.writer import undone_on_failure


def prepared_path(instant: InstantTime) -> str:
    """Where the prepared commit of a write lies: beside its markers, with which it goes."""
    return f"{marker_folder(instant)}/prepared.zip"


def store_prepared(storage: Storage, prepared: PreparedCommit, table: str) -> str:
    """Stores a prepared commit of the table with that name; the path."""
    path = prepared_path(prepared.instant)
    create_file(storage, path, encode_prepared(prepared, table))
    return path


def recommit(
    handle: TableHandle, transactions: Transactions, plane: DataPlane[Any, Any, Any], data: bytes, *, path: str
) -> InstantTime:
    """Commits a prepared write of a dead process; the completion time.

    Raises, with nothing written, if the value is not of this table or cannot be decoded, if the write was committed or
    rolled back, or if its process is alive. A write that conflicts by now is rolled back.
    """
    prepared, table = decode_prepared(data, handle.storage, path=path)
    if table != handle.config.name:
        raise InvalidInputError(
            f"{path} is a prepared commit of table {table}, not of {handle.config.name}",
            hint="open the table that the write was prepared for",
        )
    _check_files(handle.storage, prepared)
    attempt = transactions.take_over(prepared.instant, prepared.action)
    with undone_on_failure(transactions, attempt):
        _check_files(handle.storage, prepared)
        state = handle.state()
        entries, recheck = plane.entries(state, prepared, None), partial(plane.recheck, state, prepared, None)
        return commit(transactions, attempt, prepared, entries, check=recheck)


def _check_files(storage: Storage, prepared: PreparedCommit) -> None:
    """Raises if a file of the write is missing, or has another size."""
    stats = [file.stat for file in prepared.facts if file.stat.path]
    for stat, size in zip(stats, map_tasks([stat.path for stat in stats], storage.size), strict=True):
        if size != stat.file_size:
            what = "is missing" if size is None else f"has {size} bytes instead of {stat.file_size}"
            raise RolledBackError(
                f"{stat.path} of the prepared write {prepared.instant} {what}",
                hint="run the write again: its files were removed, as a rollback does",
            )
