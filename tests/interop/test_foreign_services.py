"""Indexes and compactions of Apache Hudi, planned and executed while lakebed writes to the same table."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from interop.write_peer import WITH_METADATA, HudiPeer, running_peer
from lakebed.api import Table, create_table, open_table
from lakebed.errors import LockUnavailableError, ServiceRunningError, WriteConflictError
from lakebed.index.obliged import COVERS
from lakebed.metadata import MetadataTable
from lakebed.observe import Silent
from lakebed.write.writer import WriteResult

pytestmark = pytest.mark.interop

KEYS = 30_000
PAUSE_S = 0.3
"""Between two writes: Apache Hudi asks for the lock now and then, and finds it taken if we take it all the time."""
LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.write.lock.num_retries": "60",
    "hoodie.write.lock.client.num_retries": "60",
    "hoodie.write.lock.wait_time_ms_between_retry": "200",
}
OURS = {"hoodie.write.lock.provider": LOCK["hoodie.write.lock.provider"]}
HUDI = {
    **LOCK,
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "4",
    "hoodie.metadata.index.async": "true",
    "hoodie.metadata.index.check.timeout.seconds": "60",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.upsert.shuffle.parallelism": "2",
}
WITHOUT_INDEX = {"hoodie.metadata.global.record.level.index.enable": "false", "hoodie.index.type": "SIMPLE"}
"""Apache Hudi does not complete a compaction with an index in its options that the table has not."""


def rows(first: int, count: int, ts: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n:06d}" for n in numbers],
            "city": [("oslo", "lima", "rome")[n % 3] for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [float(n) for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def peer() -> HudiPeer:
    return running_peer()


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    made = create_table(
        tmp_path / "t",
        schema=rows(0, 1, 0).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type=request.param,
        options=OURS,
    )
    made.upsert(rows(0, KEYS, 1))
    made.upsert(rows(0, 60, 2))
    return made


def hudi_options(table: Table) -> dict[str, str]:
    """What Apache Hudi's client needs beside the options of a write: the schema, which it does not look for."""
    state = table._handle.state()
    return {**HUDI, "hoodie.avro.schema": state._declared_schema(state.latest)[0]}


def upsert(table: Table, given: pa.Table) -> WriteResult:
    """An upsert, again if another engine was faster."""
    for _ in range(20):
        with suppress(WriteConflictError, LockUnavailableError):
            return table.upsert(given)
        time.sleep(0.2)
    raise AssertionError("the write never went through")


def test_a_plan_of_apache_hudi_refuses_no_writer_and_its_index_is_whole(
    peer: HudiPeer, table: Table, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    instant = peer.ask("schedule_index", path=str(path), kinds=["RECORD_INDEX"], options=hudi_options(table))["instant"]
    assert (path / f".hoodie/timeline/{instant}.indexing.requested").exists()
    table.upsert(rows(KEYS, 30, 3))  # No second try: a plan refuses nobody.
    peer.ask("index", path=str(path), instant=instant, options=hudi_options(table))
    after = open_table(path, options=OURS)
    assert "record_index" in after._handle.config.metadata_partitions
    assert after.indexes.validate("record_index").is_sound
    after.upsert(rows(KEYS - 30, 90, 4))
    assert after.indexes.validate("record_index").is_sound
    assert after.to_arrow().num_rows == KEYS + 60
    assert peer.read(path, WITH_METADATA).num_rows == KEYS + 60


def test_writers_leave_alone_what_apache_hudi_builds(peer: HudiPeer, table: Table, tmp_path: Path) -> None:
    """Apache Hudi lists files, then makes shards, and takes every delta commit in between for covered.

    Those commits say that they are not; what the index lacks when it is ready are their keys, and no others.
    """
    path = tmp_path / "t"
    instant = peer.ask("schedule_index", path=str(path), kinds=["RECORD_INDEX"], options=hudi_options(table))["instant"]
    peer.ask("start", what="index", path=str(path), instant=instant, options=hudi_options(table))
    written: dict[str, str] = {}
    uncovered: set[str] = set()
    while peer.ask("is_running")["running"]:
        key = KEYS + len(written)
        done = upsert(open_table(path, options=OURS), rows(key, 1, 10 + key))
        written[done.instant] = f"k{key:06d}"
        if not is_covered(open_table(path, options=OURS), done.instant):  # Asked now: later it may be archived.
            uncovered.add(written[done.instant])
        time.sleep(PAUSE_S)
    peer.ask("join")
    assert written
    after = open_table(path, options=OURS)
    assert "record_index" in after._handle.config.metadata_partitions
    assert after.to_arrow().num_rows == KEYS + len(written)
    assert peer.read(path, WITH_METADATA).num_rows == KEYS + len(written)
    check = after.indexes.validate("record_index")
    assert (check.extra, check.different, check.repeated) == (0, 0, 0)
    assert {found.key for found in check.examples} <= uncovered
    after.indexes.create("record_index", rebuild=True)
    assert after.indexes.validate("record_index").is_sound


@pytest.mark.parametrize("options", [HUDI, {**HUDI, **WITHOUT_INDEX}], ids=["knows the index", "does not ask for it"])
def test_an_index_that_we_build_has_what_apache_hudi_writes_meanwhile(
    peer: HudiPeer, table: Table, tmp_path: Path, options: dict[str, str]
) -> None:
    """Updates, new keys and deletes by Apache Hudi, between covered commits of ours that touch the same keys."""
    path = tmp_path / "t"

    @dataclass
    class Meanwhile(Silent):
        is_done: bool = False

        def progress(self, what: str, done: int, total: int) -> None:
            del what, done, total
            if not self.is_done:
                self.is_done = True
                write()

    def write() -> None:
        upsert(open_table(path, options=OURS), rows(KEYS, 40, 3))
        peer.write(path, rows(KEYS - 20, 90, 4), "upsert", options)
        open_table(path, options=OURS).delete([f"k{KEYS + 5:06d}"])
        peer.write(path, rows(KEYS + 30, 5, 6), "delete", options)
        upsert(open_table(path, options=OURS), rows(KEYS + 65, 10, 7))

    meanwhile = Meanwhile()
    open_table(path, options=OURS).indexes.create("record_index", kind="record", shards=4, observer=meanwhile)
    assert meanwhile.is_done
    after = open_table(path, options=OURS)
    check = after.indexes.validate("record_index")
    assert check.is_sound, check.examples
    assert after.to_arrow().num_rows == KEYS + 69
    assert peer.read(path, WITH_METADATA).num_rows == KEYS + 69
    peer.write(path, rows(KEYS + 60, 20, 8), "upsert", HUDI)
    after = open_table(path, options=OURS)
    assert after.indexes.validate("record_index").is_sound
    assert after.to_arrow().num_rows == KEYS + 74


def is_covered(table: Table, instant: str) -> bool:
    """Whether the delta commit of a write says nothing, or that it has entries for the record index."""
    metadata = table._handle.state().metadata
    assert isinstance(metadata, MetadataTable)
    delta = next(i for i in metadata.timeline.commits() if i.requested_at == instant)
    covers = metadata.documents.commit(delta).extra_metadata.get(COVERS)
    return covers is None or "record_index" in covers.split(",")


@pytest.mark.parametrize("table", ["mor"], indirect=True)
def test_a_compaction_that_apache_hudi_has_just_begun_is_left_to_it(
    peer: HudiPeer, table: Table, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    options = {**hudi_options(table), **WITHOUT_INDEX}
    instant = peer.ask("schedule_compaction", path=str(path), options=options)["instant"]
    assert instant
    plan = path / f".hoodie/timeline/{instant}.compaction.requested"
    old = plan.stat().st_mtime - 1200
    os.utime(plan, (old, old))
    peer.ask("start", what="compact", path=str(path), instant=instant, options=options)
    inflight = path / f".hoodie/timeline/{instant}.compaction.inflight"
    while not inflight.exists():
        assert peer.ask("is_running")["running"]
        time.sleep(0.02)
    other = open_table(path, options=OURS)
    with pytest.raises(ServiceRunningError, match="another"):
        other.services.execute(instant)
    assert other.services.rollback_failed_writes() == ()
    peer.ask("join")
    assert [i.requested_at for i in other.timeline.completed() if i.requested_at == instant]
    assert other.to_arrow().num_rows == KEYS
    assert peer.read(path, WITH_METADATA).num_rows == KEYS
