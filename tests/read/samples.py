"""A small table with every type that filters compare, and filters over it that any engine must answer alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa

SAMPLE_SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("amount", pa.int64()),
        ("score", pa.float64()),
        ("ratio", pa.float32()),
        ("name", pa.string()),
        ("active", pa.bool_()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local_at", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("address", pa.struct([("city", pa.string()), ("zip", pa.int64())])),
    ]
)


def _moment(text: str | None, zone: timezone | None = None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=zone)


_DAYS = ("2024-01-01", "2023-12-31", "1969-07-20", "2024-02-29", None, "2024-01-02", "1970-01-01", "9999-12-31")
_UTC_TIMES = (
    *("2024-01-01", "2023-12-31 23:59:59.999999", "1969-07-20 20:17:40", "2024-02-29 12:30:15.123456"),
    *(None, "1999-12-31", "1970-01-01", "2100-01-01"),
)
_WALL_TIMES = (
    *("2024-01-01", "1969-12-31 23:00:00", "2024-02-29 12:00:00", None),
    *("2024-01-01 00:00:00.000001", "1970-01-01", "2000-01-01", "2100-01-01"),
)
_PRICES = ("1.50", "-1.50", "0.00", "1234567.89", None, "0.01", "-0.01", "42.00")
_PLACES = (("Rome", 1), ("Oslo", None), (None, 3), None, ("", 0), ("Lima", -5), ("Älta", 7), ("it's", 9))

_COLUMNS: dict[str, Sequence[object]] = {
    "id": (1, 2, 3, 4, 5, -6, None, 2147483647),
    "amount": (10, -10, 1704067200, 1704067200123, 0, None, -1, 9223372036854775807),
    "score": (1.5, -1.5, float("nan"), float("inf"), 0.0, None, -0.0, 1e300),
    "ratio": (0.5, 0.1, float("nan"), -0.0, 0.25, None, 1e30, 3.5),
    "name": ("ann", "Bob", "a%b", "", "2024-01-02", None, "line\nbreak", "42"),
    "active": (True, False, None, True, False, None, True, None),
    "price": [None if text is None else Decimal(text) for text in _PRICES],
    "day": [None if text is None else date.fromisoformat(text) for text in _DAYS],
    "at": [_moment(text, timezone.utc) for text in _UTC_TIMES],
    "local_at": [_moment(text) for text in _WALL_TIMES],
    "raw": (b"a", b"\x80", b"", b"\xff\x00", None, b"ab", b"a\x00", b"z"),
    "address": [None if place is None else dict(zip(("city", "zip"), place, strict=True)) for place in _PLACES],
}
SAMPLE_ROWS = [dict(zip(_COLUMNS, cells, strict=True)) for cells in zip(*_COLUMNS.values(), strict=True)]
SAMPLE_TABLE = pa.Table.from_pylist(SAMPLE_ROWS, schema=SAMPLE_SCHEMA)

SAMPLE_PREDICATES = (
    # Numbers
    "id = 1",
    "id == 2",
    "ID != 1",
    "id <> 1",
    "id < 3 and amount > -20",
    "3 >= id",
    "id > 1.5",
    "id < 1.5",
    "id = 1.5",
    "id != 1.5",
    "not id = 1.5",
    "id < 99999999999",
    "not (id > 99999999999)",
    "id = '4'",
    "id in (1, 3, 99)",
    "id not in (1, 3)",
    "id in (1, null)",
    "id not in (1, null)",
    "id between 2 and 4",
    "id not between 2 and 4",
    "id <=> 1",
    "not (id <=> 1)",
    "id <=> null",
    "id = null",
    "not (id = null)",
    "amount = 9223372036854775807L",
    "amount > id",
    "amount <=> id",
    "not (amount <= id)",
    "price = 1.5",
    "price > 0.005",
    "price >= -0.01 and price < 1.5BD",
    "price < 1e10",
    "price > id",
    "price = id",
    # Floats: NaN is equal to itself and above all numbers; the zeros are equal
    "score = 0",
    "score = -0.0",
    "score in (0, 1.5)",
    "score not in (0, 1.5)",
    "score > 1.5",
    "score >= 1.5",
    "not (score < 1.5)",
    "not (score > 1.5)",
    "score != 1.5",
    "score = 'NaN'",
    "score >= double('NaN')",
    "score < double('NaN')",
    "score <= double('Infinity')",
    "score = ratio",
    "score > ratio",
    "score >= ratio",
    "score != ratio",
    "ratio = 0.5",
    "ratio = 0.1",
    "ratio > 0.1",
    "ratio <= 0.1",
    # Text
    "name = 'ann'",
    'name = "ann"',
    "name = 'a%b'",
    "name > 'a'",
    "name <= 'ann'",
    "name like 'a%'",
    "name not like 'a%'",
    "name like '%n%'",
    "name like '_nn'",
    "name like 'a\\\\%b'",
    "name like 'a/%_' escape '/'",
    "name like 'line%break'",
    "name like 'line_break'",
    "name like '%'",
    "name like ''",
    "startswith(name, 'a%')",
    "address.city = 'it''s'",
    "address.city = 'it\\'s'",
    "address.city like 'Ä%'",
    # Booleans and null tests
    "active",
    "not active",
    "active = false",
    "active is true",
    "active is not true",
    "active is null or id is null",
    "name is not null",
    "address is null",
    "address.zip is null",
    "address.zip >= 0",
    "not (address.zip >= 0)",
    # Dates and timestamps
    "day = '2024-01-01'",
    "day >= DATE '2024-01-01'",
    "day > TIMESTAMP '2024-01-01 12:00:00'",
    "day < TIMESTAMP '2024-01-01 12:00:00'",
    "at = '2024-01-01'",
    "at >= TIMESTAMP '2024-01-01 00:00:00'",
    "at < TIMESTAMP '2024-01-01 02:00:00+02:00'",
    "at > DATE '2023-12-31'",
    "at between '1970-01-01' and '2024-01-01 00:00:00.000001'",
    "local_at = TIMESTAMP_NTZ '2024-01-01 00:00:00'",
    "local_at > '2024-01-01 00:00:00'",
    # Bytes
    "raw = X'61'",
    "raw > X'61'",
    "raw in (X'80', X'')",
    # Functions
    "upper(name) = 'ANN'",
    "lower(name) in ('bob', 'ann')",
    "length(name) > 3",
    "char_length(name) = 0",
    "length(raw) = 2",
    "trim(name) = 'ann'",
    "substring(name, 1, 2) = 'an'",
    "substring(name, -2) = 'ob'",
    "substring(name, -5, 4) <> ''",
    "substr(name, 0, 1) = 'a'",
    "abs(id) = 6",
    "abs(price) <= 1.5",
    "year(day) = 2024",
    "month(at) = 12 or day(at) = 29",
    "hour(local_at) >= 12",
    "date_format(at, 'yyyy-MM-dd') = '2023-12-31'",
    "date_format(at, 'HH:mm:ss') = '12:30:15'",
    "date_format(day, 'yyyyMM') >= '202401'",
    "from_unixtime(amount, 'yyyy-MM-dd') = '2024-01-01'",
    "from_unixtime(amount, 'yyyy') > '1969'",
    "to_date(at) = '2023-12-31'",
    "date(local_at) < '1970-01-01'",
    "cast(at as date) >= DATE '2024-01-01'",
    "cast(id as string) = '4'",
    "cast(id as bigint) = 2147483647",
    "cast(day as string) = '2024-02-29'",
    # Logic
    "id = 1 or id = 2 and active",
    "(id = 1 or id = 2) and active",
    "not (id = 1 or active)",
    "not (id > 1 and active)",
    "not (not active)",
    "1 = 1",
    "true and id > 0",
    "false or null",
    "id > 0 and null",
)
