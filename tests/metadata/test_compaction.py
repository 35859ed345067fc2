"""Compactions of the metadata table: those of Apache Hudi done again, and cases that its tables do not have."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest

from conftest import DATA, REAL_TABLES
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.hfile import HFile
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.records import decode_metadata_record, encode_column_stats_record
from lakebed.format.metadata.shard_files import encode_placeholder_log, encode_shard_base, encode_shard_log
from lakebed.format.timeline.metadata import decode_commit, decode_compaction_plan
from lakebed.index.kinds import merge_rule
from lakebed.metadata.merging import Form
from lakebed.metadata.shard import DeleteLayer, load_shard
from lakebed.metadata.shard import Shard as StoredShard
from lakebed.metadata.upkeep.compaction import (
    LARGE_BYTES,
    LOG_FILES_MAX,
    LOG_SHARE,
    compact_shard,
    plan_compaction,
    slice_of,
)
from lakebed.model.commit import CommitMetadata, CompactionOperation, CompactionPlan, WriteStat
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats, ValueType
from lakebed.storage import open_storage
from lakebed.view import latest_slices

ROOT = ".hoodie/metadata/"
AT = InstantTime("20300101000000000")


def compactions(table: Path) -> list[tuple[InstantTime, CompactionPlan, CommitMetadata]]:
    timeline = table / ROOT / ".hoodie/timeline"
    found = []
    for path in sorted(timeline.glob("*.compaction.requested")):
        instant = path.name.partition(".")[0]
        completed = next(timeline.glob(f"{instant}_*.commit"))
        plan = decode_compaction_plan(path.read_bytes(), path=path.name)
        found.append((InstantTime(instant), plan, decode_commit(completed.read_bytes(), path=completed.name)))
    return found


def payloads(path: Path) -> dict[bytes, object]:
    hfile = HFile.open(open_storage(str(path.parent)).source(path.name))
    return {
        key: decode_metadata_record(value, hfile.schema or "", path=path.name).payload for key, value in hfile.items()
    }


def is_there(table: Path, operation: CompactionOperation) -> bool:
    return all((table / ROOT / path).exists() for path in slice_of(operation).paths)


def compacted_tables() -> list[str]:
    """The real tables of version 9 whose metadata tables Hudi compacted."""
    names = [name for name in REAL_TABLES if name.startswith(("hudi111", "hudi120"))]
    return [name for name in names if any(is_compaction(path) for path in ZipFile(DATA / f"{name}.zip").namelist())]


def is_compaction(path: str) -> bool:
    return f"/{ROOT}.hoodie/timeline/" in path and path.endswith(".compaction.requested")


@pytest.mark.parametrize("name", compacted_tables())
def test_gives_what_hudi_gave(unpack, tmp_path: Path, name: str) -> None:
    table = unpack(name).path
    shutil.copytree(table / ROOT, tmp_path / ROOT)
    storage = open_storage(str(tmp_path))
    done = 0
    for instant, plan, commit in compactions(table):
        for operation in (operation for operation in plan.operations if is_there(table, operation)):
            theirs = next(stat for stat in commit.stats if stat.file_id == operation.file_id)
            ours = compact_shard(
                storage,
                slice_of(operation),
                merge_rule(operation.partition),
                instant=instant,
                token="9-9-9",
                created_ms=0,
            )
            mine, hudis = payloads(tmp_path / ROOT / ours.path), payloads(table / ROOT / theirs.path)
            if "logcompacted" in name:  # Hudi counts rows twice there that a log compaction had taken up before.
                mine, hudis = without_counts(mine), without_counts(hudis)
            if operation.partition == "partition_stats":  # Tight bounds of Hudi are none once they are in our files.
                hudis = {key: replace(stats, is_tight_bound=False) for key, stats in hudis.items()}
            assert mine == hudis, ours.path
            assert counts(ours, name) == counts(theirs, name), ours.path
            done += 1
    assert done


def without_counts(found: dict[bytes, object]) -> dict[bytes, object]:
    return {
        key: replace(payload, value_count=0, null_count=0, total_size=0, total_uncompressed_size=0)
        if isinstance(payload, ColumnStats)
        else payload
        for key, payload in found.items()
    }


def counts(stat: WriteStat, name: str) -> dict[str, object]:
    """What a write stat says of the merge, but for sizes, times and what Hudi counts by another rule."""
    found: dict[str, object] = {
        "prev": (stat.prev_commit, stat.prev_base_file),
        "writes": stat.num_writes,
        "deletes": stat.num_deletes,
        "logs": stat.extra["totalLogFilesCompacted"],
    }
    if "logcompacted" not in name:  # Hudi counts blocks there that others have taken the place of.
        found["log records"] = stat.extra["totalLogRecords"]
    return found


@pytest.mark.parametrize("name", compacted_tables())
def test_plans_what_hudi_planned(unpack, name: str) -> None:
    table = unpack(name).path
    storage = open_storage(str(table))
    completions = {
        path.name[:17]: InstantTime(path.name[18:35])
        for path in (table / ROOT / ".hoodie/timeline").iterdir()
        if "_" in path.name
    }
    for instant, plan, _ in compactions(table):
        partitions = {operation.partition for operation in plan.operations}
        files = {
            partition: [
                file
                for listed in storage.list(f"{ROOT}{partition}")
                if (file := decode_data_file_name(listed.path.rpartition("/")[2], size=listed.size))
                and (file.instant < instant or isinstance(file, LogFile))
            ]
            for partition in partitions
        }
        # Instants that are archived completed before any that are not.
        slices = latest_slices(files, lambda t: completions.get(t, t), layout=2)
        ours = plan_compaction(slices, instant, lambda t: completions.get(t, t))
        by_id = {operation.file_id: operation for operation in ours.operations}
        for theirs in (operation for operation in plan.operations if is_there(table, operation)):
            mine = by_id[theirs.file_id]
            assert (mine.partition, mine.base_file, mine.base_instant) == (
                theirs.partition,
                theirs.base_file,
                theirs.base_instant,
            )
            assert sorted(mine.log_files) == sorted(theirs.log_files)
            assert dict(mine.metrics) == dict(theirs.metrics)


def test_plan_leaves_logs_that_completed_after_it() -> None:
    logs = tuple(log("files-0000-0", instant) for instant in ("20300101000000001", "20300101000000002"))
    file_slice = FileSlice(FileGroupId("files", "files-0000-0"), logs[0].instant, None, logs)
    late = {"20300101000000001": "20300101000000009", "20300101000000002": "20300101000000003"}
    plan = plan_compaction([file_slice], InstantTime("20300101000000004"), lambda t: InstantTime(late[t]))
    assert [operation.log_files for operation in plan.operations] == [(logs[1].name,)]
    assert plan_compaction([file_slice], InstantTime("20300101000000003"), lambda t: None) == CompactionPlan()


def log(file_id: str, instant: str) -> LogFile:
    found = decode_data_file_name(f".{file_id}_{instant}.log.1_1-1-1")
    assert isinstance(found, LogFile)
    return found


class Shard:
    """A shard in a folder, written file by file."""

    def __init__(self, folder: Path, partition: str) -> None:
        self.storage = open_storage(str(folder))
        self.folder, self.partition = folder, partition
        self.files: list[BaseFile | LogFile] = []

    def add(self, name: str, data: bytes) -> None:
        path = self.folder / ROOT / self.partition / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        file = decode_data_file_name(name, size=len(data))
        assert file is not None
        self.files.append(file)

    def compact(self) -> tuple[WriteStat, dict[bytes, object]]:
        base = next((file for file in self.files if isinstance(file, BaseFile)), None)
        logs = tuple(file for file in self.files if isinstance(file, LogFile))
        group = FileGroupId(self.partition, self.files[0].file_id)
        stat = compact_shard(
            self.storage,
            FileSlice(group, self.files[0].instant, base, logs),
            merge_rule(self.partition),
            instant=AT,
            token="1-1-1",
            created_ms=0,
        )
        return stat, payloads(self.folder / ROOT / stat.path)


def texts(*items: str) -> pa.Array:
    return pa.array(items, pa.string())


def shard_log(instant: str, records: dict[str, bytes], deletes: tuple[str, ...] = (), schema: str = "") -> bytes:
    values = pa.array(list(records.values()), pa.binary())
    return encode_shard_log(
        instant,
        texts(*records),
        values,
        texts(*deletes),
        mdt_partition="any",
        schema=schema or stored_schema(),
        created_ms=0,
    )


def test_a_shard_without_entries_gets_an_empty_base_file(tmp_path: Path) -> None:
    shard = Shard(tmp_path, "record_index")
    shard.add(".record-index-0000-0_00000000000000002.log.1_0-0-0", encode_placeholder_log("00000000000000002"))
    stat, found = shard.compact()
    assert found == {}
    assert (stat.num_writes, stat.prev_commit, stat.prev_base_file) == (0, None, None)


def stats_record(low: int, high: int, *, tight: bool, deleted: bool = False) -> bytes:
    stats = ColumnStats(
        "eu",
        "ts",
        low,
        high,
        value_count=4,
        null_count=1,
        is_tight_bound=tight,
        is_deleted=deleted,
        value_type=ValueType.LONG,
    )
    return encode_column_stats_record(stats, version="V2", partition_stats=True)


def test_partition_stats_that_are_no_tight_bound_widen_older_ones(tmp_path: Path) -> None:
    shard = Shard(tmp_path, "partition_stats")
    name, first = "partition-stats-0000-0", "20300101000000001"
    base = {key: stats_record(1, 2, tight=True) for key in ("dropped", "gone", "loose")}
    keys, values = texts(*base), pa.array(list(base.values()), pa.binary())
    shard.add(f"{name}_1-1-1_{first}.hfile", encode_shard_base(keys, values, schema=stored_schema(), created_ms=0))
    newer = {
        "gone": stats_record(0, 0, tight=True, deleted=True),
        "loose": stats_record(-5, 1, tight=False),
        "tight": stats_record(7, 8, tight=True),
    }
    shard.add(f".{name}_20300101000000002.log.1_1-1-1", shard_log("20300101000000002", newer, ("dropped",)))
    stat, found = shard.compact()
    loose, tight = found[b"loose"], found[b"tight"]
    assert found.keys() == {b"loose", b"tight"}
    assert isinstance(loose, ColumnStats)
    assert isinstance(tight, ColumnStats)
    assert (loose.min_value, loose.max_value, loose.value_count, loose.is_tight_bound) == (-5, 2, 8, False)
    assert (tight.min_value, tight.max_value) == (7, 8)
    assert (stat.prev_commit, stat.num_updates, stat.num_inserts, stat.num_deletes) == (first, 1, 1, 2)


def test_partition_stats_of_another_engine_are_no_tight_bound_once_they_are_in_our_files(tmp_path: Path) -> None:
    """It may not have known the files of writes that completed beside it."""
    shard = Shard(tmp_path, "partition_stats")
    theirs = json.dumps(json.loads(stored_schema()), indent=1)
    for number, (schema, key) in enumerate([(theirs, "theirs"), ("", "ours")]):
        instant = f"2030010100000000{number}"
        log = shard_log(instant, {key: stats_record(1, 2, tight=True)}, schema=schema)
        shard.add(f".partition-stats-0000-0_{instant}.log.1_1-1-1", log)
    _, found = shard.compact()
    assert {key: found[key].is_tight_bound for key in found} == {b"ours": True, b"theirs": False}


def test_values_of_an_older_schema_are_encoded_anew(unpack, tmp_path: Path) -> None:
    """A shard that Hudi 1.0 wrote, of table version 8, gets a base file in today's schema."""
    table = unpack("hudi102_cow_part_upsert").path
    for partition in ("column_stats", "record_index", "partition_stats", "files"):
        folder = table / ROOT / partition
        files = [file for path in sorted(folder.iterdir()) if (file := decode_data_file_name(path.name))]
        shutil.copytree(folder, tmp_path / ROOT / partition)
        slices = latest_slices({partition: files}, lambda t: t, layout=2)
        for file_slice in slices:
            stat = compact_shard(
                open_storage(str(tmp_path)),
                file_slice,
                merge_rule(partition),
                instant=AT,
                token="1-1-1",
                created_ms=0,
                form=Form("V1"),
            )
            data = open_storage(str(tmp_path)).source(f"{ROOT}{stat.path}")
            assert HFile.open(data).schema == stored_schema()
            before = entries_before(load_shard(open_storage(table), file_slice, layout=2, counts=bool, root=ROOT))
            assert payloads(tmp_path / ROOT / stat.path).keys() == before


def entries_before(shard: StoredShard) -> set[bytes]:
    """The keys that a shard has."""
    keys: set[bytes] = set()
    for layer in shard.layers():
        if isinstance(layer, DeleteLayer):
            keys -= {key.encode() for key in layer.keys}
        else:
            keys |= {key for key, _ in layer.hfile.items()}
    return keys


@pytest.mark.parametrize(
    ("base_bytes", "log_bytes", "logs", "is_due"),
    [
        (LARGE_BYTES - 1, 1, 1, True),
        (LARGE_BYTES, 1, 1, False),
        (LARGE_BYTES, LARGE_BYTES // LOG_SHARE // 2, 2, False),
        (LARGE_BYTES, LARGE_BYTES // LOG_SHARE // 2 + 1, 2, True),
        (LARGE_BYTES, 1, LOG_FILES_MAX - 1, False),
        (LARGE_BYTES, 1, LOG_FILES_MAX, True),
    ],
)
def test_a_large_shard_waits_until_its_logs_are_worth_it(
    base_bytes: int, log_bytes: int, logs: int, is_due: bool
) -> None:
    group = FileGroupId("record_index", "record-index-0000-0")
    base = decode_data_file_name(f"{group.file_id}_0-0-0_{AT}.hfile", size=base_bytes)
    assert isinstance(base, BaseFile)
    times = [InstantTime(f"203001010000000{number:02d}") for number in range(1, logs + 1)]
    names = [f".{group.file_id}_{time}.log.1_1-0-1" for time in times]
    on_top = [file for name in names if isinstance(file := decode_data_file_name(name, size=log_bytes), LogFile)]
    assert len(on_top) == logs
    plan = plan_compaction([FileSlice(group, AT, base, tuple(on_top))], InstantTime("2030010100000009999"), lambda t: t)
    assert bool(plan.operations) is is_due
