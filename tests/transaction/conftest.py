from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.clock import SystemClock
from lakebed.format.properties import encode_properties
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.storage import Storage, open_storage
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Ports
from lakebed.transaction.transactions import Transactions

PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.timeline.timezone": "UTC",
}


class NoBackground:
    """Beats only when a test says so."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], bool]] = []

    def later(self, action: Callable[[], None]) -> None:
        action()

    def drain(self) -> None:
        pass

    def every(self, seconds: float, action: Callable[[], bool]) -> Callable[[], None]:
        self.actions.append(action)
        return lambda: self.actions.remove(action) if action in self.actions else None


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = open_storage(tmp_path / "t")
    storage.create(".hoodie/hoodie.properties", encode_properties(PROPERTIES, comment="test", date="today"))
    return storage


@pytest.fixture
def transactions(storage: Storage) -> Transactions:
    return Transactions(ports_of(storage), Timing())


def ports_of(storage: Storage) -> Ports:
    numbers = itertools.count()
    return Ports(
        storage,
        SystemClock(),
        InProcessLock(storage.url, SystemClock(), Patience()),
        NoBackground(),
        lambda: f"token{next(numbers)}",
    )


def commit_of(file_id: str, instant: str, partition: str = "p", prev: str | None = None) -> CommitMetadata:
    path = f"{partition}/{file_id}_0-0-0_{instant}.parquet"
    return CommitMetadata({partition: (WriteStat(file_id, path, partition, prev_commit=prev),)}, operation="UPSERT")
