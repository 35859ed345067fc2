from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfiles import Records, block, file_info, hbase_file, real_hfiles, record, root_index, trailer
from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.format.hfile import HFile, encode_hfile, reader
from lakebed.model.source import BytesSource


@dataclass
class CountingSource:
    data: bytes
    path: str = "counted.hfile"
    ranges: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        self.ranges.append((offset, length))
        return self.data[offset : offset + length]


def sample_records(count: int) -> Records:
    return [(f"key-{at:05}".encode(), f"value {at % 7}".encode()) for at in range(count)]


def encoded(records: Records, **options) -> bytes:
    keys, values = (pa.array([pair[at] for pair in records], pa.binary()) for at in (0, 1))
    return encode_hfile(keys, values, schema='"bytes"', created_ms=5, base_file=True, **options)


def test_every_real_hfile_finds_its_own_keys():
    for path, data in real_hfiles().items():
        file = HFile.open(BytesSource(data, path))
        records = list(file.items())
        assert len(records) == file.entry_count
        assert [row for row, _ in records] == sorted({row for row, _ in records})
        assert file.find_many(row for row, _ in records) == dict(records)
        for row, value in records[:: max(1, len(records) // 3)]:
            assert file.find(row) == value
            assert (row, value) in list(file.scan_prefix(row[:3]))
            assert file.find(row + b"\0") is None
        assert file.schema is not None
        assert file.schema.startswith('{"type":"record","name":"HoodieMetadataRecord"')


def test_the_files_record_of_a_real_table():
    name = "hudi111_cow_part_upsert.zip!cow_part_upsert/.hoodie/metadata/files/files-0000-0_"
    data = next(data for path, data in real_hfiles().items() if path.startswith(name))
    file = HFile.open(BytesSource(data))
    assert file.find(b"__all_partitions__") == bytes.fromhex("0000000000 00 02 02 00 00000000")
    assert file.file_info["bloomFilterTypeCode"] == b"DYNAMIC_V0"
    bloom = file.meta_block("bloomFilter")
    assert bloom is not None
    assert len(bloom) == 71940
    assert file.meta_block("other") is None


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("codec", [1, 2])
def test_index_levels(levels: int, codec: int):
    records = sample_records(50)
    file = HFile.open(BytesSource(hbase_file(records, levels=levels, codec=codec)))
    assert list(file.items()) == records
    assert [file.find(row) for row, _ in records] == [value for _, value in records]
    assert file.find(b"") is None
    assert file.find(b"key-00007x") is None
    assert file.find(b"zzz") is None
    assert [row for row, _ in file.scan_prefix(b"key-0001")] == [b"key-0001%d" % at for at in range(10)]
    assert file.find_many([b"no", *(row for row, _ in records)]) == dict(records)


def test_index_keys_between_blocks():
    """HBase may index a block by a short key between the last one before and its first."""
    blocks = [block(b"DATABLK*", record(row, b"v")) for row in (b"aaaa", b"cccc")]
    entries = [(b"aaaa", 0, len(blocks[0])), (b"b", len(blocks[0]), len(blocks[1]))]
    body = b"".join(blocks)
    info = block(b"FILEINF2", file_info({}))
    end = trailer(index_at=len(body), index_count=2, entry_count=2, levels=1)
    section = block(b"IDXROOT2", root_index(entries)) + block(b"IDXROOT2", b"") + info
    file = HFile.open(BytesSource(body + section + end))
    assert file.find(b"cccc") == b"v"
    assert file.find(b"b") is None
    assert [row for row, _ in file.scan_prefix(b"c")] == [b"cccc"]
    assert file.schema is None


@pytest.mark.parametrize(
    ("codec", "name"), [(0, "lzo"), (3, "snappy"), (4, "lz4"), (5, "bzip2"), (6, "zstd"), (9, "9")]
)
def test_other_codecs_are_named(codec: int, name: str):
    with pytest.raises(UnsupportedTableError, match=name):
        HFile.open(BytesSource(hbase_file(sample_records(2), levels=1, codec=codec)))


def test_an_empty_file():
    file = HFile.open(BytesSource(encoded([])))
    assert file.entry_count == 0
    assert list(file.items()) == []
    assert list(file.scan_prefix(b"")) == []
    assert file.find(b"key") is None
    assert file.file_info["hfile.LASTKEY"] == b""


def test_reads_of_a_large_file():
    """One read opens, one more fetches a block; blocks are read once for many keys."""
    records = [(b"%032d" % at, b"%d" % at * 3) for at in range(40_000)]
    source = CountingSource(encoded(records, block_bytes_max=16384))
    file = HFile.open(source)
    assert file.find(records[17][0]) == records[17][1]
    assert len(source.ranges) <= 3
    opened = len(source.ranges)
    assert file.find(records[20_000][0]) == records[20_000][1]
    assert len(source.ranges) == opened + 1
    wanted = dict(records[::50])
    assert file.find_many([*wanted, b"none", b"%032d5" % 3]) == wanted
    fetched = source.ranges[opened + 1 :]
    assert len(fetched) == len(set(fetched))


def test_a_small_file_takes_one_read():
    source = CountingSource(encoded(sample_records(100)))
    file = HFile.open(source)
    assert file.find(b"key-00050") == b"value 1"
    assert file.schema == '"bytes"'
    assert len(source.ranges) == 1


def test_values_that_look_like_records_are_not_found():
    fake = record(b"key-2", b"wrong")
    records = [(b"key-1", fake), (b"key-3", b"three" + fake)]
    file = HFile.open(BytesSource(encoded(records)))
    assert file.find(b"key-2") is None
    assert file.find(b"key-3") == records[1][1]
    assert file.find_many([b"key-1", b"key-2", b"key-3"]) == dict(records)


def test_overlapping_blocks_are_refused():
    data = block(b"DATABLK*", record(b"a", b"v"))
    entries = [(b"a", 0, len(data)), (b"b", 0, len(data))]
    section = block(b"IDXROOT2", root_index(entries)) + block(b"IDXROOT2", b"") + block(b"FILEINF2", file_info({}))
    end = trailer(index_at=len(data), index_count=2, entry_count=2, levels=1)
    with pytest.raises(CorruptTableError, match="out of order"):
        list(HFile.open(BytesSource(data + section + end, "twice.hfile")).items())


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_entry_count_is_refused(count: int):
    data = hbase_file(sample_records(2), levels=1)
    at = len(data) - 4096
    wrong = data[:at] + data[at:].replace(b"\x38\x02\x40\x01", b"\x38%c\x40\x01" % count)
    with pytest.raises(CorruptTableError, match="the trailer says"):
        list(HFile.open(BytesSource(wrong)).items())


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.binary(max_size=6), st.binary(max_size=20)), st.integers(1, 200), st.binary(max_size=2))
def test_lookups_agree_with_a_dict(content: dict[bytes, bytes], block_bytes_max: int, prefix: bytes):
    records = sorted(content.items())
    file = HFile.open(BytesSource(encoded(records, block_bytes_max=block_bytes_max)))
    assert list(file.items()) == records
    assert file.find(prefix) == content.get(prefix)
    assert list(file.scan_prefix(prefix)) == [pair for pair in records if pair[0].startswith(prefix)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.randoms(use_true_random=False))
def test_lookups_one_after_the_other_remember_where_records_start(stride: int, chance: Random):
    """In blocks of many records, whose values hold what looks like records of other keys; some keys are not there."""
    keys = [f"k{number}".encode() for number in range(300)]
    present = sorted(chance.sample(keys, 150))
    records = [
        (key, b"v" * chance.randrange(9) + record(chance.choice(keys), b"fake") * chance.randrange(3))
        for key in present
    ]
    with patch.object(reader, "_STRIDE", stride):
        file = HFile.open(BytesSource(encoded(records, block_bytes_max=chance.choice([500, 5_000, 1 << 20]))))
        known = dict(records)
        for key in chance.sample(keys, len(keys)):
            assert file.find(key) == known.get(key)
        assert file.find_many(keys) == known
        assert all([*starts] == sorted({*starts}) for starts in file._starts.values())
