"""Literals of a filter, converted to the type of the column they are compared with.

Spark compares a column with a literal of another type by widening both. Here the column keeps its type, so that
statistics and Parquet pushdown apply, and the literal is converted: exactly, or to the greatest value of the type below
it (`x > 1.5` over integers is the same as `x > 1`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakebed.filter.predicate import Value

SqlLiteral: TypeAlias = Decimal | str | bool | bytes | date | datetime
"""A literal as written. Datetimes with a zone come from TIMESTAMP, without one from TIMESTAMP_NTZ."""

_DATE = r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
_TIME = r"[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
_ZONE = r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?\s*"
_DATE_TEXT = re.compile(rf"{_DATE}\s*")
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?:{_TIME}{_ZONE}|\s*)")
_INTEGER_TEXT = re.compile(r"\s*[+-]?\d{1,40}\s*")
_TRUTH = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(("f", "false", "n", "no", "0"), False)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
# The range of a signed 64-bit count of nanoseconds, rounded inwards to whole days.
_NANOSECOND_RANGE = (datetime(1677, 9, 22), datetime(2262, 4, 11))


@dataclass(frozen=True, slots=True)
class Fit:
    """The position of a literal among the values of a type: equal to `value`, or between it and the next one.

    `side` is -1 if the literal is below all values of the type, and 1 if above; then `value` has no meaning.
    """

    value: Value
    exact: bool = True
    side: int = 0


class Misfit(ValueError):  # noqa: N818 - never leaves the package, and is no error of ours
    """The type cannot be compared with this literal; the text says which literals it takes."""


def fit(literal: SqlLiteral, kind: pa.DataType) -> Fit:
    """The position of the literal among the values of `kind`; Misfit if the two cannot be compared."""
    for applies, fitting in _FITTINGS:
        if applies(kind):
            return fitting(literal, kind)
    raise Misfit("no literals: test it with IS NULL, or name a field of it")


def is_comparable(kind: pa.DataType) -> bool:
    """Whether literals can be compared with columns of this type."""
    return any(applies(kind) for applies, _ in _FITTINGS)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type holds text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Whether a type holds bytes."""
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def decode_date(text: str) -> date:
    """Reads `2024-01-02`; ValueError for anything else."""
    found = _DATE_TEXT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return date(*map(int, found.groups()))


def decode_timestamp(text: str) -> datetime:
    """Reads `2024-01-02 03:04:05.678`, with a zone exactly when the text ends in an offset.

    The time of day and its seconds may be left out. Digits below the microsecond are dropped, as Spark does.
    ValueError for anything else.
    """
    found = _TIMESTAMP_TEXT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    *calendar, fraction, zone = found.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in calendar)
    moment = datetime(year, month, day, hour, minute, second, int(((fraction or "") + "000000")[:6]))
    return moment if zone is None else moment.replace(tzinfo=_decode_zone(zone))


def in_utc(moment: datetime) -> datetime:
    """The same moment with the zone UTC, which is also the zone of a moment that names none."""
    try:
        return moment.replace(tzinfo=timezone.utc) if moment.tzinfo is None else moment.astimezone(timezone.utc)
    except OverflowError as error:
        raise Misfit("the years 1 to 9999") from error


def _decode_zone(text: str) -> timezone:
    if text[0] not in "+-":
        return timezone.utc
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if text[0] == "-" else offset)


def _fit_integer(literal: SqlLiteral, kind: pa.DataType) -> Fit:
    if isinstance(literal, str) and _INTEGER_TEXT.fullmatch(literal):
        literal = Decimal(literal.strip())
    if not isinstance(literal, Decimal) or not literal.is_finite():
        raise Misfit("a number such as 5")
    signed = pa.types.is_signed_integer(kind)
    least = -(1 << kind.bit_width - 1) if signed else 0
    most = (1 << kind.bit_width - signed) - 1
    if not least <= literal <= most:
        return Fit(0, exact=False, side=1 if literal > most else -1)
    whole = literal.to_integral_value(ROUND_FLOOR)
    return Fit(int(whole), exact=whole == literal)


def _fit_float(literal: SqlLiteral, kind: pa.DataType) -> Fit:
    try:
        number = float(literal) if isinstance(literal, (Decimal, str)) else None
    except ValueError:
        number = None
    if number is None or (math.isinf(number) and isinstance(literal, Decimal) and literal.is_finite()):
        raise Misfit("a number such as 1.5")
    if kind == pa.float64() or not math.isfinite(number):
        return Fit(number)
    # Spark widens the column to double instead: a literal between two floats equals neither.
    with np.errstate(over="ignore"):
        near = np.float32(number)
    if float(near) == number:
        return Fit(number)
    return Fit(float(near if float(near) < number else np.nextafter(near, np.float32(-np.inf))), exact=False)


def _fit_decimal(literal: SqlLiteral, kind: Any) -> Fit:
    try:
        number = Decimal(literal) if isinstance(literal, (Decimal, str)) else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise Misfit("a number such as 1.50")
    # Decimals round to the precision of their context: use one that is large enough.
    context = Context(prec=len(number.as_tuple().digits) + 2 * kind.precision + 100)
    step = Decimal(1).scaleb(-kind.scale, context)
    limit = Decimal(10).scaleb(kind.precision - kind.scale - 1, context)
    if number >= limit or number < context.subtract(step, limit):
        return Fit(Decimal(0), exact=False, side=1 if number > 0 else -1)
    floor = number.quantize(step, ROUND_FLOOR, context)
    return Fit(floor, exact=floor == number)


def _fit_text(literal: SqlLiteral, _kind: pa.DataType) -> Fit:
    if not isinstance(literal, str):
        raise Misfit("text in quotes")
    return Fit(literal)


def _fit_binary(literal: SqlLiteral, _kind: pa.DataType) -> Fit:
    if isinstance(literal, str):
        return Fit(literal.encode())
    if not isinstance(literal, bytes):
        raise Misfit("bytes such as X'1F'")
    return Fit(literal)


def _fit_boolean(literal: SqlLiteral, _kind: pa.DataType) -> Fit:
    truth = _TRUTH.get(literal.strip().lower()) if isinstance(literal, str) else literal
    if not isinstance(truth, bool):
        raise Misfit("true or false")
    return Fit(truth)


def _fit_date(literal: SqlLiteral, _kind: pa.DataType) -> Fit:
    if isinstance(literal, str):
        try:
            return Fit(decode_date(literal))
        except ValueError as error:
            raise Misfit("a date such as '2024-01-31'") from error
    if isinstance(literal, datetime):
        moment = in_utc(literal)
        return Fit(moment.date(), exact=moment == datetime(moment.year, moment.month, moment.day, tzinfo=timezone.utc))
    if not isinstance(literal, date):
        raise Misfit("a date such as '2024-01-31'")
    return Fit(literal)


def _fit_timestamp(literal: SqlLiteral, kind: Any) -> Fit:
    zoned = in_utc(_moment(literal, has_zone=kind.tz is not None))
    moment = zoned.replace(tzinfo=None)
    if kind.unit == "ns" and not _NANOSECOND_RANGE[0] <= moment <= _NANOSECOND_RANGE[1]:
        return Fit(moment, exact=False, side=1 if moment > _NANOSECOND_RANGE[1] else -1)
    step = _MICROSECONDS[kind.unit]
    rest = moment.microsecond % step
    floor = (moment if kind.tz is None else zoned) - timedelta(microseconds=rest)
    return Fit(floor, exact=rest == 0)


def _moment(literal: SqlLiteral, *, has_zone: bool) -> datetime:
    if isinstance(literal, str):
        try:
            moment = decode_timestamp(literal)
        except ValueError as error:
            raise Misfit("a timestamp such as '2024-01-31 12:30:00'") from error
        if moment.tzinfo is not None and not has_zone:
            raise Misfit("a timestamp without an offset, as the column has no time zone")
        return moment
    if isinstance(literal, datetime):
        return literal
    if not isinstance(literal, date):
        raise Misfit("a timestamp such as '2024-01-31 12:30:00'")
    return datetime(literal.year, literal.month, literal.day)


_FITTINGS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[SqlLiteral, pa.DataType], Fit]], ...] = (
    (pa.types.is_integer, _fit_integer),
    (lambda kind: pa.types.is_float32(kind) or pa.types.is_float64(kind), _fit_float),
    (pa.types.is_decimal, _fit_decimal),
    (is_text, _fit_text),
    (is_binary, _fit_binary),
    (pa.types.is_boolean, _fit_boolean),
    (pa.types.is_date32, _fit_date),
    (pa.types.is_timestamp, _fit_timestamp),
)
