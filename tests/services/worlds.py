"""Small tables with a history, and processes that die at a chosen call to the store."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from lakebed.api import Table, create_table
from lakebed.clock import SystemClock
from lakebed.services.indexing.indexes import Indexes
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import FaultyStorage
from lakebed.table import TableHandle
from lakebed.timeline.config import load_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Ports
from lakebed.transaction.transactions import Transactions

CITIES = ("oslo", "lima", "rome")


class NoBackground:
    """Nothing goes on meanwhile."""

    def later(self, action: Callable[[], None]) -> None:
        action()

    def drain(self) -> None:
        pass

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        del seconds, action
        return lambda: None


def rows(first: int, count: int, ts: int = 1, prefix: str = "k") -> pa.Table:
    """Rows with consecutive keys, spread over three cities."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"{prefix}{n:03d}" for n in numbers],
            "city": [CITIES[n % 3] for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [n / 2 for n in numbers],
        }
    )


def made(
    path: Path | str, table_type: str = "cow", *, partitioned: bool = True, indexes: tuple[str, ...] = ()
) -> Table:
    """A table with inserts, updates and deletes; on merge-on-read most of them are in log files."""
    table = create_table(
        path,
        schema=rows(0, 1).schema,
        key="id",
        partition_by="city" if partitioned else None,
        ordering="ts",
        table_type=table_type,
        indexes=indexes,
    )
    table.upsert(rows(0, 60))
    table.upsert(rows(20, 20, ts=2))
    table.delete([f"k{n:03d}" for n in range(25, 30)])
    return table


def indexes_on(storage: Storage) -> Indexes:
    """The indexes of a table on a storage, worked on by a process of its own."""
    tokens = itertools.count()
    ports = Ports(
        storage,
        SystemClock(),
        InProcessLock(storage.url, SystemClock(), Patience()),
        NoBackground(),
        lambda: f"token{next(tokens)}",
    )
    handle = TableHandle(storage, load_config(storage))
    return Indexes(handle, lambda: Transactions(ports, Timing()), {})


def faulty(path: Path, plan: Callable[..., object]) -> FaultyStorage:
    """The table's storage, with faults."""
    return FaultyStorage(open_storage(path), plan)  # type: ignore[arg-type]


def contents(table: Table) -> list[tuple[str, int]]:
    """What the rows say."""
    found = table.to_arrow(columns=["id", "ts"])
    return sorted(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))
