"""Random rows for filters: every type that they take, with nulls, NaN, ends of ranges and odd characters."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa

TEXTS = (
    "",
    " ",
    "a",
    "A",
    "ab",
    "abc",
    "ABC",
    " abc ",
    "a b",
    "it's",
    "''",
    '"q"',
    "100%",
    "a_b",
    "a%b",
    "%",
    "_",
    "a\\b",
    "\\",
    "\\%",
    "tab\there",
    "line\nbreak",
    "a/b",
    "a=b",
    "äöü",
    "Ä",
    "日本",
    "日本語",
    "🦆",
    "🦆🦆",
    "\ue000",
    "\uffff",
    "z" * 40,
    "zebra",
    "null",
    "NULL",
    "--x",
    "/*",
    "`",
    "e\u0301",
    "\x7f",
    "\u200b",
    "true",
    "1",
)
_PLAIN = ("", "a", "A", "b", "abc", "ABC", "aBc", "zz", "äö", "ÄÖ", "x y", "Oslo", "oslo", "BERGEN")
_NUMBERS = (
    "5",
    " 12 ",
    "-7",
    "+5",
    "abc",
    "",
    "0",
    "007",
    "2147483647",
    "2147483648",
    "127",
    "128",
    "-128",
    "12a",
    "9223372036854775807",
)
_FLOATS = ("1.5", "-0.25", ".5", "5.", "1e3", "x", "", " 2.5 ", "0", "-0", "1e-3", "NaN", "-Infinity")
_DAYS = ("2024-01-31", "2024-2-9", "1970-01-01", "2023-02-30", "x", "", "2024-01-31 12:30:00", "1999-12-31")
_PARTS = ("a", "b", "it's", "a b", "100%", "日本", "x=y", None)
_ENDS = (0, 0, 1, -1, 2, 3, 5, 10, 100, -100, 2**31 - 1, -(2**31) + 1)
_DOUBLES = (0.0, -0.0, 1.5, -1.5, 0.1, 0.5, 1e300, -1e300, 5e-324, float("nan"), float("inf"), float("-inf"), 3.0)
_DECIMALS = ("0", "0.10", "0.1", "-0.10", "1.50", "1.5", "99999999.99", "-99999999.99", "12.34", "12.345", "3", "1e3")
_STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("part", pa.string()),
        ("flag", pa.bool_()),
        ("num", pa.int32()),
        ("big", pa.int64()),
        ("flt", pa.float32()),
        ("dbl", pa.float64()),
        ("dec", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(24, 8)),
        ("txt", pa.string()),
        ("plain", pa.string()),
        ("numtext", pa.string()),
        ("floattext", pa.string()),
        ("daytext", pa.string()),
        ("day_", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("st", _STRUCT),
    ]
)


@dataclass(frozen=True)
class Rows:
    """Rows that predicates are about."""

    table: pa.Table

    @property
    def columns(self) -> tuple[str, ...]:
        """Names that filters may use, fields of structs among them."""
        return (*(name for name in SCHEMA.names if name != "st"), "st.x", "st.y")

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if pa.types.is_string(self.kind(name)))

    def kind(self, name: str) -> pa.DataType:
        head, _, field = name.partition(".")
        kind = SCHEMA.field(head).type
        return kind.field(field).type if field else kind

    def value(self, chance: random.Random, name: str) -> Any:
        """A value that occurs in the column; None is among them."""
        head, _, field = name.partition(".")
        value = self.table[head][chance.randrange(self.table.num_rows)].as_py()
        return value[field] if field and value is not None else value


def some_rows(chance: random.Random, count: int) -> Rows:
    """Rows with different keys, in an order in which some columns are nearly sorted: files have ranges of their own."""
    rows = [_row(chance, number) for number in range(count)]
    rows.sort(key=lambda row: (row["num"] is None, row["num"] or 0))
    return Rows(pa.Table.from_pylist(rows, SCHEMA))


def _row(chance: random.Random, number: int) -> dict[str, Any]:
    moment = some_moment(chance)
    row = {
        "part": chance.choice(_PARTS),
        "flag": chance.random() < 0.5,
        "num": some_int(chance),
        "big": chance.choice((some_int(chance), some_int(chance), 2**53, -(2**53), 10**12)),
        "flt": chance.choice((0.0, -0.0, 1.5, -2.25, 0.1, 3.0, float("nan"), float("inf"), 1e30)),
        "dbl": some_double(chance),
        "dec": round(some_decimal(chance), 2) % 10**8,
        "wide": some_decimal(chance),
        "txt": chance.choice(TEXTS),
        "plain": chance.choice(_PLAIN),
        "numtext": chance.choice(_NUMBERS),
        "floattext": chance.choice(_FLOATS),
        "daytext": chance.choice(_DAYS),
        "day_": some_date(chance),
        "moment": moment.replace(tzinfo=timezone.utc),
        "wall": some_moment(chance),
        "st": None if chance.random() < 0.1 else {"x": some_int(chance), "y": chance.choice(TEXTS)},
    }
    kept = {name: None if chance.random() < 0.12 else value for name, value in row.items()}
    return {"id": f"{chance.choice(TEXTS)}#{number}", **kept}


def some_int(chance: random.Random) -> int:
    return chance.choice(_ENDS) if chance.random() < 0.6 else chance.randint(-20, 20)


def some_double(chance: random.Random) -> float:
    return chance.choice(_DOUBLES) if chance.random() < 0.7 else round(chance.uniform(-20, 20), 2)


def some_decimal(chance: random.Random) -> Decimal:
    if chance.random() < 0.6:
        return Decimal(chance.choice(_DECIMALS))
    return Decimal(chance.randint(-2000, 2000)) / 100


def some_date(chance: random.Random) -> date:
    if chance.random() < 0.2:
        return chance.choice((date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31)))
    return date(2024, 1, 1) + timedelta(days=chance.randint(-40, 40))


def some_moment(chance: random.Random) -> datetime:
    kind = chance.random()
    if kind < 0.2:
        return datetime.combine(some_date(chance), datetime.min.time()).replace(year=2023)
    if kind < 0.3:
        return datetime(1969, 12, 31, 23, 59, 59, 999999)
    start = datetime(2024, 1, 1) + timedelta(seconds=chance.randint(-(10**6), 10**6))
    return start.replace(microsecond=chance.choice((0, 0, 1, 500000, 999999)))


def like_text(chance: random.Random, text: str) -> str:
    """A pattern made from a text: parts of it become wildcards, wildcards in it are escaped, or not."""
    pieces: list[str] = []
    for character in text.replace("\0", ""):
        kind = chance.random()
        if kind < 0.15:
            pieces.append("_")
        elif kind < 0.25:
            pieces.append("%")
        elif character in "%_":
            pieces.append(chance.choice((character, "\\" + character)))
        else:
            pieces.append("\\\\" if character == "\\" else character)
    if chance.random() < 0.5:
        pieces.append("%")
    if chance.random() < 0.3:
        pieces.insert(0, "%")
    return "".join(pieces)
