from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed.format
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.metadata.column_stats import widen_column_stats
from lakebed.format.metadata.datum import (
    RecordKind,
    encode_boolean,
    encode_bytes,
    encode_datum,
    encode_optional_long,
    encode_optional_text,
)
from lakebed.format.metadata.records import (
    decode_metadata_record,
    encode_column_stats_record,
    merge_column_stats,
    value_type_of,
)
from lakebed.format.varint import encode_long
from lakebed.model.metadata import ColumnStats, StatValue, ValueType
from metadata_rows import stored_files

PATH = "col-stats-0000-0_0-1-2_00000000000000000.hfile"
AS_STORED = (Path(lakebed.format.__file__).parent / "schemas" / "HoodieMetadataRecord.as-stored.avsc").read_text()
UTC = timezone.utc


def _stats(low: StatValue | None, high: StatValue | None, kind: ValueType, info: str | None = None) -> ColumnStats:
    return ColumnStats("f", "c", low, high, 10, 2, 100, 200, value_type=kind, additional_info=info)


def _decode(value: bytes) -> ColumnStats:
    stats = decode_metadata_record(value, AS_STORED, path=PATH).payload
    assert isinstance(stats, ColumnStats)
    return stats


VALUES = [
    _stats(None, None, ValueType.NULL),
    _stats(None, None, ValueType.LONG),
    _stats(False, True, ValueType.BOOLEAN),
    _stats(-(2**31), 2**31 - 1, ValueType.INT),
    _stats(-(2**63), 2**63 - 1, ValueType.LONG),
    _stats(-1.5, 1.5, ValueType.FLOAT),
    _stats(0.1, math.inf, ValueType.DOUBLE),
    _stats("", "ü😀", ValueType.STRING),
    _stats(b"\x01\x02", b"\xff", ValueType.BYTES),
    _stats(b"\x00" * 4, b"\xff" * 4, ValueType.FIXED),
    _stats(Decimal("-0.01"), Decimal("12.34"), ValueType.DECIMAL, "10,2"),
    _stats(Decimal("1.28"), Decimal("-1.29"), ValueType.DECIMAL, "3,2"),
    _stats(Decimal("-" + "9" * 76), Decimal("9" * 76), ValueType.DECIMAL, "76,0"),
    _stats("9e1ff7e7-7578-4c65-9921-704ef5274d85", None, ValueType.UUID),
    _stats(date(1, 1, 1), date(9999, 12, 31), ValueType.DATE),
    _stats(-(2**31), 2**31 - 1, ValueType.DATE),
    _stats(time(0), time(23, 59, 59, 999000), ValueType.TIME_MILLIS),
    _stats(time(0), time(23, 59, 59, 999999), ValueType.TIME_MICROS),
    _stats(86_400_000_000, None, ValueType.TIME_MICROS),
    _stats(
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), datetime(2024, 1, 2, tzinfo=UTC), ValueType.TIMESTAMP_MILLIS
    ),
    _stats(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), ValueType.TIMESTAMP_MICROS),
    _stats(-(2**63), 2**63 - 1, ValueType.TIMESTAMP_MICROS),
    _stats(-5, 1704164645678000123, ValueType.TIMESTAMP_NANOS),
    _stats(datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2024, 1, 2), ValueType.LOCAL_TIMESTAMP_MILLIS),
    _stats(datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 2), ValueType.LOCAL_TIMESTAMP_MICROS),
    _stats(-5, 1704164645678000123, ValueType.LOCAL_TIMESTAMP_NANOS),
    replace(_stats(1, 2, ValueType.INT), is_deleted=True, is_tight_bound=True, total_size=None, value_count=None),
]


@pytest.mark.parametrize("stats", VALUES, ids=lambda stats: stats.value_type.name)
def test_round_trip(stats: ColumnStats) -> None:
    assert _decode(encode_column_stats_record(stats, version="V2")) == stats


def test_kinds() -> None:
    stats = _stats(1, 2, ValueType.INT)
    for partition_stats, kind in ((False, RecordKind.COLUMN_STATS), (True, RecordKind.PARTITION_STATS)):
        value = encode_column_stats_record(stats, version="V2", partition_stats=partition_stats)
        assert decode_metadata_record(value, AS_STORED, path=PATH).kind is kind


@pytest.mark.parametrize(
    ("stats", "read"),
    [
        (_stats(1, 2, ValueType.INT), _stats(1, 2, ValueType.INT)),
        (_stats("a", "b", ValueType.STRING), _stats("a", "b", ValueType.STRING)),
        (_stats(date(1969, 12, 31), None, ValueType.DATE), _stats(date(1969, 12, 31), None, ValueType.DATE)),
        (
            _stats(Decimal("-0.01"), Decimal("12.34"), ValueType.DECIMAL, "10,2"),
            _stats(Decimal("-0.010000000000000"), Decimal("12.340000000000000"), ValueType.DECIMAL),
        ),
        (
            _stats(datetime(2024, 1, 2, tzinfo=UTC), None, ValueType.TIMESTAMP_MILLIS),
            _stats(datetime(2024, 1, 2, tzinfo=UTC), None, ValueType.TIMESTAMP_MICROS),
        ),
        (_stats(time(1), None, ValueType.TIME_MILLIS), _stats(time(1), None, ValueType.TIME_MICROS)),
        (_stats(None, None, ValueType.INT), _stats(None, None, ValueType.NULL)),
    ],
)
def test_version_1_names_no_type(stats: ColumnStats, read: ColumnStats) -> None:
    assert _decode(encode_column_stats_record(stats, version="V1")) == read


def test_bytes_of_real_bounds() -> None:
    bounds = {
        stats.column: (stats.min_value, stats.max_value, stats.value_type, stats.additional_info)
        for file in stored_files("column_stats")
        if file.table == "hudi111_cow_nonpart_alltypes"
        for _, value in file.records
        for stats in [decode_metadata_record(value, file.schema, path=str(file)).payload]
        if isinstance(stats, ColumnStats)
    }
    moment = datetime(2024, 1, 2, 3, 4, 5, 678000)
    before = datetime(1969, 12, 31, 23, 59, 59, 999000)
    assert bounds["dec"] == (Decimal("-0.01"), Decimal("12.34"), ValueType.DECIMAL, "10,2")
    assert bounds["bin"] == (b"\x01\x02", b"\xff", ValueType.BYTES, None)
    assert bounds["dt"] == (date(1969, 12, 31), date(2024, 1, 2), ValueType.DATE, None)
    assert bounds["tsm"] == (before.replace(tzinfo=UTC), moment.replace(tzinfo=UTC), ValueType.TIMESTAMP_MICROS, None)
    assert bounds["ntz"] == (before, moment, ValueType.LOCAL_TIMESTAMP_MICROS, None)
    assert bounds["f"] == (-1.5, 1.5, ValueType.FLOAT, None)


def test_a_decimal_bound_that_its_type_cannot_hold() -> None:
    with pytest.raises(InvalidInputError, match="decimal places"):
        encode_column_stats_record(_stats(Decimal("1.234"), None, ValueType.DECIMAL, "10,2"), version="V2")


def _raw(branch: int, stored: bytes, ordinal: int, info: str | None = None) -> bytes:
    """A record with a bound in some wrapper, under some type."""
    return encode_datum(
        RecordKind.COLUMN_STATS,
        encode_optional_text("f")
        + encode_optional_text("c")
        + (encode_long(branch) + stored) * 2
        + encode_optional_long(1) * 4
        + encode_boolean(False) * 2
        + encode_optional_long(ordinal)
        + encode_optional_text(info),
    )


@pytest.mark.parametrize(
    "value",
    [
        _raw(2, encode_long(1), 99),
        _raw(2, encode_long(1), -1),
        _raw(2, encode_long(1), ValueType.STRING),
        _raw(2, encode_long(1), ValueType.DECIMAL, "10,2"),
        _raw(2, encode_long(1), ValueType.NULL),
        _raw(6, encode_bytes(b"x"), ValueType.DATE),
        _raw(6, encode_bytes(b"x"), ValueType.DECIMAL, "2,10"),
        _raw(6, encode_bytes(b"x"), ValueType.DECIMAL, "10"),
        _raw(6, encode_bytes(b"x"), ValueType.DECIMAL, "10,-2"),
        _raw(6, encode_bytes(b"x"), ValueType.DECIMAL, "9" * 5000 + ",2"),
        _raw(6, encode_bytes(b"x" * 33), ValueType.DECIMAL, "76,2"),
    ],
)
def test_bounds_that_do_not_fit_their_type(value: bytes) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_metadata_record(value, AS_STORED, path=PATH)


def test_arrays_have_no_bounds() -> None:
    value = _raw(13, encode_long(0), ValueType.V1)
    assert _decode(value).min_value is None


OLDER = replace(_stats(1, 5, ValueType.INT), is_tight_bound=True)


@pytest.mark.parametrize(
    ("older", "newer", "merged"),
    [
        (OLDER, replace(_stats(3, 4, ValueType.INT), is_tight_bound=True), (3, 4, ValueType.INT)),
        (OLDER, _stats(0, 3, ValueType.INT), (0, 5, ValueType.INT)),
        (OLDER, _stats(None, None, ValueType.NULL), (1, 5, ValueType.INT)),
        (_stats(None, None, ValueType.NULL), _stats(1, 5, ValueType.INT), (1, 5, ValueType.INT)),
        (OLDER, _stats(0, 2**40, ValueType.LONG), (0, 2**40, ValueType.LONG)),
        (replace(OLDER, is_deleted=True), _stats(3, 4, ValueType.INT), (3, 4, ValueType.INT)),
        (OLDER, replace(_stats(3, 4, ValueType.INT), is_deleted=True), (3, 4, ValueType.INT)),
        (
            _stats("😀", "😀", ValueType.STRING),
            _stats("\ufffd", "\ufffd", ValueType.STRING),
            ("\ufffd", "😀", ValueType.STRING),
        ),
        (
            _stats(1.0, 2.0, ValueType.DOUBLE),
            _stats(0.5, math.inf, ValueType.DOUBLE),
            (0.5, math.inf, ValueType.DOUBLE),
        ),
    ],
)
def test_merge(older: ColumnStats, newer: ColumnStats, merged: tuple[StatValue, StatValue, ValueType]) -> None:
    result = merge_column_stats(older, newer)
    assert (result.min_value, result.max_value, result.value_type) == merged
    assert result.is_tight_bound == newer.is_tight_bound
    assert result.is_deleted == newer.is_deleted


def test_merge_adds_up_what_is_counted() -> None:
    result = merge_column_stats(OLDER, _stats(0, 3, ValueType.INT))
    assert (result.value_count, result.null_count) == (20, 4)
    assert (result.total_size, result.total_uncompressed_size) == (200, 400)
    assert merge_column_stats(OLDER, replace(_stats(0, 3, ValueType.INT), null_count=None)).null_count is None


@pytest.mark.parametrize("swap", [False, True])
def test_merge_takes_nan_for_the_greatest(swap: bool) -> None:
    pair = [_stats(math.nan, math.nan, ValueType.DOUBLE), _stats(1.0, 2.0, ValueType.DOUBLE)]
    result = merge_column_stats(*(reversed(pair) if swap else pair))
    assert result.min_value == 1.0
    assert isinstance(result.max_value, float)
    assert math.isnan(result.max_value)


def test_widening_does_not_ask_what_stands_alone() -> None:
    tight = replace(_stats(0, 3, ValueType.INT), is_tight_bound=True, is_deleted=True)
    loose = replace(tight, is_tight_bound=False, is_deleted=False)
    result = widen_column_stats(OLDER, tight, file_name="eu", is_tight_bound=True)
    assert result == replace(merge_column_stats(OLDER, loose), file_name="eu", is_tight_bound=True)


def test_merge_of_different_types_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="different types"):
        merge_column_stats(OLDER, _stats("a", "b", ValueType.STRING))


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)).map(sorted), min_size=1))
def test_merged_bounds_hold_all(ranges: list[list[int]]) -> None:
    merged = _stats(*ranges[0], ValueType.INT)
    for low, high in ranges[1:]:
        merged = merge_column_stats(merged, _stats(low, high, ValueType.INT))
    assert (merged.min_value, merged.max_value) == (min(low for low, _ in ranges), max(high for _, high in ranges))


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.bool_(), ValueType.BOOLEAN),
        (pa.int8(), ValueType.INT),
        (pa.int64(), ValueType.LONG),
        (pa.float32(), ValueType.FLOAT),
        (pa.float64(), ValueType.DOUBLE),
        (pa.string(), ValueType.STRING),
        (pa.dictionary(pa.int32(), pa.string()), ValueType.STRING),
        (pa.binary(), ValueType.BYTES),
        (pa.binary(4), ValueType.FIXED),
        (pa.date32(), ValueType.DATE),
        (pa.time32("ms"), ValueType.TIME_MILLIS),
        (pa.time64("us"), ValueType.TIME_MICROS),
        (pa.timestamp("ms", "UTC"), ValueType.TIMESTAMP_MILLIS),
        (pa.timestamp("us", "Asia/Tokyo"), ValueType.TIMESTAMP_MICROS),
        (pa.timestamp("us"), ValueType.LOCAL_TIMESTAMP_MICROS),
        (pa.timestamp("ns"), ValueType.LOCAL_TIMESTAMP_NANOS),
    ],
)
def test_types_of_columns(kind: pa.DataType, named: ValueType) -> None:
    assert value_type_of(kind) == (named, None)


def test_types_with_more_or_less() -> None:
    assert value_type_of(pa.decimal128(10, 2)) == (ValueType.DECIMAL, "10,2")
    assert value_type_of(pa.list_(pa.int32())) is None
    assert value_type_of(pa.struct([])) is None
