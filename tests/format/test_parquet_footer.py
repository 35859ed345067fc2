from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import RealTable
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.bloom import BloomKind, build_bloom
from lakebed.format.parquet_footer import decode_parquet_footer, footer_metadata
from lakebed.model.words import RECORD_KEY

PATH = "eu/f-0_0-1-2_20261115235530634.parquet"


def test_footers_of_real_base_files(real_table: RealTable) -> None:
    for path in base_files(real_table):
        data = path.read_bytes()
        footer = decode_parquet_footer(data, path=path.name)
        table = pq.ParquetFile(pa.BufferReader(data)).read()
        assert footer.rows == table.num_rows
        assert footer.repetitive == repetitive_by_arrow(data)
        if footer.key_min is not None:
            keys = table[RECORD_KEY].to_pylist()
            assert (footer.key_min, footer.key_max) == (min(keys), max(keys))
            assert footer.bloom_type == BloomKind.DYNAMIC.value


def test_tail_bytes_and_open_files_are_enough(unpack, tmp_path) -> None:
    path = base_files(unpack("hudi120_cow_part_upsert"))[0]
    data = path.read_bytes()
    whole = decode_parquet_footer(data, path=PATH)
    length = int.from_bytes(data[-8:-4], "little") + 8
    assert decode_parquet_footer(data[-length:], path=PATH) == whole
    assert decode_parquet_footer(memoryview(data)[-length - 3 :], path=PATH) == whole
    with pa.OSFile(str(path)) as file:
        assert decode_parquet_footer(file, path=PATH) == whole
    with pytest.raises(CorruptTableError):
        decode_parquet_footer(data[-length + 1 :], path=PATH)


def test_footer_longer_than_the_first_read() -> None:
    data = parquet({b"parquet.avro.schema": b"x" * 3_000_000})
    footer = decode_parquet_footer(pa.PythonFile(pa.BufferReader(data)), path=PATH)
    assert footer.avro_schema == "x" * 3_000_000


def test_failing_storage_is_not_corruption() -> None:
    class Gone:
        closed = False

        def seek(self, *_: int) -> int:
            raise ConnectionError("the store is gone")

        def tell(self) -> int:
            raise ConnectionError("the store is gone")

    with pytest.raises(ConnectionError):
        decode_parquet_footer(pa.PythonFile(Gone(), mode="r"), path=PATH)


def test_a_plain_parquet_file_has_a_footer_without_keys() -> None:
    footer = decode_parquet_footer(parquet(None), path=PATH)
    assert footer.rows == 3
    assert (footer.avro_schema, footer.key_min, footer.key_max, footer.bloom) == (None, None, None, None)


def test_bloom_without_type_is_simple() -> None:
    footer = decode_parquet_footer(parquet({b"org.apache.hudi.bloomfilter": b"AAAA"}), path=PATH)
    assert footer.bloom_type == "SIMPLE"
    with pytest.raises(CorruptTableError, match="Bloom filter"):
        _ = footer.bloom


def test_metadata_of_a_new_base_file_is_what_hudi_writes(unpack) -> None:
    for path in base_files(unpack("hudi111_cow_nonpart_secondary_special_keys")):
        data = path.read_bytes()
        real = pq.read_metadata(pa.BufferReader(data)).metadata
        keys = pq.ParquetFile(pa.BufferReader(data)).read([RECORD_KEY]).column(0).combine_chunks()
        ours = footer_metadata(keys, real[b"parquet.avro.schema"].decode(), build_bloom(keys))
        assert ours == {key: value for key, value in real.items() if key != b"ARROW:schema"}


@pytest.mark.parametrize(
    ("keys", "bounds"),
    [
        (["b", "a", None, "c"], ("a", "c")),
        (["é", "z", "Z"], ("Z", "é")),
        (["\ufffd", "\U0001f600"], ("\U0001f600", "\ufffd")),
        ([""], ("", "")),
    ],
)
def test_key_range_is_in_the_order_of_java_strings(keys: list[str | None], bounds: tuple[str, str]) -> None:
    entries = footer_metadata(pa.array(keys, pa.string()), "{}")
    assert (entries[b"hoodie_min_record_key"].decode(), entries[b"hoodie_max_record_key"].decode()) == bounds


def test_an_empty_base_file_has_a_filter_but_no_key_range() -> None:
    entries = footer_metadata(pa.array([], pa.string()), "{}")
    footer = decode_parquet_footer(parquet(entries), path=PATH)
    assert (footer.key_min, footer.key_max, footer.avro_schema) == (None, None, "{}")
    assert footer.bloom is not None
    assert not footer.bloom.might_contain("a")


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1PAR1", b"x" * 100, b"\xff\xff\xff\xffPAR1", b"\0\0\0\0PARE"])
def test_what_is_not_parquet_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="Parquet footer"):
        decode_parquet_footer(data, path=PATH)
    with pytest.raises(CorruptTableError, match="Parquet footer"):
        decode_parquet_footer(pa.BufferReader(data), path=PATH)


def test_hostile_bytes() -> None:
    good = parquet({b"hoodie_min_record_key": b"a", b"parquet.avro.schema": b"{}"})
    decode = lambda data: decode_parquet_footer(data, path=PATH)  # noqa: E731
    # Among these are bytes at which Arrow, asked for a column chunk, would end the process.
    check_decoder(decode, mutations(good, seed=3, count=20_000), path=PATH)
    check_decoder(decode, truncations(good), path=PATH)


def repetitive_by_arrow(data: bytes) -> set[str]:
    """Texts of which Arrow says that they are numbers of dictionary entries."""
    metadata = pq.read_metadata(pa.BufferReader(data))
    chunks = [
        [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        for index in range(metadata.num_columns)
    ]
    return {
        metadata.schema.column(index).path
        for index, column in enumerate(chunks)
        if metadata.schema.column(index).logical_type.type == "STRING" and column
        if all(c.has_dictionary_page and c.total_uncompressed_size <= 4 * c.num_values for c in column)
    }


def parquet(metadata: dict[bytes, bytes] | None) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3]})
    with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(metadata or {})
    return sink.getvalue().to_pybytes()


def base_files(table: RealTable):
    return sorted(path for path in table.path.rglob("*.parquet") if ".hoodie" not in path.parts)
