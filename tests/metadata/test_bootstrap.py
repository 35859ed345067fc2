"""New metadata tables: those of empty tables as Apache Hudi makes them, and partitions built from a table's files."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.format.hfile import HFile
from lakebed.format.index_definitions import decode_index_definitions
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.format.properties import decode_partition_metafile, decode_properties, encode_properties
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.column_stats.entries import column_stats_entries
from lakebed.index.column_stats.kind import column_stats_definition
from lakebed.index.column_stats.ranges import read_column_stats
from lakebed.index.files.kind import file_entries
from lakebed.index.kinds import empty_partitions
from lakebed.index.partition_stats.entries import partition_stats_entries, stats_of_files
from lakebed.index.record.definition import record_index_definition
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import (
    BuiltPartition,
    bootstrap_empty,
    build_partition,
    gather_shards,
    group_ids,
    metadata_properties,
    reserved_instant,
)
from lakebed.metadata.entries import Entries, concat_entries, split_entries
from lakebed.metadata.files import list_metadata_files
from lakebed.model.commit import CommitMetadata, WriteStat
from lakebed.model.source import BytesSource
from lakebed.storage import open_storage
from lakebed.table import open_handle
from metadata_commits import RealCommits

ROOT = ".hoodie/metadata/"
FRESH = "hudi120_cow_part_upsert"


def test_properties_are_those_of_hudi(unpack) -> None:
    data = (unpack(FRESH).path / ROOT / ".hoodie/hoodie.properties").read_bytes()
    assert metadata_properties("cow_part_upsert") == decode_properties(data, path="")


@pytest.mark.parametrize("name", [FRESH, "hudi111_cow_nonpart_alltypes", "hudi111_cow_nonpart_no_metafields"])
def test_default_definitions_are_those_of_hudi(unpack, name: str) -> None:
    state = open_handle(unpack(name).path).state()
    has_meta = state.config.has_meta_columns
    schema = pa.schema([field for field in state.schema(state.latest) if not field.name.startswith("_hoodie_")])
    assert column_stats_definition(schema, has_meta_columns=has_meta) == state.definitions["column_stats"]


@pytest.mark.parametrize(("name", "is_partitioned"), [(FRESH, False), ("hudi120_cow_part_partitioned_rli", True)])
def test_record_index_definitions_are_those_of_hudi(unpack, name: str, is_partitioned: bool) -> None:
    data = (unpack(name).path / ".hoodie/.index_defs/index.json").read_bytes()
    assert (
        record_index_definition(is_partitioned=is_partitioned)
        == decode_index_definitions(data, path="")["record_index"]
    )


def test_at_most_32_columns_have_statistics_by_default() -> None:
    schema = pa.schema([("nested", pa.list_(pa.int64())), *((f"c{i}", pa.int64()) for i in range(40))])
    fields = column_stats_definition(schema, has_meta_columns=True).source_fields
    assert (len(fields), fields[2:4], fields[-1]) == (35, ("_hoodie_record_key", "c0"), "c31")


def test_the_metadata_table_of_an_empty_table_is_that_of_hudi(unpack) -> None:
    theirs = unpack(FRESH).path / ROOT
    storage = open_storage("memory://fresh")
    shards = {"partition_stats": 1, "record_index": 10, "column_stats": 2, "files": 1}
    built = bootstrap_empty(storage, empty_partitions(shards), token="0-5-4", created_ms=0, date="today")
    assert [(part.instant, part.partition) for part in built] == [
        ("00000000000000000", "files"),
        ("00000000000000001", "column_stats"),
        ("00000000000000002", "record_index"),
        ("00000000000000003", "partition_stats"),
    ]
    names = {listed.path.removeprefix(ROOT) for listed in storage.list(ROOT.rstrip("/"), recursive=True)}
    initial = {
        path.relative_to(theirs).as_posix()
        for path in theirs.rglob("*_0000000000000000*")
        if ".hoodie/" not in str(path.relative_to(theirs))
    }
    metafiles = {f"{partition}/.hoodie_partition_metadata" for partition in shards}
    assert names == {path for path in initial if not path.endswith(".crc")} | metafiles
    for path in names - metafiles:
        ours = storage.get(f"{ROOT}{path}")
        if ".log." in path:
            assert ours == (theirs / path).read_bytes()
        else:
            assert records(ours) == records((theirs / path).read_bytes()) == {b"__all_partitions__": {}}
    metafile = decode_partition_metafile(storage.get(f"{ROOT}files/.hoodie_partition_metadata"), path="")
    assert (metafile.created_at, metafile.depth) == ("00000000000000000", 1)
    (stat,) = built[0].stats
    assert (stat.path, stat.num_writes, stat.num_inserts) == (f"files/files-0000-0_0-5-4_{'0' * 17}.hfile", 1, 1)
    assert [part.stats for part in built[1:]] == [(), (), ()]


def records(data: bytes) -> dict[bytes, object]:
    hfile = HFile.open(BytesSource(data))
    return {key: decode_metadata_record(value, hfile.schema or "", path="").payload for key, value in hfile.items()}


def test_partitions_built_from_files_say_what_those_of_hudi_say(unpack, tmp_path: Path) -> None:
    """The metadata table of a real table, thrown away and built again."""
    real = RealCommits(unpack(FRESH))
    expected = what_readers_find(real.metadata)
    shutil.copytree(unpack(FRESH).path, tmp_path / "t")
    shutil.rmtree(tmp_path / "t" / ROOT)
    storage = open_storage(tmp_path / "t")
    properties = encode_properties(metadata_properties("cow_part_upsert"), comment="test", date="today")
    storage.create(f"{ROOT}.hoodie/hoodie.properties", properties)
    for number, (partition, shards) in enumerate(partition_entries(real).items()):
        file_ids = group_ids(partition, 3 if partition == "record_index" else 1)
        built = build_partition(
            storage,
            partition,
            file_ids,
            gathered(shards, file_ids),
            instant=reserved_instant(number),
            token="1-1-1",
            created_ms=0,
            date="today",
        )
        publish(storage, built)
    state = open_handle(tmp_path / "t").state()
    assert isinstance(state.metadata, MetadataTable)
    assert what_readers_find(state.metadata) == expected


def gathered(pieces: list[Entries], file_ids: tuple[str, ...]) -> Iterator[tuple[str, Entries]]:
    """The entries of each shard, in two passes over all of them."""
    asked = []

    def read(wanted: Collection[str]) -> list[dict[str, Entries]]:
        asked.append(wanted)
        return [split_entries(piece, file_ids, wanted=wanted) for piece in pieces]

    for file_id, parts in gather_shards(read, file_ids, passes=2):
        assert file_id in asked[-1]
        yield file_id, concat_entries(parts)
    assert sorted(file_id for wanted in asked for file_id in wanted) == sorted(file_ids)
    assert len(asked) == min(2, len(file_ids))


def partition_entries(real: RealCommits) -> dict[str, list[Entries]]:
    """Entries of a whole table, in pieces."""
    from lakebed.format.metadata.record_index import encode_record_index_values

    files = {p: {file.name: file.size or 0 for file in of_partition} for p, of_partition in real.state.files.items()}
    stats = {
        p: [each for name in names for each in real.file(WriteStat("", f"{p}/{name}", p)).column_stats]
        for p, names in files.items()
    }
    current = {
        p: [each for each in of_partition if each.file_name in current_names(real, p)]
        for p, of_partition in stats.items()
    }
    options = {"columns": real.columns, "version": "V2"}
    index = read_record_index(real.metadata).combine_chunks()
    pieces = list(index.to_batches(max_chunksize=3))
    return {
        "files": [file_entries(files)],
        "column_stats": [column_stats_entries({p: of_partition}, **options) for p, of_partition in stats.items()],
        "record_index": [
            Entries(piece["key"], encode_record_index_values(piece), pa.array([], pa.string())) for piece in pieces
        ],
        "partition_stats": [
            partition_stats_entries({p: stats_of_files(p, of_partition)}, **options)
            for p, of_partition in current.items()
        ],
    }


def current_names(real: RealCommits, partition: str) -> set[str]:
    slices = (s for s in real.state.latest_slices if s.group.partition == partition)
    return {path.rpartition("/")[2] for s in slices for path in s.paths}


def publish(storage, built: BuiltPartition) -> None:
    metadata = CommitMetadata({built.partition: built.stats}, operation="BULK_INSERT_PREPPED")
    data = encode_commit(metadata, replace=False)
    storage.create(f"{ROOT}.hoodie/timeline/{built.instant}_20261116000100000.deltacommit", data)


def what_readers_find(metadata: MetadataTable) -> dict[str, object]:
    return {
        "files": list_metadata_files(metadata),
        "record_index": sorted(read_record_index(metadata).to_pylist(), key=lambda row: row["key"]),
        **{
            partition: sorted(
                (row for row in read_column_stats(metadata, partition).to_pylist()), key=lambda row: row["key"]
            )
            for partition in ("column_stats", "partition_stats")
        },
    }
