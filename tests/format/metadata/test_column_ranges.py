from __future__ import annotations

import json
import math
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed.format
from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.metadata.column_ranges import COLUMN_STATS_SCHEMA
from lakebed.format.metadata.datum import RecordKind, encode_datum, encode_optional_long, encode_optional_text
from lakebed.format.metadata.records import (
    column_stats_values,
    decode_column_stats,
    decode_metadata_record,
    encode_column_stats_record,
    encode_secondary_record,
)
from lakebed.format.varint import encode_long
from lakebed.model.metadata import ColumnStats, StatValue, ValueType
from metadata_rows import by_schema, stored_files

PATH = "col-stats-0000-0_0-1-2_00000000000000000.hfile"
AS_STORED = (Path(lakebed.format.__file__).parent / "schemas" / "HoodieMetadataRecord.as-stored.avsc").read_text()
UTC = timezone.utc


def _table(*stats: ColumnStats, version: str = "V2") -> pa.Table:
    values = [encode_column_stats_record(each, version=version) for each in stats]
    keys = pa.array([f"k{index}" for index in range(len(stats))])
    return decode_column_stats(keys, pa.array(values, pa.binary()), AS_STORED, path=PATH)


def _stats(low: StatValue | None, high: StatValue | None, kind: ValueType, info: str | None = None) -> ColumnStats:
    return ColumnStats("f", "c", low, high, 10, 2, value_type=kind, additional_info=info)


def _ranges(table: pa.Table, kind: pa.DataType) -> list[tuple[object, object]]:
    found = column_stats_values(table, "c", kind)
    assert found.schema.field("min").type == found.schema.field("max").type == kind
    return list(zip(found["min"].to_pylist(), found["max"].to_pylist(), strict=True))


BEFORE, MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999000), datetime(2024, 1, 2, 3, 4, 5, 678000)
RANGES = [
    (ValueType.BOOLEAN, None, pa.bool_(), False, True),
    (ValueType.INT, None, pa.int32(), -5, 5),
    (ValueType.INT, None, pa.int8(), -5, 5),
    (ValueType.LONG, None, pa.int64(), -(2**63), 2**63 - 1),
    (ValueType.FLOAT, None, pa.float32(), -1.5, 1.5),
    (ValueType.DOUBLE, None, pa.float64(), -0.1, math.inf),
    (ValueType.STRING, None, pa.string(), "", "zé中"),
    (ValueType.STRING, None, pa.large_string(), "a", "b"),
    (ValueType.DATE, None, pa.date32(), date(1969, 12, 31), date(2024, 1, 2)),
    (ValueType.TIME_MILLIS, None, pa.time32("ms"), time(0), time(1, 2, 3)),
    (ValueType.TIME_MICROS, None, pa.time64("us"), time(0), time(1, 2, 3, 4)),
    (
        ValueType.TIMESTAMP_MILLIS,
        None,
        pa.timestamp("ms", "UTC"),
        BEFORE.replace(tzinfo=UTC),
        MOMENT.replace(tzinfo=UTC),
    ),
    (
        ValueType.TIMESTAMP_MICROS,
        None,
        pa.timestamp("us", "UTC"),
        BEFORE.replace(tzinfo=UTC),
        MOMENT.replace(tzinfo=UTC),
    ),
    (ValueType.LOCAL_TIMESTAMP_MILLIS, None, pa.timestamp("ms"), BEFORE, MOMENT),
    (ValueType.LOCAL_TIMESTAMP_MICROS, None, pa.timestamp("us"), BEFORE, MOMENT),
    (ValueType.DECIMAL, "10,2", pa.decimal128(10, 2), Decimal("-0.01"), Decimal("12.34")),
    (
        ValueType.DECIMAL,
        "38,10",
        pa.decimal128(38, 10),
        Decimal("-" + "9" * 28 + "." + "9" * 10),
        Decimal("1.0000000000"),
    ),
    (ValueType.DECIMAL, "76,0", pa.decimal256(76, 0), Decimal("-" + "9" * 76), Decimal("9" * 76)),
]


@pytest.mark.parametrize(("named", "info", "kind", "low", "high"), RANGES)
def test_ranges_in_the_type_of_the_column(
    named: ValueType, info: str | None, kind: pa.DataType, low: StatValue, high: StatValue
) -> None:
    table = _table(_stats(low, high, named, info), _stats(None, None, ValueType.NULL), _stats(high, low, named, info))
    assert _ranges(table, kind) == [(low, high), (None, None), (high, low)]


@pytest.mark.parametrize(
    ("named", "info", "kind", "low", "high"),
    [row for row in RANGES if row[0].name.partition("_")[0] != "LOCAL" and row[1] in (None, "10,2")],
)
def test_ranges_of_version_1(
    named: ValueType, info: str | None, kind: pa.DataType, low: StatValue, high: StatValue
) -> None:
    assert _ranges(_table(_stats(low, high, named, info), version="V1"), kind) == [(low, high)]


@pytest.mark.parametrize(
    ("stats", "kind", "found"),
    [
        (_stats(1, 2, ValueType.INT), pa.int64(), (1, 2)),
        (_stats(1, 2, ValueType.INT), pa.float64(), (1.0, 2.0)),
        (_stats(1, 2**40, ValueType.LONG), pa.float32(), (1.0, 2.0**40)),
        (_stats(1, 2, ValueType.INT), pa.decimal128(10, 2), (Decimal("1.00"), Decimal("2.00"))),
        (
            _stats(Decimal("1.5"), Decimal("2.5"), ValueType.DECIMAL, "3,1"),
            pa.decimal128(10, 4),
            (Decimal("1.5000"), Decimal("2.5000")),
        ),
        (_stats(0.5, 1.5, ValueType.FLOAT), pa.float64(), (None, None)),
        (_stats(1, 2**40, ValueType.LONG), pa.int32(), (1, None)),
        (_stats(1, 2, ValueType.INT), pa.string(), (None, None)),
        (_stats("1", "2", ValueType.STRING), pa.int32(), (None, None)),
        (_stats(date(2024, 1, 1), None, ValueType.DATE), pa.int32(), (None, None)),
        (_stats(1, 2, ValueType.INT), pa.date32(), (None, None)),
        (_stats(1, 2, ValueType.LONG), pa.timestamp("us", "UTC"), (None, None)),
        (_stats(MOMENT, MOMENT, ValueType.LOCAL_TIMESTAMP_MICROS), pa.timestamp("us", "UTC"), (None, None)),
        (_stats(b"a", b"b", ValueType.BYTES), pa.binary(), (None, None)),
        (_stats(b"a", b"b", ValueType.BYTES), pa.string(), (None, None)),
        (_stats("a", "b", ValueType.UUID), pa.string(), (None, None)),
        (_stats(1.0, math.nan, ValueType.DOUBLE), pa.float64(), (1.0, None)),
        (_stats(1, 2, ValueType.INT), pa.list_(pa.int32()), (None, None)),
    ],
)
def test_columns_whose_type_changed(stats: ColumnStats, kind: pa.DataType, found: tuple[object, object]) -> None:
    assert _ranges(_table(stats), kind) == [found]


def test_ranges_of_dictionary_columns_are_of_their_values() -> None:
    found = column_stats_values(_table(_stats("a", "b", ValueType.STRING)), "c", pa.dictionary(pa.int32(), pa.string()))
    assert found["min"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        ("a", "\ud7ff", ("a", "\ud7ff")),
        ("😀", "\ufffd", (None, None)),
        ("\ufffd", "😀", ("\ufffd", "😀")),
        ("a", "b\ue000", ("a", None)),
        ("a😀", "b", (None, "b")),
    ],
)
def test_strings_whose_order_is_in_doubt(low: str, high: str, found: tuple[str | None, str | None]) -> None:
    assert _ranges(_table(_stats(low, high, ValueType.STRING)), pa.string()) == [found]


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_bounds_in_utf16_order_never_hide_a_string(texts: list[str]) -> None:
    in_order = sorted(texts, key=lambda text: text.encode("utf-16-be"))
    ((low, high),) = _ranges(_table(_stats(in_order[0], in_order[-1], ValueType.STRING)), pa.string())
    assert all(low is None or low <= text for text in texts)
    assert all(high is None or text <= high for text in texts)


def test_scales_of_decimals_may_differ_by_row() -> None:
    table = _table(
        _stats(Decimal("1.5"), Decimal("-2.5"), ValueType.DECIMAL, "3,1"),
        _stats(Decimal("1.25"), Decimal("-128.00"), ValueType.DECIMAL, "5,2"),
        _stats(None, Decimal("7"), ValueType.DECIMAL, "5,0"),
    )
    assert _ranges(table, pa.decimal128(10, 2)) == [
        (Decimal("1.50"), Decimal("-2.50")),
        (Decimal("1.25"), Decimal("-128.00")),
        (None, Decimal("7.00")),
    ]


def test_rows_of_the_column_that_were_not_deleted() -> None:
    other = ColumnStats("g", "d", 1, 2, 5, 0, value_type=ValueType.INT)
    gone = ColumnStats("h", "c", 1, 2, 5, 0, value_type=ValueType.INT, is_deleted=True)
    tight = ColumnStats("i", "c", 3, 4, 5, 1, value_type=ValueType.INT, is_tight_bound=True)
    found = column_stats_values(_table(other, gone, tight), "c", pa.int32())
    assert found.to_pylist() == [
        {"file_name": "i", "min": 3, "max": 4, "null_count": 1, "value_count": 5, "is_tight_bound": True}
    ]
    assert column_stats_values(_table(), "c", pa.decimal128(5, 2)).num_rows == 0


def test_columns_say_what_single_records_say() -> None:
    count = 0
    for file in by_schema("column_stats", "partition_stats", "expr_index_idx_ts"):
        table = decode_column_stats(file.keys, file.values, file.schema, path=str(file))
        assert table.schema == COLUMN_STATS_SCHEMA
        for row, (key, value) in zip(table.to_pylist(), file.records, strict=True):
            stats = decode_metadata_record(value, file.schema, path=str(file)).payload
            assert isinstance(stats, ColumnStats)
            assert (row["key"], row["file_name"], row["column"]) == (key.decode(), stats.file_name, stats.column)
            assert (row["value_count"], row["null_count"]) == (stats.value_count, stats.null_count)
            assert (row["is_deleted"], row["is_tight_bound"]) == (stats.is_deleted, stats.is_tight_bound)
            assert row["type_ordinal"] == (stats.value_type if "valueType" in file.schema else None)
            assert sum(child is not None for child in row["min"].values()) == (stats.min_value is not None)
            count += 1
    assert count > 3000


def test_ranges_of_all_types_in_a_real_table() -> None:
    tables = [
        decode_column_stats(file.keys, file.values, file.schema, path=str(file))
        for file in stored_files("column_stats")
        if file.table == "hudi111_cow_nonpart_alltypes"
    ]
    stats = pa.concat_tables(tables)
    for column, kind, low, high in (
        ("dec", pa.decimal128(10, 2), Decimal("-0.01"), Decimal("12.34")),
        ("dt", pa.date32(), date(1969, 12, 31), date(2024, 1, 2)),
        ("tsm", pa.timestamp("us", "UTC"), BEFORE.replace(tzinfo=UTC), MOMENT.replace(tzinfo=UTC)),
        ("ntz", pa.timestamp("us"), BEFORE, MOMENT),
        ("f", pa.float32(), -1.5, 1.5),
        ("bin", pa.binary(), None, None),
    ):
        found = column_stats_values(stats, column, kind)
        assert (found["min"].to_pylist(), found["max"].to_pylist()) == ([low], [high])


def test_statistics_of_several_releases_in_one_table() -> None:
    files = by_schema("column_stats")
    everything = pa.concat_tables(
        decode_column_stats(each.keys, each.values, each.schema, path=str(each)) for each in files
    )
    found = column_stats_values(everything, "ts", pa.int64())
    assert len(files) == 3
    assert found.num_rows > 100
    assert found["min"].null_count < found.num_rows / 2


def test_records_without_statistics_are_refused() -> None:
    with pytest.raises(CorruptTableError, match="ColumnStatsMetadata"):
        decode_column_stats(pa.array(["k"]), pa.array([encode_secondary_record()]), AS_STORED, path=PATH)


def test_statistics_of_another_type_are_refused() -> None:
    odd = json.dumps(json.loads(AS_STORED)).replace(
        '"nullCount", "type": ["null", "long"]', '"nullCount", "type": "boolean"'
    )
    head, tail = encode_optional_text("f") + encode_optional_text("c") + bytes(3), bytes(5)
    value = encode_datum(RecordKind.COLUMN_STATS, head + b"\x01" + tail)
    with pytest.raises(CorruptTableError, match="nullCount is of type bool"):
        decode_column_stats(pa.array(["k"]), pa.array([value]), odd, path=PATH)


def test_hostile_statistics() -> None:
    values = [
        encode_column_stats_record(_stats(low, high, named, info), version="V2") for named, info, _, low, high in RANGES
    ]
    kinds = [kind for _, _, kind, _, _ in RANGES]

    def decode(data: bytes) -> None:
        table = decode_column_stats(pa.array(["k"]), pa.array([data]), AS_STORED, path=PATH)
        for kind in kinds[index], pa.decimal128(10, 2):
            column_stats_values(table, "c", kind)

    for index, value in enumerate(values):
        check_decoder(decode, mutations(value, seed=index, count=40), path=PATH)


def test_hostile_scales() -> None:
    def value(info: str) -> bytes:
        bound = encode_long(6) + encode_long(1) + b"\x05"
        head = encode_optional_text("f") + encode_optional_text("c")
        tail = (
            encode_optional_long(1) * 4
            + bytes(2)
            + encode_optional_long(ValueType.DECIMAL)
            + encode_optional_text(info)
        )
        return encode_datum(RecordKind.COLUMN_STATS, head + bound * 2 + tail)

    infos = ["", ",", "10,x", "10,-2", "10,999", "1,0", "10,²", "9,2", *(f"{index},1" for index in range(2000))]
    keys, values = pa.array([str(index) for index in range(len(infos))]), pa.array([value(info) for info in infos])
    found = _ranges(decode_column_stats(keys, values, AS_STORED, path=PATH), pa.decimal128(10, 2))
    assert found[:8] == [(None, None)] * 5 + [(Decimal("5.00"),) * 2, (None, None), (Decimal("0.05"),) * 2]
