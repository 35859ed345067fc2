"""Merging of layers that are damaged, or of the wrong kind."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.hfile import HFile, encode_hfile
from lakebed.format.metadata.datum import has_same_layout, stored_schema
from lakebed.format.metadata.records import encode_bloom_record
from lakebed.index.kinds import merge_shard
from lakebed.metadata.shard import EntryLayer, Shard
from lakebed.model.metadata import BloomRecord
from lakebed.model.source import BytesSource
from metadata_rows import StoredFile, stored_files

PARTITIONS = ("files", "column_stats", "bloom_filters", "record_index", "partition_stats", "secondary_index_idx_name")


def layer(data: bytes, path: str) -> EntryLayer:
    source = BytesSource(data, path)
    return EntryLayer(HFile.open(source), source)


def encoded(file: StoredFile, records: int) -> bytes:
    """An HFile that is not compressed, so that damage reaches the records."""
    keys, values = file.keys[:records], file.values[:records]
    bloom = encode_bloom_record(BloomRecord("DYNAMIC_V0", "20300101000000000", b"text"))
    small = [value.as_py() if len(value.as_py()) < 2000 else bloom for value in values]
    return encode_hfile(
        keys, pa.array(small, pa.binary()), schema=file.schema, created_ms=0, base_file=True, codec="none"
    )


def biggest(partition: str) -> StoredFile:
    files = [f for f in stored_files(partition) if f.partition == partition and f.table.startswith("hudi120")]
    return max(files, key=lambda file: len(file.records))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_damage_is_refused_and_the_file_is_named(partition: str) -> None:
    good = encoded(biggest(partition), 10)

    def merge(data: bytes) -> object:
        return merge_shard(Shard((layer(data, "the-file"),)), partition, has_base=True)

    merge(good)  # Loads compiled code, which is not what is timed.
    assert check_decoder(merge, mutations(good, seed=3, count=150), path="the-file") > 25


@pytest.mark.parametrize("partition", ["column_stats", "partition_stats", "secondary_index_idx_name"])
def test_records_of_another_kind_are_refused(partition: str) -> None:
    data = encoded(biggest("record_index"), 5)
    with pytest.raises(CorruptTableError, match="the-file"):
        merge_shard(Shard((layer(data, "the-file"),)), partition, has_base=True)


def test_names_of_base_files_are_left_out() -> None:
    """Hudi writes into each record of a compacted base file the file's name; readers pass over it."""
    named = [
        file
        for file in stored_files("column_stats")
        if file.name.endswith(".hfile") and file.records and file.table.startswith("hudi120")
    ]
    assert named
    for file in named:
        assert has_same_layout(file.schema, stored_schema())
        assert all(file.name.encode() in value for _, value in file.records)
        data = encode_hfile(file.keys, file.values, schema=file.schema, created_ms=0, base_file=True)
        merged = merge_shard(Shard((layer(data, file.name),)), "column_stats", has_base=True)
        assert not any(f"\0\0\0\0\2{file.name}" in str(value) for value in merged.values.to_pylist())
        assert all(value.startswith(bytes(6)) for value in merged.values.to_pylist())
