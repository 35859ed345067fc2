"""Single rows by their pages are what reading the whole file gives, whoever wrote it and however."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REAL_TABLES
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.parquet_pages import ParquetPages
from lakebed.format.thrift import RAW, decode_struct, encode_struct, integer, integer_list, nested, struct_list, text
from lakebed.model.source import BytesSource

ROWS = 500


def table() -> pa.Table:
    rng = np.random.default_rng(5)
    some = lambda values: [None if rng.random() < 0.2 else value for value in values]  # noqa: E731
    numbers = range(ROWS)
    return pa.table(
        {
            "key": pa.array([f"key-{n:05}" for n in numbers], pa.string()),
            "word": pa.array(some([("amber", "birch", "cedar")[n % 3] for n in numbers]), pa.string()),
            "long": pa.array(some(numbers), pa.int64()),
            "flag": pa.array(some([n % 3 == 0 for n in numbers]), pa.bool_()),
            "double": pa.array(rng.random(ROWS)),
            "small": pa.array(some([n % 100 for n in numbers]), pa.int8()),
            "price": pa.array(some([decimal.Decimal(n) / 100 for n in numbers]), pa.decimal128(10, 2)),
            "at": pa.array(some([dt.datetime(2026, 1, 1) + dt.timedelta(seconds=n) for n in numbers])),
            "day": pa.array(some([dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in numbers])),
            "bytes": pa.array(some([bytes([n % 256]) * (n % 9) for n in numbers]), pa.binary()),
            "list": pa.array(some([list(range(n % 4)) for n in numbers]), pa.list_(pa.int32())),
            "map": pa.array(some([[("a", n)] * (n % 3) for n in numbers]), pa.map_(pa.string(), pa.int64())),
            "deep": pa.array(
                some([{"x": n, "y": {"z": f"z{n}", "w": None if n % 2 else n}} for n in numbers]),
                pa.struct(
                    [("x", pa.int32()), ("y", pa.struct([("z", pa.string()), ("w", pa.int64())]))],
                ),
            ),
            "nothing": pa.nulls(ROWS, pa.string()),
        }
    )


TABLE = table()


def encoded(**options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink, store_schema=False, **options)
    return sink.getvalue().to_pybytes()


def opened(data: bytes) -> ParquetPages:
    return ParquetPages(BytesSource(data, "f.parquet"))


WRITERS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "write_page_index": st.booleans(),
        "use_dictionary": st.sampled_from([True, False, ["word", "key"]]),
        "data_page_size": st.sampled_from([64, 1000, 1 << 20]),
        "dictionary_pagesize_limit": st.sampled_from([100, 1 << 20]),
        "max_rows_per_page": st.sampled_from([7, 64, 20_000]),
        "row_group_size": st.sampled_from([33, 200, 1000]),
        "write_batch_size": st.sampled_from([5, 1024]),
        "write_statistics": st.booleans(),
    }
)


@given(options=WRITERS, rows=st.sets(st.integers(0, ROWS - 1), max_size=4), data=st.data())
def test_rows_of_any_writer(options: dict[str, Any], rows: set[int], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(TABLE.schema.names), unique=True, min_size=1))
    file = encoded(**options)
    whole = pq.read_table(pa.BufferReader(file))
    found = opened(file).read_rows([*names, "absent"], sorted(rows))
    assert found.schema.names == names
    assert found.equals(whole.select(names).take(pa.array(sorted(rows), pa.int64())))


def test_a_column_as_a_whole() -> None:
    keys = list(opened(encoded(row_group_size=77)).read_column("key"))
    assert len(keys) == -(-ROWS // 77)
    assert pa.chunked_array(keys).equals(TABLE["key"])


def test_only_the_pages_of_the_row_are_read() -> None:
    data = encoded(use_dictionary=False, compression="NONE", max_rows_per_page=10, write_page_index=True)
    source = Counting(data)
    pages = ParquetPages(source)
    pages.read_rows(["key"], [3])
    source.read_bytes = 0
    pages.read_rows(["key"], [250])
    assert 0 < source.read_bytes < 1000


class Counting(BytesSource):
    """A file that counts what is read of it."""

    __slots__ = ("read_bytes",)

    def __init__(self, data: bytes) -> None:
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "path", "f.parquet")
        object.__setattr__(self, "read_bytes", 0)

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def read(self, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return self.data[offset : offset + length]


@pytest.mark.parametrize("name", REAL_TABLES)
def test_files_of_apache_hudi(unpack, name: str) -> None:
    for path in sorted(Path(unpack(name).path).rglob("*.parquet")):
        if ".hoodie" in path.parts:
            continue
        data = path.read_bytes()
        whole = pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us").read()
        pages = opened(data)
        rows = sorted({0, whole.num_rows // 2, whole.num_rows - 1} if whole.num_rows else ())
        found = pages.read_rows(whole.schema.names, rows)
        assert found.to_pylist() == whole.take(pa.array(rows, pa.int64())).to_pylist()


def test_no_parquet_file() -> None:
    for data in (b"", b"PAR1", b"x" * 100, encoded()[:-1], b"\xff\xff\xff\x7fPAR1"):
        with pytest.raises(CorruptTableError):
            opened(data)


@pytest.mark.parametrize("indexed", [True, False])
def test_bad_bytes(indexed: bool) -> None:
    def decode(data: bytes) -> object:
        pages = opened(data)
        return [pages.read_rows(["key", "word", "list", "deep"], [0, 250]), *pages.read_column("key")]

    footer = len(_SOUND[indexed]) - 3000
    cut = check_decoder(decode, truncations(_SOUND[indexed], step=997), path="f.parquet")
    assert cut == len(range(0, len(_SOUND[indexed]), 997))
    tails = (_SOUND[indexed][:footer] + tail for tail in mutations(_SOUND[indexed][footer:], seed=7, count=600))
    assert check_decoder(decode, tails, path="f.parquet") > 100
    assert check_decoder(decode, mutations(_SOUND[indexed], seed=8, count=300), path="f.parquet") > 50


_SOUND = {indexed: encoded(max_rows_per_page=50, write_page_index=indexed) for indexed in (True, False)}


def test_thrift_round_trip() -> None:
    inner = encode_struct({1: integer(-5), 2: text(b"abc")})
    numbers = [*range(-8, 8), 2**31 - 1, -(2**31)]
    fields = {1: integer(2**63 - 1), 3: struct_list([inner] * 20), 4: integer_list(numbers), 9: nested(inner)}
    data = encode_struct(fields)
    found, end = decode_struct(data)
    assert end == len(data)
    assert found[RAW] == data
    assert found[1] == 2**63 - 1
    assert [item[1] for item in found[3]] == [-5] * 20
    assert found[4] == numbers
    assert (found[9][2], found[9][RAW]) == (b"abc", inner)
