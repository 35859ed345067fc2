from __future__ import annotations

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.metadata.datum import RecordKind
from lakebed.format.metadata.keys import (
    ALL_PARTITIONS,
    bloom_key,
    column_stats_key,
    column_stats_prefix,
    data_partition_of_group,
    escape_partition,
    expression_partition_stats_key,
    file_id_of_bits,
    group_file_id,
    group_index,
    instant_millis,
    instant_of_millis,
    is_group_of,
    partition_key,
    partition_of_key,
    partition_stats_key,
    unescape_partition,
    uuid_bits,
)
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.model.metadata import ColumnStats
from metadata_rows import stored_files

UTC = timezone.utc
FILE = "9e1ff7e7-7578-4c65-9921-704ef5274d85-0_0-1888-5259_20261115235530634.parquet"
HASHES = {
    "name": "F5SYxeUa1U8=",
    "ts": "oyTjviKHuhI=",
    "region": "KYuVooVbzP4=",
    "_hoodie_commit_time": "JBBzUToHtLc=",
    "eu": "ysx6N5aQMXs=",
    "us": "9W/H6LC1Tao=",
}
# What Apache Hudi 1.2.0 makes of a data partition.
GROUPS = {
    "eu": "record-index-eu-0003-0",
    "region=eu/name=n1": "record-index-region%3Deu%2Fname%3Dn1-0003-0",
    "a-b_c": "record-index-a%2Db%5Fc-0003-0",
    "2024-01-01": "record-index-2024%2D01%2D01-0003-0",
    "a%b": "record-index-a%25b-0003-0",
    "x.y=1": "record-index-x.y%3D1-0003-0",
    "é": "record-index-é-0003-0",
    "": "record-index--0003-0",
    "{a}[b]^\"#'*?:\\": "record-index-%7Ba}%5Bb%5D%5E%22%23%27%2A%3F%3A%5C-0003-0",
    "\t\x7f": "record-index-%09%7F-0003-0",
}


@pytest.mark.parametrize(("text", "hashed"), HASHES.items())
def test_hashes(text: str, hashed: str) -> None:
    assert column_stats_prefix(text) == hashed
    assert partition_stats_key("name", text) == HASHES["name"] + hashed


def test_composed_keys() -> None:
    md5 = "eds3ofXB8hwLWB7DyswIJQ=="
    assert column_stats_key("ts", "eu", FILE) == HASHES["ts"] + HASHES["eu"] + md5
    assert column_stats_key("ts", "", FILE) == HASHES["ts"] + "FXThHwelITM=" + md5
    assert column_stats_key("ts", "eu", FILE).startswith(column_stats_prefix("ts", "eu"))
    assert bloom_key("eu", FILE) == HASHES["eu"] + md5
    assert expression_partition_stats_key("ts", "us") == HASHES["ts"] + "2CMHrhWVE9w=" + HASHES["us"]


def test_partition_keys() -> None:
    assert (partition_key(""), partition_key("eu")) == (".", "eu")
    assert (partition_of_key("."), partition_of_key("eu")) == ("", "eu")


@pytest.mark.parametrize(
    ("partition", "index", "file_id"),
    [
        ("files", 0, "files-0000-0"),
        ("column_stats", 1, "col-stats-0001-0"),
        ("bloom_filters", 3, "bloom-filters-0003-0"),
        ("record_index", 9, "record-index-0009-0"),
        ("partition_stats", 0, "partition-stats-0000-0"),
        ("secondary_index_idx_name", 0, "secondary-index-idx-name-0000-0"),
        ("secondary_index_idx_a-b", 12345, "secondary-index-idx-a-b-12345-0"),
        ("expr_index_idx", 3, "expr-index-idx-0003-0"),
    ],
)
def test_group_file_ids(partition: str, index: int, file_id: str) -> None:
    assert group_file_id(partition, index) == file_id
    assert group_index(file_id) == index
    assert data_partition_of_group(file_id) is None
    assert is_group_of(file_id, partition)
    assert not is_group_of(file_id, "record_index_of_others")


@pytest.mark.parametrize(("partition", "file_id"), GROUPS.items())
def test_groups_of_data_partitions(partition: str, file_id: str) -> None:
    assert group_file_id("record_index", 3, partition) == file_id
    assert data_partition_of_group(file_id) == partition
    assert group_index(file_id) == 3


@pytest.mark.parametrize("file_id", ["record-index", "record-index-a-b-0000-0", "record-index-eu-00-0", "", "x"])
def test_other_file_ids_have_no_data_partition(file_id: str) -> None:
    assert data_partition_of_group(file_id) is None


def test_group_index_of_other_names() -> None:
    assert group_index("files-0000") == 0
    assert group_index("9e1ff7e7-7578-4c65-9921-704ef5274d85-0") is None


@given(st.text())
def test_partitions_round_trip(partition: str) -> None:
    escaped = escape_partition(partition)
    assert not set("-_/=\0") & set(escaped)
    assert unescape_partition(escaped) == partition
    assert data_partition_of_group(group_file_id("record_index", 7, partition)) == partition


def test_a_percent_sign_that_escapes_nothing_stays() -> None:
    assert unescape_partition("100%") == "100%"
    assert unescape_partition("%zz%4") == "%zz%4"


@pytest.mark.parametrize(
    ("instant", "zone", "millis"),
    [
        ("20261115235530634", UTC, 1794786930634),
        ("20261116090652058", ZoneInfo("Asia/Tokyo"), 1794787612058),
        ("20261115235530", UTC, 1794786930999),
        ("20230326023000000", ZoneInfo("Europe/Berlin"), 1679794200000),  # In a gap: an hour later.
        ("20231029023000000", ZoneInfo("Europe/Berlin"), 1698539400000),  # Twice: the earlier one.
        ("00010101000000000", UTC, -62135596800000),
        ("19691231235959999", UTC, -1),
    ],
)
def test_instant_millis(instant: str, zone: timezone, millis: int) -> None:
    assert instant_millis(instant, zone) == millis


@pytest.mark.parametrize(
    "instant", ["", "00000000000000", "00000000000000001", "2026111523553063", "20261315000000000", "²0261115235530634"]
)
def test_instants_without_a_date(instant: str) -> None:
    with pytest.raises(ValueError):
        instant_millis(instant, UTC)


@given(
    st.integers(-62135510400000, 253402214400000),
    st.sampled_from([UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-12))]),
)
def test_instants_round_trip(millis: int, zone: timezone) -> None:
    instant = instant_of_millis(millis, zone)
    assert len(instant) == 17
    assert instant_millis(instant, zone) == millis


BITS = (-7052645917958583195, -7412520027252372091)


@pytest.mark.parametrize(
    ("file_id", "bits"),
    [
        ("9e1ff7e7-7578-4c65-9921-704ef5274d85-0", (*BITS, 0)),
        ("9e1ff7e7-7578-4c65-9921-704ef5274d85-12", (*BITS, 12)),
        ("9e1ff7e7-7578-4c65-9921-704ef5274d85", (*BITS, -1)),
        ("00000001-aaaa-bbbb-cccc-dddddddddddd-0", (7158283195, -3689330049743462947, 0)),
    ],
)
def test_uuid_bits(file_id: str, bits: tuple[int, int, int]) -> None:
    assert uuid_bits(file_id) == bits
    assert file_id_of_bits(*bits) == file_id


@pytest.mark.parametrize(
    "file_id",
    [
        "",
        "abc-1",
        "1-2-3-4-5-0",
        "9E1FF7E7-7578-4c65-9921-704ef5274d85-0",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85-",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85-00",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85-x",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85--1",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85_0",
        "9e1ff7e7-7578-4c65-9921-704ef5274d85-2147483648",
        "files-0000-0",
    ],
)
def test_file_ids_that_bits_would_not_give_back(file_id: str) -> None:
    assert uuid_bits(file_id) is None


@given(st.uuids(), st.integers(-1, 2**31 - 1))
def test_bits_round_trip(uuid: object, index: int) -> None:
    file_id = str(uuid) if index < 0 else f"{uuid}-{index}"
    bits = uuid_bits(file_id)
    assert bits is not None
    assert all(-(2**63) <= half < 2**63 for half in bits[:2])
    assert file_id_of_bits(*bits) == file_id


def test_keys_of_real_statistics() -> None:
    partitions: dict[str, set[str]] = {}
    for file in stored_files("files"):
        partitions.setdefault(file.table, set()).update(partition_of_key(key.decode()) for key, _ in file.records)
    seen = set()
    for file in (*stored_files("column_stats"), *stored_files("partition_stats"), *stored_files("expr_index_idx_ts")):
        for raw, value in file.records:
            key, record = raw.decode(), decode_metadata_record(value, file.schema, path=str(file))
            stats = record.payload
            assert isinstance(stats, ColumnStats)
            if record.kind is RecordKind.COLUMN_STATS:
                assert key in {column_stats_key(stats.column, each, stats.file_name) for each in partitions[file.table]}
            elif file.partition == "partition_stats":
                assert key == partition_stats_key(stats.column, stats.file_name)
            else:
                assert key == expression_partition_stats_key(stats.column, stats.file_name)
            seen.add((file.partition, record.kind))
    assert len(seen) == 4


def test_real_groups_are_named_so() -> None:
    for file in stored_files():
        index = group_index(file.group)
        assert index is not None
        partition = data_partition_of_group(file.group)
        assert group_file_id(file.partition, index, partition) == file.group
        assert (partition is not None) == ("partitioned_rli" in file.table and file.partition == "record_index")


def test_real_lists_of_partitions() -> None:
    keys = {key.decode() for file in stored_files("files") for key, _ in file.records}
    assert {ALL_PARTITIONS, partition_key(""), "eu", "region=eu/name=n1"} <= keys
