"""Predicates evaluated one row at a time, as the SQL standard and Spark's documentation say, with no library; and
hypothesis strategies for rows and predicates that often meet."""

from __future__ import annotations

import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from lakebed.filter.predicate import (
    And,
    Compare,
    CompareColumns,
    Constant,
    FunctionCompare,
    IsIn,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    StartsWith,
    column_path,
    like_tokens,
)

Row = dict[str, Any]


def truth(predicate: Predicate, row: Row) -> bool | None:
    match predicate:
        case Constant(value):
            return value
        case Not(part):
            inner = truth(part, row)
            return None if inner is None else not inner
        case And(parts):
            return _all([truth(part, row) for part in parts])
        case Or(parts):
            inner = _all([truth(Not(part), row) for part in parts])
            return None if inner is None else not inner
        case Compare(column, op, value):
            return _compare(cell(row, column), op, value)
        case CompareColumns(left, op, right):
            return _compare(cell(row, left), op, cell(row, right))
        case FunctionCompare(function, column, arguments, op, value):
            found = cell(row, column)
            return _compare(None if found is None else call(function, found, *arguments), op, value)
        case IsNull(column):
            return cell(row, column) is None
    found = cell(row, predicate.column)
    if found is None:
        return None
    match predicate:
        case IsIn(_, values):
            return any(_compare(found, "=", value) for value in values)
        case StartsWith(_, prefix):
            return found[: len(prefix)] == prefix
        case Like(_, pattern):
            return _like(found, like_tokens(pattern))
    raise AssertionError(predicate)


def cell(row: Row, column: str) -> Any:
    value: Any = row
    for part in column_path(column):
        value = None if value is None else value[part]
    return value


def call(function: str, value: Any, *arguments: Any) -> Any:
    match function:
        case "upper":
            return value.upper()
        case "lower":
            return value.lower()
        case "trim":
            return value.strip(" ")
        case "length":
            return len(value)
        case "abs":
            return abs(value)
        case "year" | "month" | "day" | "hour":
            return getattr(value, function)
        case "substring":
            return _substring(value, *arguments)
        case "date_format":
            return _java_format(value, arguments[0])
        case "from_unixtime":
            cycle, rest = divmod(value, 146_097 * 86_400)  # The calendar repeats after 400 years.
            return _java_format(datetime(1970, 1, 1) + timedelta(seconds=rest), arguments[0], 400 * cycle)
        case "to_date":
            return value.date() if isinstance(value, datetime) else value
        case "cast":
            return _CASTS[arguments[0]](value)
    raise AssertionError(function)


_CASTS = {"string": str, "bigint": int, "date": lambda value: call("to_date", value)}


def _substring(text: str, position: int, length: int = 2**31) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _java_format(value: Any, pattern: str, years: int = 0) -> str:
    value = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    year = value.year + years
    fields = {
        "yyyy": f"{'+' if year > 9999 else '-' if year < 0 else ''}{abs(year):04}",
        "MM": f"{value.month:02}",
        "dd": f"{value.day:02}",
    }
    fields |= {"HH": f"{value.hour:02}", "mm": f"{value.minute:02}", "ss": f"{value.second:02}"}
    for field, text in fields.items():
        pattern = pattern.replace(field, text)
    return pattern


def _all(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def _compare(left: Any, op: str, right: Any) -> bool | None:
    if op == "<=>":
        return left is right if left is None or right is None else _compare(left, "=", right)
    if left is None or right is None:
        return None
    one, other = _sortable(left), _sortable(right)
    order = (one > other) - (one < other)
    return {"=": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


def _sortable(value: Any) -> Any:
    is_nan = isinstance(value, float) and value != value
    return (is_nan, 0 if is_nan else value)


def _like(text: str, tokens: tuple[tuple[str, bool], ...]) -> bool:
    if not tokens:
        return text == ""
    (character, wild), rest = tokens[0], tokens[1:]
    if wild and character == "%":
        return any(_like(text[skipped:], rest) for skipped in range(len(text) + 1))
    return text != "" and (wild or text[0] == character) and _like(text[1:], rest)


UTC = timezone.utc
_BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999000)
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-(2**31), -2, -1, 0, 1, 2, 2**31 - 1]),
    "j": (pa.int64(), [-(2**63), -2, -1, 0, 1, 2, 2**63 - 1]),
    "d": (pa.float64(), [float("-inf"), -1.5, -0.0, 0.0, 1.5, 2.0, float("inf"), float("nan")]),
    "f": (pa.float32(), [float("-inf"), -1.5, -0.0, 0.0, 1.5, 2.0, float("inf"), float("nan")]),
    "s": (pa.string(), ["", " ", "a", "A", "ab", "aé", "a%", "a_b\\", "a\nb", "b ", "\uffee", "a\uffee", "😀", "a😀"]),
    "b": (pa.bool_(), [False, True]),
    "n": (pa.decimal128(5, 2), [Decimal(text) for text in ("-999.99", "-1.50", "0.00", "1.50", "2.00", "999.99")]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [_BEFORE_1970.replace(tzinfo=UTC), datetime(2024, 2, 29, 12, 0, 0, 1, UTC)]),
    "wall": (pa.timestamp("ms"), [datetime(1582, 10, 15), _BEFORE_1970, datetime(2024, 2, 29, 12)]),
    "raw": (pa.binary(), [b"", b"a", b"a\x00", b"\x7f", b"\x80", b"\xff"]),
}
FIELDS = {**POOLS, "t.i": POOLS["i"], "t.s": POOLS["s"]}
SCHEMA = pa.schema(
    [*((name, kind) for name, (kind, _) in POOLS.items()), ("t", pa.struct([("i", pa.int32()), ("s", pa.string())]))]
)
_COMPARABLE = [
    ("i", "j"),
    ("i", "n"),
    ("d", "f"),
    ("f", "i"),
    ("d", "n"),
    ("s", "t.s"),
    ("i", "t.i"),
    ("d", "d"),
    ("raw", "raw"),
]
_CALLS: list[tuple[str, str, tuple[Any, ...], list[Any]]] = [
    ("upper", "s", (), ["A", "AB", "AÉ"]),
    ("lower", "s", (), ["a", "ab"]),
    ("trim", "s", (), ["", "a", "b"]),
    ("length", "s", (), [0, 1, 2]),
    ("length", "raw", (), [0, 1, 2]),
    ("substring", "s", (1, 1), ["a", ""]),
    ("substring", "s", (-1,), ["a", "b"]),
    ("substring", "s", (-3, 2), ["a", "a_"]),
    ("substring", "s", (0, 2), ["a", "ab"]),
    ("abs", "n", (), [Decimal("1.50")]),
    ("abs", "d", (), [1.5, float("nan")]),
    ("year", "at", (), [1969, 2024]),
    ("month", "day", (), [2, 12]),
    ("day", "wall", (), [15, 31]),
    ("hour", "at", (), [0, 12, 23]),
    ("date_format", "at", ("yyyy-MM-dd HH:mm:ss",), ["1969-12-31 23:59:59", "2024-02-29 12:00:00"]),
    ("date_format", "day", ("yyyy/MM",), ["0001/01", "2024/02"]),
    ("from_unixtime", "t.i", ("yyyy-MM-dd HH:mm",), ["1969-12-31 23:59", "1970-01-01 00:00"]),
    ("to_date", "at", (), [date(1969, 12, 31), date(2024, 2, 29)]),
    ("to_date", "wall", (), [date(1969, 12, 31)]),
    ("cast", "i", ("string",), ["-1", "2"]),
]
_OPS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_PATTERNS = st.lists(st.sampled_from(["a", "b", "%", "_", "\\%", "\\_", "\\\\", "\n", "é", "😀", " "]), max_size=5)


_CHOICES: dict[str, list[Any]] = {name: [None, *pool] for name, (_, pool) in POOLS.items()}
_CHOICES |= {"t.i": [None, -2, -1, 0, 1, 2], "t.s": _CHOICES["s"], "t": [None, True]}
_ROW_COUNT = math.prod(map(len, _CHOICES.values()))


def _row(number: int) -> Row:
    row: Row = {}
    for name, choices in _CHOICES.items():
        number, index = divmod(number, len(choices))
        row[name] = choices[index]
    fields = {"i": row.pop("t.i"), "s": row.pop("t.s")}
    return {**row, "t": fields if row["t"] else None}


def rows() -> st.SearchStrategy[list[Row]]:
    """Rows drawn as one number each: drawing them cell by cell takes most of a test's time."""
    return st.lists(st.integers(0, _ROW_COUNT - 1).map(_row), max_size=12)


@st.composite
def _leaves(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(list(FIELDS)))
    value = st.sampled_from(FIELDS[column][1])
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "text", "columns", "call", "constant"]))
    if kind == "compare":
        return Compare(column, draw(_OPS | st.just("<=>")), draw(value))
    if kind == "in":
        return IsIn(column, tuple(draw(st.lists(value, max_size=4))))
    if kind == "null":
        return IsNull(column)
    if kind == "columns":
        left, right = draw(st.sampled_from(_COMPARABLE).flatmap(st.permutations))
        return CompareColumns(left, draw(_OPS | st.just("<=>")), right)
    if kind == "call":
        function, column, arguments, values = draw(st.sampled_from(_CALLS))
        return FunctionCompare(function, column, arguments, draw(_OPS), draw(st.sampled_from(values)))
    if kind == "constant":
        return Constant(draw(st.sampled_from([True, False, None])))
    column = draw(st.sampled_from(["s", "t.s"]))
    pattern = "".join(draw(_PATTERNS))
    return draw(st.sampled_from([Like(column, pattern), StartsWith(column, pattern.replace("\\", ""))]))


def predicates() -> st.SearchStrategy[Predicate]:
    def joined(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(parts, max_size=3).map(tuple)
        return several.map(And) | several.map(Or) | parts.map(Not)

    return st.recursive(_leaves(), joined, max_leaves=6)
