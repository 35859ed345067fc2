"""Apache Hudi and lakebed write to one table at the same time, under a lock that both know.

For LAKEBED_SECONDS (default 120) per kind of table, with the seed LAKEBED_SEED (default 1). Each writer has keys of its
own, and both update some that they share. A write either is acknowledged, and then its rows stay, or fails with the
error for conflicts, and then none of its rows is ever seen. Filters find the rows, too: statistics leave none out.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from interop.write_histories import BASE_COLUMNS, Model, WriteDesign, WriteStep
from interop.write_peer import (
    STRICT_SKIPPING,
    HudiPeer,
    PeerError,
    difference,
    differences,
    index_differences,
    running_peer,
)
from lakebed.api import Table, create_table, open_table
from lakebed.errors import LakebedError, LockUnavailableError, WriteConflictError

pytestmark = pytest.mark.interop

SECONDS = float(os.environ.get("LAKEBED_SECONDS", "120"))
SEED = int(os.environ.get("LAKEBED_SEED", "1"))
LOCK = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.num_retries": "60",
    "hoodie.write.lock.client.num_retries": "60",
    "hoodie.write.lock.wait_time_ms_between_retry": "500",
}
CONCURRENT = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
# How Apache Hudi says that another write was first.
CONFLICTS = ("HoodieWriteConflictException", "ConcurrentModificationException", "HoodieLockException")
SCHEMA = pa.schema([column for column in BASE_COLUMNS if column.name in ("id", "region", "ts", "num", "price")])


@pytest.mark.parametrize(
    "design",
    [WriteDesign(mor=False, partitioned=True), WriteDesign(mor=True, partitioned=True)],
    ids=lambda design: design.name,
)
def test_no_acknowledged_write_is_lost(tmp_path: Path, design: WriteDesign) -> None:
    path, peer = tmp_path / "table", running_peer()
    create_table(path, **{**design.create_arguments, "schema": SCHEMA})
    mine = open_table(path, options={**design.write_options, **LOCK})
    clock = Clock()
    shared = tuple(f"shared{i:02d}" for i in range(12))
    first = rows_for(Random(SEED), shared, clock)
    mine.upsert(first)
    theirs = {**design.hudi_options, **LOCK, **CONCURRENT, "hoodie.table.name": "table"}

    stop = time.monotonic() + SECONDS
    ours = Writer("lakebed", Random(SEED + 1), shared, clock, lambda step: write_with_lakebed(mine, step), pause=2)
    peers = Writer(
        "hudi", Random(SEED + 2), shared, clock, lambda step: peer.write(path, step.rows, step.operation, theirs)
    )
    together(lambda: ours.run(stop), lambda: peers.run(stop))

    about = f"seed {SEED}, {path}\n{ours.about()}\n{peers.about()}"
    assert not ours.failures, about
    assert not peers.failures, about
    assert ours.done, about
    assert peers.done, about
    model = Model(design, SCHEMA)
    model.apply(WriteStep("upsert", first))
    for step in sorted([*ours.done, *peers.done], key=lambda step: step.clock):
        model.apply(WriteStep("upsert" if step.operation == "upsert" else "delete_rows", step.rows))
    # Apache Hudi without metadata loses log files behind a base file that a write of its own left which failed.
    lines = differences(peer, path, model, without=("Apache Hudi without metadata",))
    mine.services.rollback_failed_writes()
    lines += [*differences(peer, path, model), *index_differences(path), *lost_instants(mine, ours)]
    lines += filter_differences(peer, path, model)
    assert not lines, "\n".join([*lines, about])


@dataclass(frozen=True)
class Write:
    """Rows, what is done with them, and when it was made up."""

    operation: str
    rows: pa.Table
    clock: int


class Clock:
    """Ordering values for both writers: each is given out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 1000

    def next(self) -> int:
        with self._lock:
            self._now += 1
            return self._now


@dataclass
class Writer:
    """One of the two: it writes until it is time to stop, and keeps what came of it."""

    name: str
    random: Random
    shared: tuple[str, ...]
    clock: Clock
    write: Callable[[Write], Any]
    pause: float = 0.0
    done: list[Write] = field(default_factory=list)
    instants: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    def run(self, stop: float) -> None:
        """Writes; a conflict is no failure."""
        while time.monotonic() < stop and not self.failures:
            time.sleep(self.pause * self.random.random())
            step = self.next_write()
            try:
                instant = self.write(step)
            except (PeerError, LakebedError) as error:
                is_conflict = (
                    isinstance(error, (WriteConflictError, LockUnavailableError))
                    if isinstance(error, LakebedError)
                    else any(name in str(error) for name in CONFLICTS)
                )
                (self.conflicts if is_conflict else self.failures).append(f"{type(error).__name__}: {error}"[:1500])
                continue
            self.done.append(step)
            self.instants += [] if instant is None else [instant]
            self.own += [key for key in step.rows["id"].to_pylist() if key not in (*self.shared, *self.own)]
            if step.operation == "delete":
                self.own = [key for key in self.own if key not in step.rows["id"].to_pylist()]

    def next_write(self) -> Write:
        """Mostly upserts: of own keys, old and new, and at times of shared ones; deletes of own keys."""
        if len(self.own) > 20 and self.random.random() < 0.25:
            return self._make("delete", self.random.sample(self.own, 3))
        shared = self.random.sample(self.shared, self.random.choice([0, 0, 0, 2]))
        old = self.random.sample(self.own, min(4, len(self.own)))
        number = self.clock.next()
        return self._make("upsert", [*shared, *old, *(f"{self.name}{number}-{i}" for i in range(3))])

    def about(self) -> str:
        """What it did."""
        return (
            f"{self.name}: {len(self.done)} writes, {len(self.conflicts)} conflicts {self.conflicts[:1]}, "
            f"failures {self.failures}"
        )

    def _make(self, operation: str, keys: list[str]) -> Write:
        rows = rows_for(self.random, keys, self.clock)
        return Write(operation, rows, rows["ts"][0].as_py())


def region_of(key: str) -> str:
    """Each writer has a region of its own; shared keys lie in both."""
    return "us" if key.startswith("lakebed") else "eu" if key.startswith("hudi") else ("us", "eu")[int(key[-1]) % 2]


def rows_for(random: Random, keys: Sequence[str], clock: Clock) -> pa.Table:
    """New rows; a key is always in the same region."""
    ts = clock.next()
    rows = [
        {
            "id": key,
            "region": region_of(key),
            "ts": ts,
            "num": random.randrange(1000),
            "price": random.random(),
        }
        for key in keys
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def write_with_lakebed(table: Table, step: Write) -> str:
    """The instant of the write."""
    result = table.upsert(step.rows) if step.operation == "upsert" else table.delete(step.rows)
    return str(result.instant)


def lost_instants(table: Table, writer: Writer) -> list[str]:
    """Acknowledged writes of lakebed that the active timeline should have, and has not."""
    known = {str(instant.requested_at) for instant in table.timeline.commits()}
    first = min(known, default="")
    return [
        f"{instant} is not on the timeline" for instant in writer.instants if instant >= first and instant not in known
    ]


def filter_differences(peer: HudiPeer, path: Path, model: Model) -> list[str]:
    """What each engine finds otherwise by filters that only the outermost rows of a partition match."""
    found = []
    for column in ("num", "ts", "id"):
        values = {choose(row[column] for row in of_region) for of_region in by_region(model) for choose in (min, max)}
        filters = {value: f"{column} = {value!r}" for value in values}
        theirs = peer.read_where(path, STRICT_SKIPPING, [*filters.values()])
        for (value, where), rows in zip(filters.items(), theirs, strict=True):
            for name, given in (("Apache Hudi", rows), ("lakebed", open_table(path).to_arrow(where=where))):
                lines = difference(given, model, lambda row, column=column, value=value: row[column] == value)
                found += [f"{name}, {where}: {line}" for line in lines]
    return found


def by_region(model: Model) -> list[list[dict[str, Any]]]:
    """The rows of each region."""
    regions: dict[str, list[dict[str, Any]]] = {}
    for row in model.rows.values():
        regions.setdefault(row["region"], []).append(row)
    return [*regions.values()]


def together(*tasks: Callable[[], None]) -> None:
    """Runs functions at the same time."""
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
