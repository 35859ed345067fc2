"""Small tables for tests of services, with a model of what every commit left behind."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.engine.engines import InProcess
from lakebed.format.properties import encode_properties
from lakebed.model.instant import InstantTime
from lakebed.options import parse_write_options
from lakebed.services.values import ServiceContext
from lakebed.storage import Storage
from lakebed.storage.faults import NEVER_REFUSED, FaultyStorage
from lakebed.table import TableHandle
from lakebed.timeline.config import load_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.locks.local import InProcessLock
from lakebed.transaction.locks.waiting import Patience
from lakebed.transaction.ports import Ports
from lakebed.transaction.transactions import Transactions
from tables import TRIPS as SCHEMA

BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
CITIES = ("oslo", "lima", "rome")
Rows = list[dict[str, Any]]
_NUMBERS = itertools.count()


def row(number: int, ts: int) -> dict[str, Any]:
    return {"id": f"k{number}", "city": CITIES[number % 3], "ts": ts, "fare": float(ts)}


def rows_of(table: lakebed.Table, **options: Any) -> Rows:
    found = table.to_arrow(columns=SCHEMA.names, **options).to_pylist()
    return sorted(found, key=lambda each: (each["city"], each["id"]))


@dataclass
class Modelled:
    """A table and the rows that each of its commits left, by requested time."""

    table: lakebed.Table
    path: Path
    rows: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    past: dict[InstantTime, Rows] = field(default_factory=dict)

    @property
    def storage(self) -> Storage:
        return self.table._handle.storage

    def upsert(self, numbers: Iterable[int], ts: int) -> InstantTime:
        rows = [row(number, ts) for number in numbers]
        self.rows |= {(each["city"], each["id"]): each for each in rows}
        return self._noted(self.table.upsert(pa.Table.from_pylist(rows, SCHEMA)).instant)

    def delete(self, numbers: Iterable[int]) -> InstantTime:
        keys = [row(number, 0) for number in numbers]
        for each in keys:
            self.rows.pop((each["city"], each["id"]), None)
        return self._noted(self.table.delete([each["id"] for each in keys]).instant)

    def overwrite(self, numbers: Iterable[int], ts: int) -> InstantTime:
        rows = [row(number, ts) for number in numbers]
        self._drop({each["city"] for each in rows})
        self.rows |= {(each["city"], each["id"]): each for each in rows}
        return self._noted(self.table.overwrite(pa.Table.from_pylist(rows, SCHEMA)).instant)

    def delete_partition(self, city: str) -> InstantTime:
        self._drop({city})
        return self._noted(self.table.delete_partitions(city).instant)

    def check_now(self) -> None:
        """The newest rows, by the metadata table and by listing folders; and every listed file is there."""
        assert rows_of(self.table) == self.expected()
        listing = lakebed.open_table(self.path, options={"hoodie.metadata.enable": "false"})
        assert rows_of(listing) == self.expected()
        check_files(self.table)

    def check_past(self, instants: Iterable[InstantTime]) -> None:
        for instant in instants:
            assert rows_of(self.table, as_of=instant) == self.past[instant], instant

    def readable(self) -> set[InstantTime]:
        """The commits as of which the table can still be read; those that can are read right."""
        found = set()
        for instant in self.past:
            try:
                rows = rows_of(self.table, as_of=instant)
            except lakebed.InvalidInputError:
                continue
            assert rows == self.past[instant], instant
            found.add(instant)
        return found

    def expected(self) -> Rows:
        return sorted(self.rows.values(), key=lambda each: (each["city"], each["id"]))

    def _drop(self, cities: set[str]) -> None:
        self.rows = {key: each for key, each in self.rows.items() if key[0] not in cities}

    def _noted(self, instant: InstantTime) -> InstantTime:
        self.past[instant] = self.expected()
        return instant


def check_files(table: lakebed.Table) -> None:
    """The metadata table lists exactly the data files that are there."""
    state = table._handle.state()
    listed = {f"{partition}/{file.name}" for partition, files in state.files.items() for file in files}
    assert listed == data_files(state.storage)


def data_files(storage: Storage) -> set[str]:
    found = {listed.path for listed in storage.list("", recursive=True)}
    return {path for path in found if not path.startswith(".hoodie/") and "hoodie_partition_metadata" not in path}


def new_table(folder: Path, table_type: str = "cow", **given: Any) -> Modelled:
    path = folder / f"t{next(_NUMBERS)}"
    asked = {"schema": SCHEMA, "key": "id", "partition_by": "city", "ordering": "ts", "table_type": table_type} | given
    asked["options"] = {**BY_HAND, **asked.get("options", {})}
    return Modelled(lakebed.create_table(path, **asked), path)


def copy_of(table: Modelled, path: Path) -> Modelled:
    shutil.copytree(table.path, path)
    return Modelled(lakebed.open_table(path), path, dict(table.rows), dict(table.past))


def crash_points(table: Modelled, path: Path, work: Callable[[Storage], object]) -> list[int]:
    """The calls after which a crash leaves a state of its own: those that write, in one run of the work on a copy."""
    storage = FaultyStorage(copy_of(table, path).storage)
    assert work(storage) is not None, "there must be something to do"
    shutil.rmtree(path)
    return [traced.call.number for traced in storage.trace if traced.call.possible >= NEVER_REFUSED]


def without_metadata(table: Modelled) -> Modelled:
    """The same new table, without a metadata table."""
    properties = {k: v for k, v in table.table.config.properties.items() if "metadata.partitions" not in k}
    path = Path(table.path, ".hoodie/hoodie.properties")
    path.write_bytes(encode_properties(properties, comment="test", date="today"))
    shutil.rmtree(Path(table.path, ".hoodie/metadata"))
    shutil.rmtree(Path(table.path, ".hoodie/.index_defs"), ignore_errors=True)
    return Modelled(lakebed.open_table(table.path), table.path)


def age_heartbeats(table: Modelled) -> None:
    """Makes every process that is at work on the table look dead."""
    for path in Path(table.path, ".hoodie/.heartbeat").glob("*"):
        old = path.stat().st_mtime - 10_000
        os.utime(path, (old, old))


def context_of(table: lakebed.Table) -> ServiceContext:
    return ServiceContext(table._handle, table._transactions, InProcess(1), parse_write_options({}))


def context_on(storage: Storage, *, timing: Timing | None = None) -> ServiceContext:
    """A context of another process, whose every storage call goes through `storage`."""
    from lakebed.clock import SystemClock

    clock, numbers = SystemClock(), itertools.count()
    lock = InProcessLock(storage.url, clock, Patience())
    ports = Ports(storage, clock, lock, _NoBackground(), lambda: f"p{next(_NUMBERS)}t{next(numbers)}")
    transactions = Transactions(ports, timing or Timing())
    return ServiceContext(
        TableHandle(storage, load_config(storage)), transactions, InProcess(1), parse_write_options({})
    )


class _NoBackground:
    def later(self, action: Any) -> None:
        action()

    def drain(self) -> None:
        pass

    def every(self, seconds: float, action: Any) -> Any:
        return lambda: None
