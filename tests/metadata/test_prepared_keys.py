"""Entries that are encoded before a commit section: used if they are what it would have made, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.engines import shared_threads
from lakebed.format.hfile import decode_hfile
from lakebed.format.log.file import decode_log_file
from lakebed.index.change import MetadataChange
from lakebed.index.kind import Update
from lakebed.index.kinds import KINDS
from lakebed.index.partition_stats.current import PartitionStats
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.writes import plan_record_index, prepare_keys
from lakebed.metadata.shard_writes import encode_shard
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.model.source import BytesSource
from lakebed.write import columnar, new_keys

AT = InstantTime("20300101000000000")
KEYS = (KeyChanges("oslo", "f1-0", pa.array(["a", "b"])), KeyChanges("lima", "f2-0", pa.array(["c"])))
SHARDS = ("record-index-0000-0", "record-index-0001-0")


class NoStats:
    def current_files(self, partition: str) -> Sequence[str]:
        return ()

    def of_partition(self, partition: str, columns: Sequence[str]) -> Any:
        raise AssertionError

    def of_files(self, partition: str, names: object, columns: Sequence[str]) -> Any:
        raise AssertionError

    def learn(self, stats: PartitionStats, columns: Sequence[str]) -> None:
        raise AssertionError


UPDATE = Update(AT, 7, ("record_index",), {"record_index": SHARDS}, {}, NoStats())
CHANGE = MetadataChange(keys=KEYS)


def test_they_are_those_of_the_same_change() -> None:
    with shared_threads():
        prepared = prepare_keys(KEYS, UPDATE, created_ms=5)
        ready = [future.result() for future in prepared.ready_for(CHANGE, UPDATE)["record_index"]]
    expected = [encode_shard(write, instant=AT, created_ms=5) for write in plan_record_index(CHANGE, UPDATE)]
    assert [(e.write.file_id, e.data) for e in ready] == [(e.write.file_id, e.data) for e in expected]
    assert ready


OTHERS = {
    "one key more": (MetadataChange(keys=(*KEYS, KeyChanges("oslo", "f3-0", pa.array(["d"])))), UPDATE),
    "another key": (MetadataChange(keys=(KEYS[0], KeyChanges("lima", "f2-0", pa.array(["x"])))), UPDATE),
    "another file": (MetadataChange(keys=(KEYS[0], KeyChanges("lima", "f9-0", pa.array(["c"])))), UPDATE),
    "a key that went": (MetadataChange(keys=(KEYS[0], replace(KEYS[1], deleted=pa.array(["y"])))), UPDATE),
    "more shards": (CHANGE, replace(UPDATE, groups={"record_index": (*SHARDS, "record-index-0002-0")})),
    "no index": (CHANGE, replace(UPDATE, groups={})),
    "another definition": (
        CHANGE,
        replace(UPDATE, definitions={"record_index": IndexDefinition("record_index", "record_index")}),
    ),
    "another time": (CHANGE, replace(UPDATE, instant_ms=8)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_they_are_not_those_of_another(name: str) -> None:
    prepared = prepare_keys(KEYS, UPDATE, created_ms=5)
    assert prepared.ready_for(CHANGE, UPDATE)
    assert not prepared.ready_for(*OTHERS[name])


def test_shards_of_many_keys_are_compressed_alike_and_readable() -> None:
    many = MetadataChange(keys=(replace(KEYS[0], inserted=pa.array([f"key {n:06d}" for n in range(9000)])), KEYS[1]))
    writes = plan_record_index(many, UPDATE)
    assert len(writes) == 2
    assert {write.packing for write in writes} == {"records"}
    assert {write.packing for write in plan_record_index(CHANGE, UPDATE)} == {None}
    for write in writes:
        (block,) = decode_log_file(encode_shard(write, instant=AT, created_ms=5).data, path="log")
        records = decode_hfile(BytesSource(bytes(block.content)))
        assert records["key"].cast(pa.string()).equals(write.at_hand.keys)
        assert records["value"].to_pylist() == write.at_hand.values.to_pylist()


def test_shards_of_several_data_partitions_are_compressed_each_by_itself() -> None:
    definition = IndexDefinition("record_index", "record_index", options={"isPartitioned": "true"})
    update = replace(UPDATE, groups={"record_index": ()}, definitions={"record_index": definition})
    many = MetadataChange(keys=(replace(KEYS[0], inserted=pa.array([f"key {n:06d}" for n in range(9000)])), KEYS[1]))
    assert {write.packing for write in plan_record_index(many, update)} == {None}


SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def rows(ts: int, *numbers: int) -> list[dict[str, Any]]:
    return [{"id": f"k{n}", "city": "ab"[n % 2], "ts": ts} for n in numbers]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The metadata-table partitions that were planned in commit sections."""
    found: list[str] = []
    for kind in KINDS:
        plan = kind.writes

        def noted(partition: str, *args: Any, plan: Any = plan) -> Any:
            found.append(partition)
            return plan(partition, *args)

        monkeypatch.setattr(kind, "writes", noted)
    return found


def test_a_commit_uses_them(tmp_path: Path, plans: list[str]) -> None:
    table = lakebed.create_table(
        tmp_path / "t", schema=SCHEMA, key="id", partition_by="city", table_type="mor", indexes=("record",)
    )
    table.upsert(rows(1, *range(10)))
    plans.clear()
    table.upsert(rows(2, *range(5, 20)))
    assert "files" in plans
    assert "record_index" not in plans
    assert table.indexes.validate("record_index").is_sound
    assert table.lookup(["k7", "k19"]).num_rows == 2


def test_a_commit_that_brings_other_keys_makes_its_own(
    tmp_path: Path, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lakebed.create_table(
        tmp_path / "t", schema=SCHEMA, key="id", partition_by="city", table_type="mor", indexes=("record",)
    )
    table.upsert(rows(1, *range(10)))
    plans.clear()

    def fewer(*args: Any) -> Any:
        prepared = new_keys.prepare_entries(*args)
        assert prepared is not None
        return replace(prepared, keys=prepared.keys[:-1])

    monkeypatch.setattr(columnar, "prepare_entries", fewer)
    table.upsert(rows(2, *range(5, 20)))
    assert "record_index" in plans
    assert table.indexes.validate("record_index").is_sound
