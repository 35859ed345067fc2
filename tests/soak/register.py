"""The table under test: rows are lists to which writes append their number, so each read shows the order of writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

import lakebed
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.table import TableState, open_handle
from lakebed.write.operations import UPSERT
from lakebed.write.rows.prepare import PreparePlan, prepare_batch
from lakebed.write.rows.prepare import plan_prepare as plan_columns
from lakebed.write.staging import Prepared, RowSource
from lakebed.write.writer import WriteResult

PARTITIONS = 6
KEYS = tuple(f"k{number:02d}" for number in range(2 * PARTITIONS))
SCHEMA = pa.schema(
    [("key", pa.string()), ("part", pa.string()), ("numbers", pa.list_(pa.int64())), ("length", pa.int64())]
)
LEASE_SECONDS = 15
HEARTBEAT_MISSES = 2
_PROVIDER = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
LOCKS: Mapping[str, Mapping[str, str]] = {
    "local": {},
    "lease": {
        "hoodie.write.lock.provider": _PROVIDER,
        "hoodie.write.lock.storage.validity.timeout.secs": str(LEASE_SECONDS),
        "hoodie.write.lock.storage.renew.interval.secs": "1",
        "hoodie.write.lock.wait_time_ms_between_retry": "100",
    },
}
"""The locks that a run can have, as options of the table."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table lies, the lock that its writers share, and options of the object store, if it lies in one."""

    url: str
    lock: str = "local"
    store: Mapping[str, str] = field(default_factory=dict)

    @property
    def heartbeat_seconds(self) -> int:
        """Short, so that recovery happens within seconds; an object store tells times in whole seconds."""
        return 3 if self.store else 1

    @property
    def dead_after_seconds(self) -> int:
        """Of this age a heartbeat is that of a dead process."""
        return self.heartbeat_seconds * (HEARTBEAT_MISSES + 1)

    @property
    def options(self) -> dict[str, str]:
        """Options of writers. Nothing is cleaned or archived: every write is read again when the run is over."""
        return {
            "hoodie.client.heartbeat.interval_in_ms": str(self.heartbeat_seconds * 1000),
            "hoodie.client.heartbeat.tolerable.misses": str(HEARTBEAT_MISSES),
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            **LOCKS[self.lock],
            **self.store,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read, and the instant that wrote it."""

    key: str
    numbers: tuple[int, ...]
    instant: str


def create_register(place: Place, table_type: str, *, indexes: Sequence[str] = ()) -> lakebed.Table:
    """An empty table for lists."""
    return lakebed.create_table(
        place.url,
        schema=SCHEMA,
        key="key",
        partition_by="part",
        ordering="length",
        table_type=table_type,
        indexes=indexes,
        options=place.options,
    )


def open_register(place: Place) -> lakebed.Table:
    """The table, to write to."""
    return lakebed.open_table(place.url, options=place.options)


def open_for_reading(place: Place, *, use_metadata: bool = True) -> lakebed.Table:
    """The table, to read from: by the metadata table's listing, or by that of the store."""
    options = {} if use_metadata else {"hoodie.metadata.enable": "false"}
    return lakebed.open_table(place.url, options={**options, **place.store})


def open_state(place: Place, *, use_metadata: bool = True) -> TableState:
    """The table as it stands."""
    return open_handle(place.url, place.store, use_metadata=use_metadata).state()


def read_rows(table: lakebed.Table, as_of: str | None = None) -> tuple[Row, ...]:
    """All rows of a snapshot, by key."""
    found = table.to_arrow(columns=["_hoodie_commit_time", "key", "numbers"], as_of=as_of)
    rows = (Row(row["key"], tuple(row["numbers"]), row["_hoodie_commit_time"]) for row in found.to_pylist())
    return tuple(sorted(rows, key=lambda row: row.key))


def partition_of(key: str) -> str:
    """The partition that a key lies in."""
    return f"p{KEYS.index(key) % PARTITIONS}"


Planned = Callable[[str, Mapping[str, tuple[int, ...]]], None]
"""Told the instant of a write and the lists that it found."""


def append(place: Place, table: lakebed.Table, keys: Sequence[str], number: int, planned: Planned) -> WriteResult:
    """Appends a number to the lists of keys, in one upsert whose rows are read once its snapshot stands.

    `Table.upsert` takes rows that are at hand before the write begins, and what commits in between is part of its
    snapshot: no conflict. A read after the snapshot was taken makes every lost update a conflict.
    """
    writes = table._writes
    state = table._handle.state()
    columns = plan_columns(state.config, state.data_schema(state.latest), SCHEMA)
    source = open_for_reading(place)

    def lists(instant: InstantTime) -> pa.RecordBatch:
        found = {row.key: row.numbers for row in read_rows(source)}
        saw = {key: found.get(key, ()) for key in keys}
        planned(instant, saw)
        return _batch({key: (*numbers, number) for key, numbers in saw.items()})

    return writes._finish(_ReadInside(SCHEMA, lists), columns, UPSERT)


@dataclass(frozen=True, slots=True)
class _ReadInside:
    """Rows of a write that are made when its instant has begun and its snapshot stands."""

    schema: pa.Schema
    make: Callable[[InstantTime], pa.RecordBatch]

    @property
    def jobs(self) -> int:
        return 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def prepare(self, storage: Storage, plan: PreparePlan) -> RowSource:
        return lambda instant, _: Prepared(prepare_batch(self.make(instant), plan))


def _batch(lists: Mapping[str, Sequence[int]]) -> pa.RecordBatch:
    rows = [
        {"key": key, "part": partition_of(key), "numbers": list(numbers), "length": len(numbers)}
        for key, numbers in lists.items()
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
