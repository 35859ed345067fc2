from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.filter.predicate import (
    Compare,
    CompareColumns,
    FunctionCompare,
    IsIn,
    Predicate,
    StartsWith,
    expression_key,
    parse_where,
)
from lakebed.filter.ranges import Ranges, may_match
from read.naive import FIELDS, Row, cell, predicates, rows, truth

Order = Callable[[Any], Any]


def utf16(text: str) -> Any:
    return text.encode("utf-16-be")


def signed(data: bytes) -> Any:
    return [byte - 256 * (byte > 127) for byte in data]


def itself(value: Any) -> Any:
    return value


def nan_last(value: Any) -> Any:
    return (value != value, value)


def least_and_greatest(values: list[Any], order: Order) -> tuple[Any, Any]:
    """As a writer may find them: NaN counts only where the order has a place for it."""
    kept = [value for value in values if value is not None and (order is nan_last or value == value)]
    return (min(kept, key=order), max(kept, key=order)) if kept else (None, None)


def ranges_of(kind: pa.DataType, cells: list[list[Any]], order: Order, is_known: list[bool]) -> Ranges:
    files = list(zip(cells, is_known, strict=True))
    bounds = [least_and_greatest(values, order) if known else (None, None) for values, known in files]
    return Ranges(
        pa.array([low for low, _ in bounds], kind),
        pa.array([high for _, high in bounds], kind),
        pa.array([values.count(None) for values in cells], pa.int64()),
        pa.array([len(values) if known else None for values, known in files], pa.int64()),
    )


@st.composite
def files_with_ranges(draw: st.DrawFn) -> tuple[list[list[Row]], dict[str, Ranges]]:
    files = draw(st.lists(rows(), min_size=1, max_size=4))
    orders = {"s": [itself, utf16], "t.s": [itself, utf16], "raw": [itself, signed], "d": [itself, nan_last]}
    ranges = {}
    for column in draw(st.sets(st.sampled_from(list(FIELDS)))):
        order = draw(st.sampled_from(orders.get(column, [itself])))
        is_known = draw(st.lists(st.booleans(), min_size=len(files), max_size=len(files)))
        cells = [[cell(row, column) for row in file] for file in files]
        ranges[column] = ranges_of(FIELDS[column][0], cells, order, is_known)
    return files, ranges


@settings(max_examples=250, deadline=None)
@given(predicates(), files_with_ranges())
def test_a_file_with_a_matching_row_is_kept(
    predicate: Predicate, written: tuple[list[list[Row]], dict[str, Ranges]]
) -> None:
    files, ranges = written
    kept = may_match(predicate, ranges, len(files))
    assert kept.dtype == bool
    assert kept.shape == (len(files),)
    for file, keep in zip(files, kept, strict=True):
        assert keep or not any(truth(predicate, row) for row in file)


SCHEMA = pa.schema(
    {"n": pa.int64(), "m": pa.int64(), "x": pa.float64(), "s": pa.string(), "day": pa.date32(), "raw": pa.binary()}
)


def known(kind: pa.DataType, *files: tuple[Any, Any], nulls: int = 1) -> Ranges:
    lows, highs = zip(*files, strict=True)
    counts = pa.array([10 if low is None else nulls for low in lows], pa.int64())
    return Ranges(pa.array(lows, kind), pa.array(highs, kind), counts, pa.array([10] * len(files), pa.int64()))


# Four files; the last one holds nothing but nulls.
RANGES = {
    "n": known(pa.int64(), (0, 9), (10, 10), (20, 29), (None, None)),
    "m": known(pa.int64(), (5, 5), (10, 10), (0, 19), (None, None)),
    "x": known(pa.float64(), (0.0, 9.0), (10.0, 10.0), (20.0, float("nan")), (None, None)),
    "s": known(pa.string(), ("aa", "ab"), ("abc", "abd"), ("b", "z"), (None, None)),
    "day": known(pa.date32(), (date(2024, 1, 1), date(2024, 1, 31)), *[(date(2024, 2, 1), date(2024, 2, 29))] * 3),
    "raw": known(pa.binary(), (b"a", b"b"), (b"c", b"d"), (b"\x80", b"\x90"), (None, None)),
    "upper(s)": known(pa.string(), ("AA", "AB"), ("ABC", "ABD"), ("B", "Z"), (None, None)),
}

KEPT = [
    ("n = 5", [True, False, False, False]),
    ("n = 15", [False, False, False, False]),
    ("n != 10", [True, False, True, False]),
    ("not (n = 10)", [True, False, True, False]),
    ("n < 10", [True, False, False, False]),
    ("n <= 10", [True, True, False, False]),
    ("n > 10", [False, False, True, False]),
    ("not (n > 10)", [True, True, False, False]),
    ("n >= 10", [False, True, True, False]),
    ("n <=> 5", [True, False, False, False]),
    ("not (n <=> 10)", [True, True, True, True]),
    ("n between 10 and 15", [False, True, False, False]),
    ("n not between 0 and 10", [False, False, True, False]),
    ("n in (15, 5)", [True, False, False, False]),
    ("n in (-1, 30, 12)", [False, False, False, False]),
    ("n not in (10)", [True, True, True, False]),
    ("n is null", [True, True, True, True]),
    ("n is not null", [True, True, True, False]),
    ("n = 1.5", [False, False, False, False]),
    ("n = null", [False, False, False, False]),
    ("n > 25 or m = 5", [True, False, True, False]),
    ("not (n > 25 or m = 5)", [False, True, True, False]),
    ("n < m", [True, False, False, False]),
    ("n = m", [True, True, False, False]),
    ("n != m", [True, False, True, False]),
    ("n >= m", [True, True, True, False]),
    # NaN is above all numbers, and a range need not show that it is there.
    ("x > 50", [True, True, True, False]),
    ("x != 10", [True, True, True, False]),
    ("x < 5", [True, False, False, False]),
    ("x = 10", [False, True, False, False]),
    ("x in (5, 50)", [True, False, True, False]),
    ("x = double('NaN')", [True, True, True, False]),
    ("s = 'abc'", [False, True, False, False]),
    ("s like 'ab%'", [True, True, False, False]),
    ("s like 'abc_'", [False, True, False, False]),
    ("s like '%c'", [True, True, True, False]),
    ("s not like 'ab%'", [True, False, True, False]),
    ("s not like '%b'", [True, True, True, False]),
    ("s > '\uffee'", [True, True, True, False]),
    ("s in ('c', 'd')", [False, False, True, False]),
    ("day = '2024-02-15'", [False, True, True, True]),
    ("raw = X'FF'", [True, True, True, False]),
    ("upper(s) = 'ABC'", [False, True, False, False]),
    ("lower(s) = 'abc'", [True, True, True, True]),
    ("true", [True] * 4),
    ("false", [False] * 4),
]


@pytest.mark.parametrize(("text", "kept"), KEPT, ids=[text for text, _ in KEPT])
def test_files_that_are_kept(text: str, kept: list[bool]) -> None:
    assert may_match(parse_where(text, SCHEMA), RANGES, 4).tolist() == kept


def test_no_nulls_leave_out_is_null() -> None:
    ranges = {"n": known(pa.int64(), (0, 9), nulls=0)}
    assert may_match(parse_where("n is null", SCHEMA), ranges, 1).tolist() == [False]


def test_columns_without_ranges_exclude_nothing() -> None:
    assert may_match(parse_where("n = 5 and s = 'x' and n < m", SCHEMA), {}, 3).tolist() == [True] * 3


def test_no_rows_counted_proves_nothing() -> None:
    unknown = pa.array([None], pa.int64())
    ranges = {"n": Ranges(unknown, unknown, pa.array([0], pa.int64()), pa.array([0], pa.int64()))}
    assert may_match(Compare("n", "=", 5), ranges, 1).tolist() == [True]


@pytest.mark.parametrize(
    "predicate",
    [Compare("n", "=", 2**40), IsIn("n", (2**40,)), Compare("n", "=", "text"), StartsWith("n", "text")],
)
def test_ranges_of_another_type_exclude_nothing(predicate: Predicate) -> None:
    assert may_match(predicate, {"n": known(pa.int8(), (1, 2))}, 1).tolist() == [True]


def test_columns_of_different_types_exclude_nothing() -> None:
    ranges = {"n": known(pa.int8(), (1, 2)), "m": known(pa.int64(), (5, 6))}
    assert may_match(CompareColumns("n", ">", "m"), ranges, 1).tolist() == [True]


def test_ranges_of_an_expression_are_found_by_its_key() -> None:
    predicate = FunctionCompare("from_unixtime", "n", ("yyyy-MM-dd",), "=", "2024-01-02")
    ranges = {expression_key(predicate): known(pa.string(), ("2024-01-01", "2024-01-01"), ("2024-01-02", "2024-02-01"))}
    assert may_match(predicate, ranges, 2).tolist() == [False, True]


def test_many_files_and_values() -> None:
    count = 20_000
    ranges = {"n": known(pa.int64(), *((10 * file, 10 * file + 4) for file in range(count)))}
    kept = may_match(IsIn("n", tuple(range(0, 10 * count, 70))), ranges, count)
    assert kept.nonzero()[0].tolist() == list(range(0, count, 7))
