"""A small table with every type that filters compare, and filters over it that any engine must answer alike."""

from __future__ import annotations

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


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc, arg-type]


_ROWS: list[tuple[object, ...]] = [
    (1, 10, 1.5, 0.5, "ann", True, Decimal("1.50"), date(2024, 1, 1), _utc(2024, 1, 1), datetime(2024, 1, 1), b"a", ("Rome", 1)),
    (2, -10, -1.5, 0.1, "Bob", False, Decimal("-1.50"), date(2023, 12, 31), _utc(2023, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23), b"\x80", ("Oslo", None)),
    (3, 1704067200, float("nan"), float("nan"), "a%b", None, Decimal("0.00"), date(1969, 7, 20), _utc(1969, 7, 20, 20, 17, 40), datetime(2024, 2, 29, 12), b"", (None, 3)),
    (4, 1704067200123, float("inf"), -0.0, "", True, Decimal("1234567.89"), date(2024, 2, 29), _utc(2024, 2, 29, 12, 30, 15, 123456), None, b"\xff\x00", None),
    (5, 0, 0.0, 0.25, "2024-01-02", False, None, None, None, datetime(2024, 1, 1, 0, 0, 0, 1), None, ("", 0)),
    (-6, None, None, None, None, None, Decimal("0.01"), date(2024, 1, 2), _utc(1999, 12, 31), datetime(1970, 1, 1), b"ab", ("Lima", -5)),
    (None, -1, -0.0, 1e30, "line\nbreak", True, Decimal("-0.01"), date(1970, 1, 1), _utc(1970, 1, 1), datetime(2000, 1, 1), b"a\x00", ("Älta", 7)),
    (2147483647, 9223372036854775807, 1e300, 3.5, "42", None, Decimal("42.00"), date(9999, 12, 31), _utc(2100, 1, 1), datetime(2100, 1, 1), b"z", ("it's", 9)),
]  # fmt: skip

SAMPLE_ROWS = [dict(zip(SAMPLE_SCHEMA.names, row, strict=True)) for row in _ROWS]
for _row in SAMPLE_ROWS:
    if isinstance(_row["address"], tuple):
        _row["address"] = dict(zip(("city", "zip"), _row["address"], strict=True))

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
