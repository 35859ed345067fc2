"""Indexes that lakebed builds and reshards on existing tables: Apache Hudi reads through them and keeps them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from interop.write_peer import WITH_METADATA, HudiPeer, running_peer
from lakebed.api import Table, create_table, open_table
from lakebed.format.metadata.record_index import decode_record_index
from lakebed.model.source import BytesSource
from lakebed.services.indexing import renew as renew_module
from lakebed.storage import open_storage

pytestmark = pytest.mark.interop

KEYS = 400
GLOBAL = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
}
PARTITIONED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
}
HUDI = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "2",
    "hoodie.compact.inline": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
}


def rows(first: int, count: int, ts: int, extra: str = "k") -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"{extra}{n:04d}" for n in numbers],
            "city": [("oslo", "lima", "rome")[n % 3] for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [float(n) for n in numbers],
        }
    )


def made(path: Path, table_type: str) -> Table:
    """A table with a history and no record index: updates, deletes, log files on merge-on-read."""
    table = create_table(
        path, schema=rows(0, 1, 0).schema, key="id", partition_by="city", ordering="ts", table_type=table_type
    )
    table.upsert(rows(0, KEYS, 1))
    table.upsert(rows(50, 100, 2))
    table.delete([f"k{n:04d}" for n in range(60, 70)])
    table.insert(rows(0, 30, 3, "n"))
    return table


class Turns:
    """Apache Hudi writes to the table; after each turn keys are unique and the index says what the rows say."""

    def __init__(self, peer: HudiPeer, path: Path, table_type: str, options: dict[str, str]) -> None:
        self.peer, self.path, self.ts = peer, path, 10
        kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[table_type]
        self.options = {**HUDI, **options, "hoodie.table.name": path.name, "hoodie.datasource.write.table.type": kind}

    def hudi_upserts(self) -> None:
        self.ts += 1
        batch = pa.concat_tables([rows(0, 40, self.ts), rows(self.ts * 100, 20, self.ts, "h")])
        self.peer.write(self.path, batch, "upsert", self.options)

    def lakebed_upserts(self) -> None:
        self.ts += 1
        batch = pa.concat_tables([rows(20, 40, self.ts), rows(self.ts * 100, 20, self.ts, "l")])
        open_table(self.path).upsert(batch)

    def check(self) -> None:
        table = open_table(self.path)
        found = table.indexes.validate("record_index")
        assert found.is_sound, (found, found.examples[:5])
        keys = table.to_arrow(columns=["id"])["id"]
        assert pc.count_distinct(keys).as_py() == len(keys)
        assert sorted(self.peer.read(self.path, WITH_METADATA)["id"].to_pylist()) == sorted(keys.to_pylist())
        wanted = ["k0001", "k0065", keys[-1].as_py()]
        filters = [f"id = '{key}'" for key in wanted]
        answers = self.peer.read_where(self.path, {**WITH_METADATA, **GLOBAL}, filters)
        assert [answer.num_rows for answer in answers] == [keys.to_pylist().count(key) for key in wanted]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(("kind", "options"), [("record", GLOBAL), ("record_partitioned", PARTITIONED)])
def test_apache_hudi_goes_on_with_an_index_that_was_built_and_resharded(
    tmp_path: Path, table_type: str, kind: str, options: dict[str, str]
) -> None:
    path = tmp_path / "trips"
    made(path, table_type).indexes.create("record_index", kind=kind, shards=4)
    turns = Turns(running_peer(), path, table_type, options)
    turns.check()
    for shards in (4, 7, 2):
        open_table(path).indexes.reshard("record_index", shards=shards)
        turns.check()
        for turn in (turns.hudi_upserts, turns.lakebed_upserts, turns.hudi_upserts):
            turn()
            turns.check()
    assert open_table(path).indexes.list()[-1].state == "ready"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(("kind", "options"), [("record", GLOBAL), ("record_partitioned", PARTITIONED)])
def test_apache_hudi_goes_on_with_shards_that_caught_up_with_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, kind: str, options: dict[str, str]
) -> None:
    """What both wrote while the shards were copied is in log files of the instant that their base files are of."""
    path = tmp_path / "trips"
    made(path, table_type).indexes.create("record_index", kind=kind, shards=4)
    turns, publish = Turns(running_peer(), path, table_type, options), renew_module.publish_copy

    def write_first(*arguments: object) -> bool:
        turns.hudi_upserts()
        turns.lakebed_upserts()
        open_table(path).delete([f"k{n:04d}" for n in range(30, 40)])
        return publish(*arguments)  # type: ignore[arg-type]

    for shards, is_rebuilt in ((7, False), (3, True), (2, False)):
        monkeypatch.setattr(renew_module, "publish_copy", write_first)
        indexes = open_table(path).indexes
        if is_rebuilt:
            indexes.create("record_index", shards=shards, rebuild=True)
        else:
            indexes.reshard("record_index", shards=shards)
        monkeypatch.setattr(renew_module, "publish_copy", publish)
        turns.check()
        for turn in (turns.hudi_upserts, turns.lakebed_upserts, turns.hudi_upserts):
            turn()
            turns.check()


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_index_is_entry_for_entry_what_apache_hudi_builds(tmp_path: Path, table_type: str) -> None:
    """Both build it on copies of one table: Hudi as the first thing of a write that asks for the index."""
    made(tmp_path / "ours", table_type)
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    open_table(tmp_path / "ours").indexes.create("record_index", kind="record")
    turns = Turns(running_peer(), tmp_path / "theirs", table_type, GLOBAL)
    turns.options["hoodie.table.name"] = "ours"
    turns.hudi_upserts()
    ours, theirs = initial_entries(tmp_path / "ours"), initial_entries(tmp_path / "theirs")
    assert len(ours) == KEYS - 10 + 30
    assert ours == theirs


def initial_entries(path: Path) -> dict[str, list[object]]:
    """What the base files that brought the index into being say: shard, partition, file id and instant of each key."""
    storage = open_storage(path)
    found = {}
    for listed in storage.list(".hoodie/metadata/record_index"):
        name = listed.path.rpartition("/")[2]
        if name.endswith(".hfile") and "_0000000000000000" in name:
            for entry in decode_record_index(BytesSource(storage.get(listed.path), name)).to_pylist():
                found[entry.pop("key")] = [name[:17], *entry.values()]
    return found
