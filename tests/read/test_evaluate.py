from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings

from lakebed.errors import InvalidInputError
from lakebed.filter.evaluate import to_arrow, to_spark_sql
from lakebed.filter.predicate import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    IsIn,
    Like,
    Not,
    Or,
    Predicate,
    parse_where,
)
from read.naive import SCHEMA, Row, predicates, rows, truth
from read.samples import SAMPLE_PREDICATES, SAMPLE_ROWS, SAMPLE_SCHEMA, SAMPLE_TABLE


def passing(predicate: Predicate, found: list[Row], schema: pa.Schema) -> list[int]:
    """Indexes of the rows that Arrow passes."""
    table = pa.Table.from_pylist(found, schema=schema).append_column("#", pa.array(range(len(found)), pa.int64()))
    return table.filter(to_arrow(predicate, schema))["#"].to_pylist()


def passing_naively(predicate: Predicate, found: list[Row]) -> list[int]:
    return [index for index, row in enumerate(found) if truth(predicate, row) is True]


@settings(max_examples=250, deadline=None)
@given(predicates(), rows())
def test_arrow_passes_the_rows_for_which_the_predicate_is_true(predicate: Predicate, found: list[Row]) -> None:
    assert passing(predicate, found, SCHEMA) == passing_naively(predicate, found)


@settings(max_examples=120, deadline=None)
@given(predicates(), rows())
def test_spark_text_says_the_same_predicate(predicate: Predicate, found: list[Row]) -> None:
    again = parse_where(to_spark_sql(predicate), SCHEMA)
    assert [truth(again, row) for row in found] == [truth(predicate, row) for row in found]


@pytest.mark.parametrize("text", SAMPLE_PREDICATES)
def test_samples(text: str) -> None:
    predicate = parse_where(text, SAMPLE_SCHEMA)
    assert passing(predicate, SAMPLE_ROWS, SAMPLE_SCHEMA) == passing_naively(predicate, SAMPLE_ROWS)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("id > 1.5", [2, 3, 4, 5, 2147483647]),
        ("id not in (1, null)", []),
        ("score > 1.5", [3, 4, 2147483647]),
        ("score = 0", [5, None]),
        ("ratio = 0.1", []),
        ("ratio > 0.1 and ratio < 0.3", [2, 5]),
        ("not active", [2, 5]),
        ("active is not true", [2, 3, 5, -6, 2147483647]),
        ("address.zip is null", [2, 4]),
        ("day > TIMESTAMP '2024-01-01 12:00:00'", [4, -6, 2147483647]),
        ("at < TIMESTAMP '2024-01-01 02:00:00+02:00'", [2, 3, -6, None]),
        ("from_unixtime(amount, 'yyyy-MM-dd') = '2024-01-01'", [3]),
        ("from_unixtime(amount, 'yyyy-MM-dd HH:mm:ss') = '+55969-09-28 00:02:03'", [4]),
        ("from_unixtime(amount) = '1969-12-31 23:59:50'", [2]),
        ("to_date(name) = '2024-01-02'", [5]),
        ("cast(name as int) = 42", [2147483647]),
        ("cast(name as double) > 1", [2147483647]),
        ("cast(id as smallint) >= 1", [1, 2, 3, 4, 5]),
        ("cast(day as timestamp) = '2024-02-29'", [4]),
        ("cast(price as double) = 42", [2147483647]),
        ("cast(score as float) = double('Infinity')", [4, 2147483647]),
    ],
)
def test_rows_that_pass(text: str, ids: list[int | None]) -> None:
    passed = SAMPLE_TABLE.filter(to_arrow(parse_where(text, SAMPLE_SCHEMA), SAMPLE_SCHEMA))
    assert passed["id"].to_pylist() == ids


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", date(2024, 2, 29)),
        (" 2024-2-9 ", date(2024, 2, 9)),
        ("2024-01-02T03:04:05", date(2024, 1, 2)),
        ("2024-01-02 noon\nor so", date(2024, 1, 2)),
        ("2024-02-30", None),
        ("2024-13-01", None),
        ("20240101", None),
        ("", None),
    ],
)
def test_dates_in_text(text: str, expected: date | None) -> None:
    schema = pa.schema([("s", pa.string())])
    for function in ("to_date(s)", "cast(s as date)"):
        predicate = parse_where(f"{function} = DATE '{expected or date(2024, 3, 1)}'", schema)
        assert passing(predicate, [{"s": text}], schema) == ([0] if expected else [])


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "1970-01-01 00:00:00"),
        (-1, "1969-12-31 23:59:59"),
        (253402300799, "9999-12-31 23:59:59"),
        (253402300800, "+10000-01-01 00:00:00"),
        (-62135596800, "0001-01-01 00:00:00"),
        (-62167219201, "-0001-12-31 23:59:59"),
        (1695332066000, "+55692-12-06 21:53:20"),
    ],
)
def test_from_unixtime_leaves_the_years_of_clocks(seconds: int, expected: str) -> None:
    schema = pa.schema([("ts", pa.int64())])
    predicate = parse_where(f"from_unixtime(ts) = '{expected}'", schema)
    assert passing(predicate, [{"ts": seconds}], schema) == [0]


def test_comparison_of_the_widest_decimals() -> None:
    schema = pa.schema([("a", pa.decimal128(38, 0)), ("b", pa.decimal128(38, 37)), ("c", pa.int64())])
    row = {"a": Decimal(10**37), "b": Decimal("9.5"), "c": 9}
    assert passing(parse_where("a > b and b > c and c < b and a != c", schema), [row], schema) == [0]


@pytest.mark.parametrize(
    "text", ["d = 0.1D", "d in (0.1D)", "not (d < 0.1D)", "d <= cast('0.1' as double)", "d = 1e-1"]
)
def test_doubles_meet_decimals_by_their_digits(text: str) -> None:
    schema = pa.schema([("d", pa.decimal128(10, 2))])
    assert passing(parse_where(text, schema), [{"d": Decimal("0.10")}], schema) == [0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("9223372036854775807", "cast(s as bigint) = 9223372036854775807"),
        ("-9223372036854775808", "cast(s as bigint) = -9223372036854775808"),
        (" +0000000000000000000000012 ", "cast(s as int) = 12"),
        ("-128", "cast(s as tinyint) = -128"),
        ("NaN", "cast(s as double) > 1e300"),
        (" Infinity ", "cast(s as double) = double('Infinity')"),
        ("-inf", "cast(s as double) < -1e300"),
        ("+INF", "cast(s as float) > 1"),
    ],
)
def test_text_that_is_a_number(value: str, text: str) -> None:
    schema = pa.schema([("s", pa.string())])
    assert passing(parse_where(text, schema), [{"s": value}], schema) == [0]


@pytest.mark.parametrize("value", ["9223372036854775808", "-9223372036854775809", "9" * 38, "9" * 40, "x", "", "1 2"])
def test_text_that_is_no_bigint(value: str) -> None:
    schema = pa.schema([("s", pa.string())])
    text = "cast(s as bigint) = 0 or cast(s as bigint) <> 0"
    assert passing(parse_where(text, schema), [{"s": value}], schema) == []


@pytest.mark.parametrize("text", ["n <= f", "f >= n", "n < f", "n = f", "not (n > f)", "not (n <= f)", "n != f"])
def test_null_against_nan_is_unknown(text: str) -> None:
    schema = pa.schema([("n", pa.int32()), ("f", pa.float64())])
    assert passing(parse_where(text, schema), [{"n": None, "f": float("nan")}], schema) == []


def test_timestamps_of_other_zones_are_read_in_utc() -> None:
    schema = pa.schema([("at", pa.timestamp("ms", "Europe/Paris"))])
    row = {"at": datetime(2023, 12, 31, 23, 30, tzinfo=timezone.utc)}
    text = "at = '2023-12-31 23:30:00' and year(at) = 2023 and date(at) = '2023-12-31' and date_format(at, 'HH') = '23'"
    assert passing(parse_where(text, schema), [row], schema) == [0]


def test_large_text_and_bytes() -> None:
    schema = pa.schema([("s", pa.large_string()), ("b", pa.large_binary())])
    text = (
        "s = '2024-01-02' and s in ('2024-01-02') and s like '2%2' and upper(s) > '' and to_date(s) = '2024-01-02' "
        "and substring(s, 1, 4) = '2024' and length(b) = 2 and b = X'7879'"
    )
    assert passing(parse_where(text, schema), [{"s": "2024-01-02", "b": b"xy"}], schema) == [0]


def test_many_parts_do_not_exhaust_the_stack() -> None:
    predicate = Or(tuple(Compare("id", "=", number) for number in range(10_000)))
    assert passing(predicate, [{"id": 9_999}], pa.schema([("id", pa.int32())])) == [0]


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(InvalidInputError, match="no column gone"):
        to_arrow(Compare("gone", "=", 1), SAMPLE_SCHEMA)


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (Compare("a", "=", 1), "(`a` = 1)"),
        (Compare("a.b", "!=", "it's \\"), "(`a`.`b` != 'it\\'s \\\\')"),
        (Compare("`a.b`", "<", Decimal("-1E-7")), "(`a.b` < -0.0000001BD)"),
        (Compare("a", ">", 1e300), "(`a` > 1e+300D)"),
        (Compare("a", ">", float("-inf")), "(`a` > double('-inf'))"),
        (Compare("a", "<=>", True), "(`a` <=> TRUE)"),
        (Compare("a", "=", b"\x01"), "(`a` = X'01')"),
        (Compare("a", "=", date(1, 2, 3)), "(`a` = DATE '0001-02-03')"),
        (Compare("a", "=", datetime(2024, 1, 2, 3)), "(`a` = TIMESTAMP_NTZ '2024-01-02 03:00:00')"),
        (
            Compare("a", "=", datetime(2024, 1, 2, tzinfo=timezone.utc)),
            "(`a` = TIMESTAMP '2024-01-02 00:00:00+00:00')",
        ),
        (And((IsIn("a", (1, 2)), Not(IsIn("`b```", ())))), "((`a` IN (1, 2)) AND (NOT (`b``` != `b```)))"),
        (Or((TRUE, FALSE, UNKNOWN)), "(TRUE OR FALSE OR CAST(NULL AS BOOLEAN))"),
        (Like("a", "x\\_%"), "(`a` LIKE 'x\\\\_%')"),
        (And(()), "TRUE"),
        (Or(()), "FALSE"),
    ],
)
def test_spark_text(predicate: Predicate, text: str) -> None:
    assert to_spark_sql(predicate) == text
