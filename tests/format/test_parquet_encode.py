"""Parquet files that compiled code encodes are what Arrow reads as the rows that were given."""

from __future__ import annotations

import datetime as dt
import decimal
import string
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.format import parquet_encode
from lakebed.format.parquet_encode import EncodedFile, Numbered, ParquetEncoder, Spread, can_encode

pytestmark = pytest.mark.usefixtures("compiled_kernels")

ENTRIES = {b"parquet.avro.schema": b"{}", b"writer.model.name": b"avro"}
CODECS = ("NONE", "SNAPPY", "ZSTD", "GZIP")
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=12),
    pa.large_string(): st.text(string.ascii_letters, max_size=20),
    pa.binary(): st.binary(max_size=12),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(20, 0): st.integers(-(10**20) + 1, 10**20 - 1).map(decimal.Decimal),
    pa.decimal128(38, 3): st.decimals(-(10**34), 10**34, places=3),
    pa.time64("us"): st.times(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)),
    pa.timestamp("ms", "UTC"): st.integers(0, 2**41).map(
        lambda ms: dt.datetime.fromtimestamp(ms // 1000, dt.timezone.utc)
    ),
}


def encode(
    table: pa.Table,
    codec: str = "NONE",
    repetitive: tuple[str, ...] = (),
    rows: list[int] | None = None,
    **alike: str | Numbered,
) -> EncodedFile:
    """The rows as a file, or some of them; columns that are alike come last."""
    schema, columns = table.schema, dict[str, Any](zip(table.column_names, table.columns, strict=True))
    for name, value in alike.items():
        schema, columns = schema.append(pa.field(name, pa.string())), {**columns, name: value}
    codecs = dict.fromkeys(columns, codec)
    assert can_encode(schema, columns, codecs)
    encoder = ParquetEncoder(schema, columns, codecs=codecs, repetitive=repetitive)
    picked = np.arange(table.num_rows) if rows is None else np.array(rows)
    return encoder.encode(picked, ENTRIES, lambda size: memoryview(bytearray(size)), alike)


def decode(encoded: EncodedFile) -> pa.Table:
    return pq.read_table(pa.BufferReader(b"".join(encoded.parts)))


def plain(table: pa.Table) -> pa.Table:
    """The table with its dictionaries spelled out."""
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in table.schema.types]
    kinds = [pa.string() if kind == pa.large_string() else kind for kind in kinds]
    fields = [field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)]
    return table.cast(pa.schema(fields))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    arrays, fields = [], []
    for number in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from([*VALUES]))
        nullable = draw(st.booleans())
        value = VALUES[kind] if not nullable else st.none() | VALUES[kind]
        # A slice of a longer array, in one piece or several.
        values = pa.array(draw(st.lists(value, min_size=rows + 3, max_size=rows + 3)), kind)
        cut = draw(st.integers(0, rows))
        arrays.append(pa.chunked_array([values[2 : 2 + cut], values[2 + cut : 2 + rows]], kind))
        fields.append(pa.field(f"c{number}", kind, nullable=nullable))
    return pa.table(arrays, schema=pa.schema(fields))


def bounds(spread: Spread) -> list[Any]:
    return [end.as_py() for end in (spread.low, spread.high) if end is not None]


def check_spreads(encoded: EncodedFile, table: pa.Table) -> None:
    for name, column in zip(table.column_names, table.columns, strict=True):
        spread, values = encoded.spreads[name], [value for value in column.to_pylist() if value is not None]
        assert spread.nulls == column.null_count
        assert spread.kind == (column.type.value_type if pa.types.is_dictionary(column.type) else column.type)
        assert (spread.low is None) == (spread.high is None) == (not values)
        if values:
            key = str.encode if isinstance(values[0], str) else None
            assert bounds(spread) == [min(values, key=key), max(values, key=key)]


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from(CODECS), st.booleans())
def test_arrow_reads_what_was_given(table: pa.Table, codec: str, is_repetitive: bool) -> None:
    encoded = encode(table, codec, tuple(table.column_names) if is_repetitive else ())
    found = decode(encoded)
    assert found.equals(plain(table))
    assert found.schema.equals(plain(table).schema)
    check_spreads(encoded, table)


@settings(max_examples=150, deadline=None)
@given(tables(), st.data(), st.booleans())
def test_arrow_reads_the_rows_that_were_picked(table: pa.Table, data: st.DataObject, is_repetitive: bool) -> None:
    rows = data.draw(st.lists(st.integers(0, table.num_rows - 1), min_size=1, max_size=60))
    encoded = encode(table, "SNAPPY", tuple(table.column_names) if is_repetitive else (), rows)
    picked = table.take(pa.array(rows))
    assert decode(encoded).equals(plain(picked))
    check_spreads(encoded, picked)


def test_a_column_of_nulls_has_no_bounds() -> None:
    table = pa.table({"a": ["b", None, "aa"], "n": pa.nulls(3, pa.string()), "x": [1, 2, 3]})
    assert encode(table, repetitive=("a", "n")).spreads["n"] == Spread(pa.string(), 3, None, None)
    some = encode(table, repetitive=("a",), rows=[1])
    assert decode(some).to_pylist() == [{"a": None, "n": None, "x": 2}]
    assert some.spreads["a"] == Spread(pa.string(), 1, None, None)


def test_nan_is_above_all_numbers() -> None:
    nan = float("nan")
    table = pa.table({"a": [1.0, nan, -np.inf, np.inf], "b": pa.array([nan, -nan, nan, 0.5], pa.float32())})
    spreads = encode(table).spreads
    assert bounds(spreads["a"]) == pytest.approx([-np.inf, nan], nan_ok=True)
    assert bounds(spreads["b"]) == pytest.approx([0.5, nan], nan_ok=True)
    assert bounds(encode(table, rows=[1]).spreads["a"]) == pytest.approx([nan, nan], nan_ok=True)


def test_equal_beginnings_do_not_hide_the_bounds() -> None:
    words = ["prefix-of-many-2", "prefix-of-many-10", "prefix-of-many-1", "prefix-o", "prefix-\0", "prefix"]
    assert bounds(encode(pa.table({"a": words})).spreads["a"]) == ["prefix", "prefix-of-many-2"]


def test_columns_that_are_the_same_in_memory_are_encoded_once() -> None:
    words = pa.chunked_array([[f"{n:05}" for n in range(500)]])
    taken: list[int] = []
    table = pa.table({"a": words, "b": words})
    encoder = ParquetEncoder(table.schema, {"a": words, "b": words}, codecs={}, repetitive=())

    def memory(size: int) -> memoryview:
        taken.append(size)
        return memoryview(bytearray(size))

    encoded = encoder.encode(np.arange(500), ENTRIES, memory, {})
    assert decode(encoded).equals(table)
    assert taken[0] < 2 * 500 * 9
    file = pa.BufferReader(b"".join(encoded.parts))
    assert file.size() < 2 * 500 * 9
    chunks = [pq.ParquetFile(file).metadata.row_group(0).column(number) for number in range(2)]
    assert chunks[0].data_page_offset == chunks[1].data_page_offset
    for options in ({"pre_buffer": True}, {"pre_buffer": False}, {"buffer_size": 4096}):
        assert pq.ParquetFile(file, **options).read().equals(table)
        assert pq.ParquetFile(file, **options).read(columns=["b"]).equals(table.select(["b"]))


@pytest.mark.parametrize("count", [1, 2, 3, 127, 1000])
def test_dictionaries_of_any_width(count: int) -> None:
    table = pa.table({"a": pa.array([f"word {n % count}" for n in range(5000)])})
    encoded = encode(table, "SNAPPY", ("a",))
    assert decode(encoded).equals(table)
    chunk = pq.ParquetFile(pa.BufferReader(b"".join(encoded.parts))).metadata.row_group(0).column(0)
    assert "RLE_DICTIONARY" in chunk.encodings
    check_spreads(encoded, table)


def test_a_dictionary_that_is_larger_than_what_refers_to_it_is_compressed() -> None:
    words = [f"a long word that repeats itself {n:04}" for n in range(200)]
    table = pa.table({"a": pa.array(words * 50)})
    encoded = encode(table, "ZSTD", ("a",), rows=[3] * 1000)
    assert decode(encoded)["a"].to_pylist() == [words[3]] * 1000
    assert sum(map(len, encoded.parts)) < sum(map(len, words)) // 4


def test_columns_that_come_with_a_dictionary() -> None:
    one = pa.DictionaryArray.from_arrays(np.zeros(300, np.int8), pa.array(["only"]))
    some = pa.array(["x", None, "y"] * 100).dictionary_encode()
    numbers = pa.array([7, 8, 9] * 100)
    table = pa.table({"one": one, "some": some, "numbers": numbers})
    encoded = encode(table, "ZSTD", ("numbers",))
    assert decode(encoded).equals(plain(table))
    check_spreads(encoded, table)


def test_large_columns_have_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_encode, "_PAGE_BYTES", 1000)
    rows = 2000
    table = pa.table(
        {
            "text": [f"{n * 7919 % 1000:03}" if n % 5 else None for n in range(rows)],
            "long": np.arange(rows),
            "flag": [n % 3 == 0 if n % 7 else None for n in range(rows)],
        }
    )
    encoded = encode(table, "SNAPPY")
    assert decode(encoded).equals(table)
    check_spreads(encoded, table)
    rows = [*range(rows - 1, 0, -3)]
    picked = table.take(pa.array(rows))
    encoded = encode(table, "ZSTD", rows=rows)
    assert decode(encoded).equals(picked)
    check_spreads(encoded, picked)


def test_the_footer_has_the_entries_and_no_arrow_schema() -> None:
    file = pq.ParquetFile(pa.BufferReader(b"".join(encode(pa.table({"a": ["x"]})).parts)))
    assert file.metadata.metadata == ENTRIES
    assert file.metadata.num_row_groups == 1
    assert file.metadata.created_by == "lakebed version 1"


def test_sizes_are_those_of_the_chunks() -> None:
    encoded = encode(pa.table({"a": [f"same text {n % 9}" for n in range(3000)], "b": np.arange(3000)}), "ZSTD", ("a",))
    row_group = pq.ParquetFile(pa.BufferReader(b"".join(encoded.parts))).metadata.row_group(0)
    chunks = [row_group.column(number) for number in range(2)]
    stored = sum(map(len, encoded.parts[1:-1]))
    assert sum(chunk.total_compressed_size for chunk in chunks) == stored
    assert chunks[0].dictionary_page_offset == 4
    assert chunks[1].data_page_offset == 4 + chunks[0].total_compressed_size
    assert all(chunk.total_uncompressed_size > chunk.total_compressed_size for chunk in chunks)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": pa.array([[1]], pa.list_(pa.int64()))}),
        pa.table({"a": pa.array([1], pa.int8())}),
        pa.table({"a": pa.array([1], pa.uint32())}),
        pa.table({"a": pa.array([1], pa.timestamp("ns"))}),
        pa.table({"a": pa.array([1], pa.decimal256(50, 2))}),
        pa.table([pa.array([None, "x"])], schema=pa.schema([pa.field("a", pa.string(), nullable=False)])),
    ],
)
def test_what_is_left_to_arrow(table: pa.Table) -> None:
    assert not can_encode(table.schema, {"a": table["a"]}, {})


def test_codecs_that_are_left_to_arrow() -> None:
    table, numbered = pa.table({"a": ["x"]}), Numbered("n", 0)
    assert not can_encode(table.schema, {"a": table["a"]}, {"a": "LZ4"})
    assert can_encode(table.schema, {"a": numbered}, {"a": "SNAPPY"})
    required = pa.schema([pa.field("a", pa.string(), nullable=False)])
    assert not can_encode(required, {"a": numbered}, {})
    assert not can_encode(required, {"a": "constant"}, {})


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.text(max_size=40), st.integers(0, 12_000), st.integers(1, 2_500))
def test_numbered_texts(codec: str, prefix: str, first: int, count: int) -> None:
    table = pa.table({"a": np.arange(count)})
    found = decode(encode(table, codec, numbered=Numbered(prefix, first)))
    assert found["numbered"].to_pylist() == [f"{prefix}{number}" for number in range(first, first + count)]


@pytest.mark.parametrize("first", [0, 95, 99_500, 10**12 - 3])
@pytest.mark.parametrize("prefix", ["", "20261116060035665_12345_", "x" * 150])
def test_numbers_across_a_digit_more(prefix: str, first: int) -> None:
    found = decode(encode(pa.table({"a": np.arange(1200)}), "SNAPPY", numbered=Numbered(prefix, first)))
    assert found["numbered"].to_pylist() == [f"{prefix}{number}" for number in range(first, first + 1200)]


def test_columns_that_are_alike() -> None:
    encoded = encode(
        pa.table({"a": [1, 2, 3]}), "SNAPPY", rows=[2, 0], numbered=Numbered("p", 7), word="wörd", empty=""
    )
    alike = {"word": "wörd", "empty": ""}
    assert decode(encoded).to_pylist() == [{"a": 3, "numbered": "p7", **alike}, {"a": 1, "numbered": "p8", **alike}]
    assert bounds(encoded.spreads["word"]) == ["wörd", "wörd"]
    assert "numbered" not in encoded.spreads


@pytest.mark.parametrize("rows", [[3], [-1], [0, 1, 7]])
def test_rows_that_are_not_there(rows: list[int]) -> None:
    with pytest.raises(AssertionError, match="compiled code"):
        encode(pa.table({"a": [1, 2, 3]}), rows=rows)
