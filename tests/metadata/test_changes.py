from __future__ import annotations

import pyarrow as pa

from lakebed.index.change import MetadataChange, change_of_clean, change_of_commit
from lakebed.index.facts import FileFacts
from lakebed.index.record.entries import KeyChanges
from lakebed.model.commit import CleanedPartition, CleanMetadata, WriteStat
from lakebed.model.metadata import ColumnStats

AT = "20300101000000000"


def base(partition: str, number: int, *, follows: str | None = None, **more: object) -> FileFacts:
    name = f"f{number}-0_0-0-1_{AT}.parquet"
    path = f"{partition}/{name}" if partition else name
    return FileFacts(WriteStat(f"f{number}-0", path, partition, prev_commit=follows, file_size=number), **more)


def log(partition: str, number: int) -> FileFacts:
    name = f".f{number}-0_{AT}.log.1_0-0-1"
    return FileFacts(WriteStat(f"f{number}-0", f"{partition}/{name}", partition, prev_commit=AT, file_size=number))


def test_files_are_added_by_partition_with_what_is_known_of_them() -> None:
    stats = ColumnStats(f"f1-0_0-0-1_{AT}.parquet", "v", 1, 2, 3, 0)
    keys = pa.array(["k"])
    change = change_of_commit(
        [base("eu", 1, column_stats=(stats,), bloom_text=b"b", inserted_keys=keys), base("eu", 2), log("us", 3)]
    )
    assert change.added == {
        "eu": {f"f1-0_0-0-1_{AT}.parquet": 1, f"f2-0_0-0-1_{AT}.parquet": 2},
        "us": {f".f3-0_{AT}.log.1_0-0-1": 3},
    }
    assert change.column_stats == {"eu": (stats,), "us": ()}
    assert change.blooms == {"eu": {f"f1-0_0-0-1_{AT}.parquet": b"b"}}
    assert change.keys[0] == KeyChanges("eu", "f1-0", keys, None)
    assert change.rewritten == frozenset()


def test_cdc_files_are_listed_with_their_base_file() -> None:
    cdc = f".f1-0_{AT}.log.1_0-0-1.cdc"
    stat = WriteStat("f1-0", f"eu/f1-0_0-0-1_{AT}.parquet", "eu", file_size=1, cdc_stats={f"eu/{cdc}": 9})
    assert change_of_commit([FileFacts(stat)]).added == {"eu": {f"f1-0_0-0-1_{AT}.parquet": 1, cdc: 9}}


def test_partitions_are_rewritten_where_files_follow_others() -> None:
    files = [base("new", 1), base("updated", 2, follows="20290101000000000"), log("appended", 3)]
    assert change_of_commit(files).rewritten == {"updated"}
    assert change_of_commit(files, replaced=["hidden"]).rewritten == {"updated", "hidden"}
    assert change_of_commit(files, compacts=True).rewritten == {"new", "updated", "appended"}


def test_a_stat_without_a_file_adds_nothing() -> None:
    assert change_of_commit([FileFacts(WriteStat("f", "", "eu"))]) == MetadataChange()


def test_a_clean_takes_files_away() -> None:
    partitions = {
        "eu": CleanedPartition("eu", "", planned=("a", "b"), deleted=("a",), failed=("b",)),
        "de": CleanedPartition("de", "", planned=("c",), deleted=("c",), is_partition_deleted=True),
    }
    change = change_of_clean(CleanMetadata("", "", "", partitions))
    assert change == MetadataChange(deleted={"eu": ("a", "b"), "de": ("c",)}, removed_partitions=("de",))
