from __future__ import annotations

import math
from datetime import date, datetime, time, timezone
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.records import decode_column_stats, encode_column_stats_record
from lakebed.index.column_stats.compute import column_stats
from lakebed.index.column_stats.ranges import read_column_stats
from lakebed.model.metadata import ValueType
from lakebed.table import open_handle

UTC = timezone.utc


@pytest.mark.parametrize(
    ("values", "kind", "low", "high", "value_type"),
    [
        ([3, None, -1], pa.int32(), -1, 3, ValueType.INT),
        ([2**62, -(2**62)], pa.int64(), -(2**62), 2**62, ValueType.LONG),
        ([True, False], pa.bool_(), False, True, ValueType.BOOLEAN),
        ([1.5, -2.5], pa.float32(), -2.5, 1.5, ValueType.FLOAT),
        ([1.5, None], pa.float64(), 1.5, 1.5, ValueType.DOUBLE),
        (["b", "", "a"], pa.string(), "", "b", ValueType.STRING),
        ([b"\xff", b"\x01\x02"], pa.binary(), b"\x01\x02", b"\xff", ValueType.BYTES),
        ([b"ab", b"aa"], pa.binary(2), b"aa", b"ab", ValueType.FIXED),
        ([Decimal("12.34"), Decimal("-0.01")], pa.decimal128(10, 2), Decimal("-0.01"), Decimal("12.34"), "10,2"),
        ([date(1969, 12, 31), date(2024, 1, 2)], pa.date32(), date(1969, 12, 31), date(2024, 1, 2), ValueType.DATE),
        ([time(1, 2), time(3, 4)], pa.time64("us"), time(1, 2), time(3, 4), ValueType.TIME_MICROS),
        (
            [datetime(2024, 1, 2, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)],
            pa.timestamp("us", "UTC"),
            datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
            datetime(2024, 1, 2, tzinfo=UTC),
            ValueType.TIMESTAMP_MICROS,
        ),
        (
            [datetime(2024, 1, 2)],
            pa.timestamp("us"),
            datetime(2024, 1, 2),
            datetime(2024, 1, 2),
            ValueType.LOCAL_TIMESTAMP_MICROS,
        ),
        ([None, None], pa.int64(), None, None, ValueType.LONG),
        ([], pa.string(), None, None, ValueType.STRING),
    ],
)
def test_bounds_are_of_the_columns_natural_type(values, kind, low, high, value_type):
    (stats,) = column_stats(pa.table({"a": pa.array(values, kind)}), "f", ["a"])
    assert (stats.min_value, stats.max_value) == (low, high)
    assert type(stats.min_value) is type(low)
    assert value_type in (stats.value_type, stats.additional_info)
    assert (stats.value_count, stats.null_count) == (len(values), values.count(None))
    assert (stats.file_name, stats.column, stats.total_size, stats.is_tight_bound) == ("f", "a", 0, False)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [([1.0, math.nan, -2.0], -2.0, math.nan), ([math.nan, None], math.nan, math.nan), ([math.inf, 0.0], 0.0, math.inf)],
)
def test_nan_is_above_every_number(values, low, high):
    (stats,) = column_stats(pa.table({"a": pa.array(values, pa.float64())}), "f", ["a"])
    assert repr((stats.min_value, stats.max_value)) == repr((low, high))


def test_dates_and_timestamps_beyond_python_stay_numbers():
    dates = pa.array([10**8, 0], pa.int32()).cast(pa.date32())
    moments = pa.array([2**62, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    day, moment = column_stats(pa.table({"d": dates, "t": moments}), "f", ["d", "t"])
    assert (day.max_value, day.min_value) == (10**8, date(1970, 1, 1))
    assert (moment.max_value, moment.min_value) == (2**62, datetime(1970, 1, 1, tzinfo=UTC))


def test_unused_dictionary_values_are_no_bounds():
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 2]), pa.array(["a", "m", "k", "z"]))
    (stats,) = column_stats(pa.table({"a": column}), "f", ["a"])
    assert (stats.min_value, stats.max_value, stats.null_count) == ("k", "m", 1)


@pytest.mark.parametrize("with_footer", [True, False])
def test_nested_and_unknown_columns_are_left_out(with_footer):
    table = pa.table({"s": pa.array([{"x": 1}]), "l": pa.array([[1]]), "a": pa.array([1])})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue())) if with_footer else None
    assert [stats.column for stats in column_stats(table, "f", ["s", "l", "a", "s.x", "other"], footer)] == ["a"]


def test_a_base_file_without_row_groups_has_statistics_of_no_values():
    table = pa.table({"a": pa.array([], pa.int64())})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema):
        pass
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    assert footer.num_row_groups == 0
    (stats,) = column_stats(table, "f", ["a"], footer)
    assert (stats.min_value, stats.max_value, stats.value_count, stats.null_count) == (None, None, 0, 0)


TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=8)
NUMBERS = st.lists(st.one_of(st.none(), st.floats()), max_size=8)


@given(TEXTS, NUMBERS, st.integers(1, 5), st.booleans())
def test_the_footer_changes_nothing_but_sizes(texts, numbers, group_rows, as_dictionary):
    count = min(len(texts), len(numbers))
    text = pa.array(texts[:count], pa.string())
    text = text.dictionary_encode() if as_dictionary else text
    table = pa.table({"text": text, "number": pa.array(numbers[:count], pa.float64())})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group_rows)
    footer = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    plain = column_stats(table, "f", ["text", "number"])
    sized = column_stats(table, "f", ["text", "number"], footer)
    for ours, theirs, leaf in zip(plain, sized, (0, 1), strict=True):
        assert repr((ours.min_value, ours.max_value)) == repr((theirs.min_value, theirs.max_value))
        assert (ours.value_count, ours.null_count) == (theirs.value_count, theirs.null_count)
        chunks = [footer.row_group(group).column(leaf) for group in range(footer.num_row_groups)]
        assert theirs.total_size == sum(chunk.total_compressed_size for chunk in chunks)
        assert theirs.total_uncompressed_size == sum(chunk.total_uncompressed_size for chunk in chunks)
    known = sorted((value for value in texts[:count] if value is not None), key=lambda value: value.encode())
    assert (plain[0].min_value, plain[0].max_value) == ((known[0], known[-1]) if known else (None, None))


@pytest.mark.parametrize(
    "name", ["hudi111_cow_nonpart_alltypes", "hudi111_cow_nonpart_schema_evolution", "hudi120_mor_part_compacted"]
)
def test_base_files_of_hudi_get_the_statistics_that_hudi_gave_them(unpack, name):
    state = open_handle(str(unpack(name).path)).state()
    stored = {
        (row["file_name"], row["column"]): row for row in _rows(read_column_stats(state.metadata, "column_stats"))
    }
    ours = [
        stats
        for file_slice in state.latest_slices
        for stats in _computed(state.storage, file_slice.path(file_slice.base.name), stored)
    ]
    values = pa.array([encode_column_stats_record(stats, version="V2") for stats in ours], pa.binary())
    keys = pa.array([f"{number}" for number in range(len(ours))])
    computed = _rows(decode_column_stats(keys, values, stored_schema(), path="ours"))
    assert computed
    assert computed == [stored[row["file_name"], row["column"]] for row in computed]


def _computed(storage, path, wanted):
    name = path.rpartition("/")[2]
    with storage.arrow_file(path) as file:
        parquet = pq.ParquetFile(file)
        columns = [column for file_name, column in wanted if file_name == name]
        return column_stats(parquet.read(), name, columns, parquet.metadata)


def _rows(table):
    return table.drop_columns(["key"]).to_pylist()


@given(st.lists(st.lists(st.text("ab\x00é\U0001f600", max_size=12), max_size=6), max_size=3))
def test_bounds_of_text_are_those_of_its_bytes(chunks: list[list[str]]) -> None:
    texts = [text for chunk in chunks for text in chunk]
    column = pa.chunked_array([pa.array(["x", *chunk], pa.string())[1:] for chunk in chunks], pa.string())
    (stats,) = column_stats(pa.table({"a": column}), "f", ["a"])
    expected = (min(texts, key=str.encode), max(texts, key=str.encode)) if texts else (None, None)
    assert (stats.min_value, stats.max_value) == expected
