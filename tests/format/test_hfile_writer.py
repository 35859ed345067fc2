from __future__ import annotations

import hashlib
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfiles import real_hfiles
from lakebed.errors import InvalidInputError
from lakebed.format.hfile import HFile, arrow, best_packing, decode_hfile, encode_hfile, key_order, writer
from lakebed.kernels.buffers import BadBufferError
from lakebed.model.source import BytesSource

pytestmark = pytest.mark.usefixtures("either_implementation")

OPTIONS = {"schema": '"bytes"', "created_ms": 1794786930634, "base_file": True}
CONTENTS = st.dictionaries(st.binary(max_size=12), st.sampled_from([b"", b"a" * 700, b"abc", b"abd"]) | st.binary())


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are treated as many, however few they are."""
    monkeypatch.setattr(writer, "SMALL_COUNT", -1)
    monkeypatch.setattr(arrow, "SMALL_COUNT", -1)


def arrays(content: dict[bytes, bytes]) -> tuple[pa.Array, pa.Array]:
    return pa.array(sorted(content), pa.binary()), pa.array([content[row] for row in sorted(content)], pa.binary())


def again(data: bytes) -> bytes:
    """A file decoded and encoded from what was decoded."""
    source = BytesSource(data)
    file, records = HFile.open(source), decode_hfile(source)
    return encode_hfile(
        records["key"],
        records["value"],
        schema=file.schema or "",
        created_ms=int.from_bytes(file.file_info["hfile.CREATE_TIME_TS"], "big"),
        base_file="minRecordKey" in file.file_info,
        bloom=file.meta_block("bloomFilter"),
    )


def test_real_hfiles_of_hudi_1_1_and_1_2_come_out_byte_for_byte():
    ours = [path for path in real_hfiles() if path.startswith(("hudi111", "hudi120"))]
    assert len(ours) > 1000
    assert [path for path in ours if again(real_hfiles()[path]) != real_hfiles()[path]] == []


def test_real_hfiles_of_hbase_come_out_with_equal_records():
    older = [data for path, data in real_hfiles().items() if path.startswith(("hudi015", "hudi102"))]
    for data in older[::5]:
        before, after = BytesSource(data), BytesSource(again(data))
        assert list(HFile.open(after).items()) == list(HFile.open(before).items())
        assert HFile.open(after).meta_block("bloomFilter") == HFile.open(before).meta_block("bloomFilter")


@pytest.mark.usefixtures("in_bulk")
def test_real_hfiles_are_decoded_in_bulk():
    for path, data in list(real_hfiles().items())[::9]:
        source = BytesSource(data, path)
        records = decode_hfile(source)
        assert list(zip(records["key"].to_pylist(), records["value"].to_pylist(), strict=True)) == list(
            HFile.open(source).items()
        )


@settings(max_examples=60, deadline=None)
@given(CONTENTS, st.sampled_from([1, 60, 400, 100_000]))
def test_bulk_writes_the_same_bytes(content: dict[bytes, bytes], block_bytes_max: int):
    keys, values = arrays(content)
    options = {**OPTIONS, "codec": "none", "block_bytes_max": block_bytes_max}
    plain = encode_hfile(keys, values, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "SMALL_COUNT", 0)
        assert encode_hfile(keys, values, **options) == plain
        assert encode_hfile(keys, values.dictionary_encode(), **options) == plain


@settings(max_examples=60, deadline=None)
@given(CONTENTS, st.sampled_from([60, 4000, 100_000]), st.booleans(), st.sampled_from(["gzip", "none"]), st.booleans())
def test_round_trip(content: dict[bytes, bytes], block_bytes_max: int, dictionary: bool, codec: str, small: bool):
    keys, values = arrays(content)
    with pytest.MonkeyPatch.context() as patch:
        if not small:
            patch.setattr(writer, "SMALL_COUNT", 0)
            patch.setattr(arrow, "SMALL_COUNT", -1)
        values = values.dictionary_encode() if dictionary else values
        data = encode_hfile(keys, values, **OPTIONS, codec=codec, block_bytes_max=block_bytes_max)
        decoded = decode_hfile(BytesSource(data))
    assert decoded["key"].equals(keys)
    assert decoded["value"].to_pylist() == values.to_pylist()
    assert dict(HFile.open(BytesSource(data)).items()) == content


def test_blocks_end_before_the_record_that_would_exceed_the_limit():
    keys = pa.array([b"key-%08d" % at for at in range(20_000)])
    values = pa.array([bytes(48)] * 20_000).dictionary_encode()
    data = encode_hfile(keys, values, **OPTIONS, block_bytes_max=1024 * 1024)
    file = HFile.open(BytesSource(data))
    sizes = [len(file.read_data_block(*block)) for block in file.data_blocks()]
    assert sizes == [12945 * 81, 7055 * 81]


def test_bulk_blocks_are_gzip_members_that_zlib_reads():
    keys = pa.array([b"%08d-%04d" % (at * 7919 % 100_000, at) for at in range(5000)])
    order = key_order(keys)
    values = pa.array([b"value of some length %d" % (at % 9) for at in range(5000)]).dictionary_encode()
    data = encode_hfile(keys, values, **OPTIONS, order=order, block_bytes_max=30_000)
    file = HFile.open(BytesSource(data))
    for offset, size in file.data_blocks():
        end = offset + int.from_bytes(data[offset + 29 : offset + 33], "big")
        assert zlib.decompress(data[offset + 33 : end], 31) == file.read_data_block(offset, size)
    assert decode_hfile(BytesSource(data))["key"].equals(keys.take(pa.array(order)))


def test_more_blocks_than_are_made_at_once():
    keys = pa.array([b"key-%08d" % at for at in range(40_000)])
    values = pa.array([b"%d" % (at % 7) * 50 for at in range(40_000)]).dictionary_encode()
    for block_bytes_max in (1, 4000, 400_000):
        some = keys.slice(0, 3000) if block_bytes_max == 1 else keys
        data = encode_hfile(some, values.slice(0, len(some)), **OPTIONS, block_bytes_max=block_bytes_max)
        records = decode_hfile(BytesSource(data))
        assert records["key"].equals(some)
        assert records["value"].to_pylist() == values.slice(0, len(some)).to_pylist()


SHAPES = {
    "records": [hashlib.md5(b"%d" % at).hexdigest() for at in range(6000)],
    "searching": [f"{at * 7919 % 10_007:05d}/same/middle/{at % 10}/of/all/{at:05d}" for at in range(6000)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_packing_is_what_a_file_takes_by_itself(shape: str, either_implementation: str):
    if either_implementation == "plain":
        pytest.skip("see docs/decisions/0021: a library's deflate serves")
    keys = pa.array(sorted(SHAPES[shape]))
    values = pa.array([b"file group %d" % (at % 20) * 5 for at in range(6000)]).dictionary_encode()
    by_itself = encode_hfile(keys, values, **OPTIONS)
    assert best_packing(keys, values) == shape
    assert encode_hfile(keys, values, **OPTIONS, packing=best_packing(keys, values)) == by_itself
    for packing in ("records", "searching", "general"):
        other = encode_hfile(keys, values, **OPTIONS, packing=packing)
        assert decode_hfile(BytesSource(other)).equals(decode_hfile(BytesSource(by_itself)))
        assert (other == by_itself) == (packing == shape)


def test_values_that_all_differ_are_packed_as_anything_is():
    keys = pa.array([f"{at:06d}" for at in range(6000)])
    values = pa.array([b"value %d" % at for at in range(6000)])
    assert best_packing(keys, values) == "general"
    assert encode_hfile(keys, values, **OPTIONS, packing="general") == encode_hfile(keys, values, **OPTIONS)


def test_bytes_of_a_bulk_file_are_below_those_of_zlib(either_implementation: str):
    if either_implementation == "plain":
        pytest.skip("see docs/decisions/0021: a library's deflate serves")
    rng = np.random.default_rng(5)
    keys = pa.array(sorted(rng.bytes(16).hex() for _ in range(6000)))
    values = pa.array([b"file group %d" % at * 5 for at in range(20)])
    ids = pa.array(rng.integers(0, 20, 6000, dtype=np.int32))
    data = encode_hfile(keys, pa.DictionaryArray.from_arrays(ids, values), **OPTIONS)
    file = HFile.open(BytesSource(data))
    blocks = [(size, file.read_data_block(offset, size)) for offset, size in file.data_blocks()]
    assert sum(size for size, _ in blocks) < sum(len(zlib.compress(content, 6)) for _, content in blocks)


def test_values_come_as_a_dictionary_unless_most_differ():
    keys = pa.array([b"%06d" % at for at in range(6000)])
    for values, expected in (
        ([b"same"] * 6000, pa.dictionary(pa.int32(), pa.binary())),
        (keys.to_pylist(), pa.binary()),
    ):
        data = encode_hfile(keys, pa.array(values), **OPTIONS)
        decoded = decode_hfile(BytesSource(data))["value"]
        assert decoded.type == expected
        assert decoded.to_pylist() == values


@pytest.mark.usefixtures("in_bulk")
@pytest.mark.parametrize("length", [1, 7, 8, 15, 16, 17, 31, 32, 33, 57])
def test_values_that_differ_in_one_byte(length: int):
    distinct = [bytes(length)] + [bytes(at) + b"\1" + bytes(length - at - 1) for at in range(length)]
    values = [*distinct, *distinct[::-1], bytes(length - 1)] * 3
    keys = pa.array([b"%06d" % at for at in range(len(values))])
    decoded = decode_hfile(BytesSource(encode_hfile(keys, pa.array(values, pa.binary()), **OPTIONS)))["value"]
    assert decoded.to_pylist() == values
    assert decoded.dictionary.to_pylist() == [*distinct, bytes(length - 1)]


@pytest.mark.usefixtures("in_bulk")
def test_distinct_values_block_by_block_find_room():
    # One record per block: the arrays of what is known grow each time by exactly one record too many.
    content = {f"{number:05}".encode(): f"value {number}".encode() for number in range(5000)}
    read = decode_hfile(BytesSource(encode_hfile(*arrays(content), **OPTIONS, block_bytes_max=1)))
    assert dict(zip(read["key"].to_pylist(), read["value"].to_pylist(), strict=True)) == content


@pytest.mark.usefixtures("in_bulk")
def test_wide_offsets_where_32_bits_do_not_suffice(monkeypatch: pytest.MonkeyPatch):
    keys = pa.array([b"%06d" % at for at in range(300)])
    data = encode_hfile(keys, keys, **OPTIONS)
    monkeypatch.setattr(arrow, "_OFFSET_MAX", 100)
    decoded = decode_hfile(BytesSource(data))
    assert decoded.schema.types == [pa.large_binary(), pa.large_binary()]
    assert decoded["value"].to_pylist() == decoded["key"].to_pylist() == keys.to_pylist()


def test_input_of_any_string_type_and_any_slice():
    keys = [f"key-{at:05}" for at in range(3000)]
    expected = encode_hfile(pa.array(keys), pa.array(keys, pa.binary()), **OPTIONS)
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        padded = pa.array(["before", *keys, "after"]).cast(kind)
        values = pa.array(["", *keys]).cast(pa.binary())
        assert encode_hfile(padded[1:-1], values[1:], **OPTIONS) == expected


@pytest.mark.parametrize("count", [3, 3000])
@pytest.mark.parametrize("damage", [lambda keys: keys[::-1], lambda keys: [keys[0], *keys[:-1]]])
def test_keys_out_of_order_are_our_own_mistake(count: int, damage):
    keys = pa.array(damage([b"%06d" % at for at in range(count)]))
    with pytest.raises((AssertionError, BadBufferError)):
        encode_hfile(keys, keys, **OPTIONS)


def test_keys_too_long_for_the_format():
    long = pa.array(["k" * 40_000])
    with pytest.raises(InvalidInputError, match="40000 bytes"):
        encode_hfile(long, long.cast(pa.binary()), **OPTIONS)
    longest = pa.array(["k" * 32_767])
    data = encode_hfile(longest, longest.cast(pa.binary()), **OPTIONS)
    assert HFile.open(BytesSource(data)).find(b"k" * 32_767) == b"k" * 32_767
