"""Log files that changes leave in the metadata table, and the write stats of its delta commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed.errors import UnsupportedTableError, WriteConflictError
from lakebed.format.log.blocks import decode_deletes
from lakebed.format.log.file import decode_log_file
from lakebed.format.timeline.metadata import decode_commit
from lakebed.index.change import MetadataChange
from lakebed.index.column_stats.kind import column_stats_definition
from lakebed.index.kind import Update
from lakebed.index.obliged import list_groups
from lakebed.index.partition_stats.current import KnownStats, PartitionStats
from lakebed.index.record.definition import record_index_definition
from lakebed.index.record.entries import KeyChanges
from lakebed.index.update import plan_change, write_change
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import ShardWrite, write_shards
from lakebed.model.commit import WriteStat
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Fault, FaultyStorage, at

AT = InstantTime("20300101000000000")
ROOT = ".hoodie/metadata/"
NAME = f"f1-0_0-0-1_{AT}.parquet"


class NoStats:
    def current_files(self, partition: str) -> Collection[str]:
        return ["a file without statistics"] if partition == "unknown" else []

    def of_partition(self, partition: str, columns: Sequence[str]) -> KnownStats:
        return KnownStats()

    def of_files(self, partition: str, names: Collection[str], columns: Sequence[str]) -> Sequence[ColumnStats]:
        return ()

    def learn(self, stats: PartitionStats, columns: Sequence[str]) -> None:
        pass


def update(*partitions: str, **more: object) -> Update:
    groups = {
        "files": ["files-0000-0"],
        "column_stats": ["col-stats-0000-0", "col-stats-0001-0"],
        "partition_stats": ["partition-stats-0000-0"],
        "record_index": ["record-index-0000-0"],
    }
    definitions = {"column_stats": column_stats_definition(pa.schema([("v", pa.int64())]), has_meta_columns=False)}
    return replace(Update(AT, 7, partitions, groups, definitions, NoStats()), **more)


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Storage:
    return open_storage(f"memory://{request.node.name}")


def test_write_stats_have_the_fields_that_hudi_fills(unpack, storage: Storage) -> None:
    table = unpack("hudi120_cow_part_upsert").path
    path = next((table / ROOT / ".hoodie/timeline").glob("2026*_*.deltacommit"))
    theirs = next(stat for stat in decode_commit(path.read_bytes(), path="").stats if stat.partition == "files")
    change = MetadataChange(added={"eu": {NAME: 5}, "us": {NAME: 6}})
    (ours,) = write_change(storage, change, update("files"), token="3-62-148", created_ms=0)
    assert ours == WriteStat(
        file_id="files-0000-0",
        path=f"files/.files-0000-0_{AT}.log.1_3-62-148",
        partition="files",
        prev_commit=AT,
        num_writes=theirs.num_writes,
        num_updates=theirs.num_updates,
        num_deletes=theirs.num_deletes,
        num_inserts=theirs.num_inserts,
        total_write_bytes=ours.file_size,
        file_size=ours.file_size,
        base_file=theirs.base_file,
        log_files=(f".files-0000-0_{AT}.log.1_3-62-148",),
        log_version=theirs.log_version,
        log_offset=theirs.log_offset,
        extra=ours.extra,
    )
    assert storage.size(f"{ROOT}{ours.path}") == ours.file_size
    # Besides, Hudi says how long it took.
    assert theirs.extra == {**ours.extra, "numUpdates": 0, "runtimeStats": theirs.extra["runtimeStats"]}


def test_only_the_partitions_asked_for_are_touched(storage: Storage) -> None:
    change = MetadataChange(added={"eu": {NAME: 5}}, column_stats={"eu": (ColumnStats(NAME, "v", 1, 2, 3, 0),)})
    assert {write.mdt_partition for write in plan_change(change, update("files", "column_stats", "files"))} == {
        "files",
        "column_stats",
    }
    assert plan_change(MetadataChange(), update("files", "column_stats", "partition_stats", "record_index")) == ()


@pytest.mark.parametrize("partition", ["expr_index_x", "secondary_index_v", "unheard_of"])
def test_an_index_that_cannot_be_kept_up_to_date_stops_the_write(partition: str) -> None:
    with pytest.raises(UnsupportedTableError, match=partition):
        plan_change(MetadataChange(added={"eu": {NAME: 5}}), update(partition, groups={partition: ["x-0000-0"]}))


def test_statistics_of_a_partition_go_if_one_of_its_files_has_none() -> None:
    stats = (ColumnStats(NAME, "v", 1, 2, 3, 0),)
    change = MetadataChange(
        column_stats={"eu": stats, "unknown": stats}, rewritten=frozenset({"eu", "unknown", "emptied"})
    )
    (write,) = plan_change(change, update("partition_stats"))
    assert (len(write.entries.keys), len(write.entries.deletes)) == (1, 2)


def test_a_partitioned_record_index_gets_shards_with_its_partitions(storage: Storage) -> None:
    definitions = {"record_index": record_index_definition(is_partitioned=True)}
    change = MetadataChange(added={"a/b": {NAME: 5}}, keys=(KeyChanges("a/b", "f1-0", inserted=pa.array(["k000"])),))
    circumstances = update("record_index", definitions=definitions, groups={"record_index": []}, groups_per_partition=2)
    (stat,) = write_change(storage, change, circumstances, token="1-2-3", created_ms=0)
    file_ids = ("record-index-a%2Fb-0000-0", "record-index-a%2Fb-0001-0")
    assert list_groups(storage, ["record_index"]) == {"record_index": file_ids}
    assert stat.file_id == file_ids[1]
    names = [listed.path.rpartition("/")[2] for listed in storage.list(f"{ROOT}record_index")]
    assert names == [
        f".{file_ids[0]}_{AT}.log.1_0-0-0",
        *(f".{file_ids[1]}_{AT}.log.1_{t}" for t in ("0-0-0", "1-2-3")),
    ]
    again = replace(circumstances, groups={"record_index": file_ids}, instant=InstantTime("20300101000000001"))
    assert [write.is_new for write in plan_change(change, again)] == [False]


def test_deletes_name_the_partition_of_the_metadata_table(storage: Storage) -> None:
    write = ShardWrite("record_index", "record-index-0000-0", Entries.of({}, ["k"]))
    (stat,) = write_shards(storage, [write], instant=AT, token="1-2-3", created_ms=0)
    (block,) = decode_log_file(storage.get(f"{ROOT}{stat.path}"), path="")
    assert decode_deletes(block, path="")["partition"].to_pylist() == ["record_index"]
    assert (stat.num_writes, stat.num_deletes) == (0, 1)


def test_an_answer_that_got_lost_is_no_matter(storage: Storage) -> None:
    write = ShardWrite("files", "files-0000-0", Entries.of({"k": b"v"}))
    for number, fault in enumerate((Fault.LOST_BEFORE, Fault.LOST_AFTER)):
        faulty = FaultyStorage(storage, at({1: fault}))
        (stat,) = write_shards(faulty, [write], instant=AT, token=f"{number}-1-1", created_ms=0)
        assert faulty.trace[0].fault is fault
        assert storage.size(f"{ROOT}{stat.path}") == stat.file_size


def test_a_name_that_another_attempt_took_is_not_written_over(storage: Storage) -> None:
    ours, other = (ShardWrite("files", "f", Entries.of({"k": value})) for value in (b"v", b"w"))
    for write in (ours, ours):
        write_shards(storage, [write], instant=AT, token="1-1-1", created_ms=0)
    with pytest.raises(WriteConflictError):
        write_shards(storage, [other], instant=AT, token="1-1-1", created_ms=0)
