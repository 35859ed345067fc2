from __future__ import annotations

import base64
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import RealTable
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.bloom import (
    BloomFilter,
    BloomKind,
    build_bloom,
    decode_bloom,
    encode_bloom,
    extend_bloom,
    murmur2,
)
from lakebed.format.parquet_footer import decode_parquet_footer

PATH = "f-0_0-1-2_20261115235530634.parquet"


def test_hash_check_values() -> None:
    assert murmur2(b"k001", 0) == 0xED6DCF84
    assert murmur2(b"k001", 0xED6DCF84) == 0x6EB79435
    bits = np.unpackbits(build_bloom(pa.array(["k001"])).rows[0], bitorder="little")
    assert bits[[1014636, 1953167, 703576]].all()
    assert bits.sum() == 30


@pytest.mark.parametrize(("capacity", "bits"), [(60_000, 2_587_966), (10_000, 431_328)])
def test_sizes(capacity: int, bits: int) -> None:
    bloom = build_bloom(pa.array([], pa.string()), capacity=capacity)
    assert (bloom.bit_count, bloom.hash_count) == (bits, 30)
    assert bloom.rows.shape == (1, -(-bits // 8))


@pytest.mark.parametrize(
    "name",
    [
        "hudi015_cow_part_upsert",
        "hudi102_cow_nonpart_secondary_special_keys",
        "hudi111_cow_nonpart_autokey",
        "hudi111_mor_part_bucket_complexkey",
        "hudi120_cow_part_upsert",
    ],
)
def test_filters_of_real_base_files_are_rebuilt_to_the_byte(unpack, name: str) -> None:
    for path in base_files(unpack(name)):
        keys = record_keys(path)
        footer = decode_parquet_footer(path.read_bytes(), path=path.name)
        bloom = footer.bloom
        assert bloom is not None
        assert bloom.might_contain_many(keys).all()
        assert all(bloom.might_contain(key) for key in keys.to_pylist())
        assert not bloom.might_contain("never written")
        assert encode_bloom(bloom) == footer.bloom_text
        assert encode_bloom(build_bloom(keys)) == footer.bloom_text


def test_dynamic_filter_adds_a_row_per_capacity_until_it_is_full() -> None:
    def shape(count: int) -> tuple[int, int]:
        keys = pa.array([f"k{index}" for index in range(count)])
        bloom = build_bloom(keys, capacity=10, keys_max=25)
        assert bloom.might_contain_many(keys).all()
        return len(bloom.rows), bloom.last_row_count

    assert [shape(count) for count in (0, 1, 10, 11, 20, 21, 30, 31, 35)] == [
        (1, 0), (1, 1), (1, 10), (2, 1), (2, 10), (3, 1), (3, 10), (3, 11), (3, 15),
    ]  # fmt: skip


def test_keys_beyond_a_full_filter_go_to_its_rows_in_turn() -> None:
    """The first goes to row 0 before the turns begin, at row 0."""
    keys = [f"k{index}" for index in range(30 + 5)]
    bloom = build_bloom(pa.array(keys), capacity=10, keys_max=30)
    in_order = keys[:10] + keys[30:32] + keys[34:], keys[10:20] + keys[32:33], keys[20:30] + keys[33:34]
    for row, of_row in zip(bloom.rows, in_order, strict=True):
        alone = build_bloom(pa.array(of_row), capacity=10, kind=BloomKind.SIMPLE)
        assert (row == alone.rows[0]).all()


def test_simple_filter_layout() -> None:
    bloom = build_bloom(pa.array(["a", "b"]), capacity=10, fpp=0.01, kind=BloomKind.SIMPLE)
    data = base64.b64decode(encode_bloom(bloom))
    assert data[:13] == struct.pack(">iibi", -1, bloom.hash_count, 1, bloom.bit_count)
    assert data[13:] == bloom.rows.tobytes()


def test_null_keys_are_in_no_filter() -> None:
    keys = pa.array([None, "a", "b"])
    bloom = build_bloom(keys.slice(0, 2))
    assert bloom.might_contain_many(keys).tolist() == [False, True, False]
    assert bloom.might_contain_many(keys.slice(1)).tolist() == [True, False]
    assert bloom.might_contain_many(pa.array([], pa.string())).tolist() == []


KEYS = st.lists(st.text(max_size=12), max_size=40)


@settings(deadline=None)
@given(KEYS, KEYS, st.sampled_from(list(BloomKind)))
def test_round_trip_and_bulk_probing_agrees_with_single_probing(keys: list[str], others: list[str], kind) -> None:
    bloom = build_bloom(pa.array(keys, pa.string()), capacity=7, fpp=0.01, kind=kind, keys_max=20)
    decoded = decode_bloom(encode_bloom(bloom), kind.value, path=PATH)
    assert fields(decoded) == fields(bloom)
    probed = pa.array(keys + others, pa.string())
    answers = decoded.might_contain_many(probed)
    assert answers[: len(keys)].all()
    assert answers.tolist() == [decoded.might_contain(key) for key in keys + others]


def test_text_and_bytes_are_the_same() -> None:
    text = encode_bloom(build_bloom(pa.array(["a"]), capacity=10))
    assert fields(decode_bloom(text.decode(), "DYNAMIC_V0", path=PATH)) == fields(
        decode_bloom(text, "DYNAMIC_V0", path=PATH)
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"AAAA", "CUCKOO"),
        (b"***", "SIMPLE"),
        ("Ã¼", "SIMPLE"),
        (b"", "SIMPLE"),
        (b"", "DYNAMIC_V0"),
        (base64.b64encode(struct.pack(">iibi", -1, 30, 1, 8)), "DYNAMIC_V0"),
        (base64.b64encode(struct.pack(">iibi", -1, 30, 1, 2**31 - 1)), "SIMPLE"),
        (base64.b64encode(struct.pack(">iibi", -1, 2**31 - 1, 1, 8) + b"\1"), "SIMPLE"),
        (base64.b64encode(struct.pack(">iibi", -1, 30, 0, 8) + b"\1"), "SIMPLE"),
        (base64.b64encode(struct.pack(">iibi", -1, 30, 1, 0)), "SIMPLE"),
        (base64.b64encode(struct.pack(">iibiiii", -1, 3, 1, 8, 5, 0, 0)), "DYNAMIC_V0"),
        (base64.b64encode(struct.pack(">iibiiii", -1, 3, 1, 8, 5, 0, 1) + struct.pack(">iibi", -1, 4, 1, 8) + b"\1"),
         "DYNAMIC_V0"),
    ],
)  # fmt: skip
def test_broken_filters_are_refused(text: bytes | str, code: str) -> None:
    with pytest.raises(CorruptTableError, match="Bloom filter"):
        decode_bloom(text, code, path=PATH)


@pytest.mark.parametrize("kind", list(BloomKind))
def test_hostile_bytes(kind: BloomKind) -> None:
    keys = pa.array(["a", "b", "c"])
    good = base64.b64decode(encode_bloom(build_bloom(keys, capacity=2, kind=kind)))

    def decode(data: bytes) -> None:
        bloom = decode_bloom(base64.b64encode(data), kind.value, path=PATH)
        bloom.might_contain("a")
        bloom.might_contain_many(keys)

    decode(good)
    check_decoder(decode, mutations(good, seed=2, count=1500), path=PATH)
    check_decoder(decode, truncations(good), path=PATH)


def fields(bloom: BloomFilter) -> tuple[object, ...]:
    return (
        bloom.kind,
        bloom.hash_count,
        bloom.bit_count,
        bloom.capacity,
        bloom.last_row_count,
        np.ascontiguousarray(bloom.rows).tobytes(),
    )


def base_files(table: RealTable):
    found = [path for path in table.path.rglob("*.parquet") if ".hoodie" not in path.parts]
    assert found
    return found


def record_keys(path) -> pa.Array:
    return pq.ParquetFile(path).read(["_hoodie_record_key"]).column(0).combine_chunks()


@pytest.mark.parametrize(("before", "after"), [(0, 5), (5, 0), (7, 2), (10, 15), (25, 30), (40, 3)])
def test_extending_is_building_of_all_keys(before, after):
    keys = pa.array([f"key-{number}" * (number % 3 + 1) for number in range(before + after)])
    whole = build_bloom(keys, capacity=10, keys_max=30)
    grown = extend_bloom(build_bloom(keys[:before], capacity=10, keys_max=30), keys[before:], keys_max=30)
    assert encode_bloom(grown) == encode_bloom(whole)
