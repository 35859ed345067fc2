"""Files of a shard: byte for byte those of the real tables, and round trips."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import DATA
from lakebed.format.hfile import HFile
from lakebed.format.log.blocks import decode_deletes, hfile_content
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.shard_files import (
    BLOOM_KEYS,
    encode_placeholder_log,
    encode_shard_base,
    encode_shard_log,
)
from lakebed.model.source import BytesSource

TABLES = ("hudi120_cow_part_upsert", "hudi120_mor_nonpart_all_indexes", "hudi120_cow_part_clean_archive")


def metadata_files(table: str, suffix: str) -> Iterator[tuple[str, bytes]]:
    """Files of a metadata table's partitions, by name."""
    with zipfile.ZipFile(DATA / f"{table}.zip") as archive:
        for path in archive.namelist():
            _, _, inside = path.partition("/.hoodie/metadata/")
            if inside and not inside.startswith(".") and suffix in inside and not inside.endswith(".crc"):
                yield inside, archive.read(path)


def created_at(hfile: HFile) -> int:
    return int.from_bytes(hfile.file_info["hfile.CREATE_TIME_TS"], "big")


@pytest.mark.parametrize("table", TABLES)
def test_logs_are_those_of_hudi_to_the_byte(table: str) -> None:
    count = 0
    for path, data in metadata_files(table, ".log."):
        blocks = decode_log_file(data, path=path)
        if HeaderKey.SCHEMA in blocks[0].header:
            assert sizes(encode_again(blocks, path)) == sizes(data)
            count += 1
        else:
            assert encode_placeholder_log(blocks[0].header[HeaderKey.INSTANT_TIME]) == data
    assert count


def encode_again(blocks: tuple[LogBlock, ...], path: str) -> bytes:
    keys, values, deletes, schema, created = [], [], [], "", 0
    for block in blocks:
        schema = block.header[HeaderKey.SCHEMA]
        if block.kind is BlockKind.HFILE_DATA:
            hfile = HFile.open(hfile_content(block, path=path))
            created = created_at(hfile)
            keys, values = map(list, zip(*hfile.items(), strict=True))
        else:
            deletes = decode_deletes(block, path=path)["key"].to_pylist()
    # In another order than theirs: it is ours to sort.
    return encode_shard_log(
        blocks[0].header[HeaderKey.INSTANT_TIME],
        pa.array([key.decode() for key in reversed(keys)], pa.string()),
        pa.array(list(reversed(values)), pa.binary()),
        pa.array(deletes, pa.string()),
        mdt_partition=path.partition("/")[0],
        schema=schema,
        created_ms=created,
    )


def sizes(data: bytes) -> list[tuple[object, ...]]:
    """Blocks by kind and content; of header entries the order is free."""
    return [(block.kind, dict(block.header), bytes(block.content)) for block in decode_log_file(data, path="log")]


@pytest.mark.parametrize("table", TABLES)
def test_base_files_are_those_of_hudi_to_the_byte(table: str) -> None:
    count = 0
    for path, data in metadata_files(table, ".hfile"):
        hfile = HFile.open(BytesSource(data, path))
        records = list(hfile.items())
        keys = pa.array([key.decode() for key, _ in records], pa.string())
        values = pa.array([value for _, value in records], pa.binary())
        assert encode_shard_base(keys, values, schema=hfile.schema or "", created_ms=created_at(hfile)) == data, path
        count += 1
    assert count


def test_large_base_files_have_no_bloom_filter() -> None:
    keys = pa.array([f"k{i:06d}" for i in range(BLOOM_KEYS + 1)])
    values = pa.array([b"v"] * len(keys), pa.binary())
    found = [
        HFile.open(BytesSource(encode_shard_base(k, v, schema="{}", created_ms=0, in_order=True))).file_info
        for k, v in ((keys, values), (keys[:-1], values[:-1]))
    ]
    assert ["bloomFilterTypeCode" in info for info in found] == [False, True]


@given(
    records=st.dictionaries(st.text(max_size=20), st.binary(max_size=20), max_size=20),
    deletes=st.sets(st.text(max_size=20), max_size=5),
)
def test_log_round_trip(records: dict[str, bytes], deletes: set[str]) -> None:
    if not records and not deletes:
        return
    data = encode_shard_log(
        "20300101000000000",
        pa.array(list(records), pa.string()),
        pa.array(list(records.values()), pa.binary()),
        pa.array(list(deletes), pa.string()),
        mdt_partition="record_index",
        schema=stored_schema(),
        created_ms=0,
    )
    blocks = decode_log_file(data, path="log")
    assert [block.kind for block in blocks] == [BlockKind.HFILE_DATA] * bool(records) + [BlockKind.DELETE] * bool(
        deletes
    )
    for block in blocks:
        assert block.header == {HeaderKey.INSTANT_TIME: "20300101000000000", HeaderKey.SCHEMA: stored_schema()}
    if records:
        items = HFile.open(hfile_content(blocks[0], path="log")).items()
        assert {key.decode(): value for key, value in items} == records
    if deletes:
        table = decode_deletes(blocks[-1], path="log")
        assert set(table["key"].to_pylist()) == deletes
        assert set(table["partition"].to_pylist()) == {"record_index"}
        assert table["always"].to_pylist() == [True] * len(deletes)
