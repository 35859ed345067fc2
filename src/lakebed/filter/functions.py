"""Functions of one column that a filter may call: their result types, and how Arrow computes them.

Each gives the result of Spark's function of that name with the session zone UTC, with three limits. `upper` and `lower`
map one character to one (`ß` stays one letter). `cast` and `to_date` give null for text that does not parse, as Spark
does outside ANSI mode. `date_format` and `from_unixtime` support the fields yyyy MM dd HH mm ss.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.literals import is_binary, is_text

Arguments: TypeAlias = tuple[str | int, ...]

_ALIASES = {
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "dayofmonth": "day",
    "date": "to_date",
}
_TYPE_WORDS: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
_JAVA_FIELDS = {"MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_JAVA_TOKEN = re.compile(r"'(?P<quoted>[^']*)'|(?P<field>([A-Za-z])\3*)|(?P<plain>[^A-Za-z']+)")
_FORMAT_DEFAULT = "yyyy-MM-dd HH:mm:ss"
# The Gregorian calendar repeats after 400 years.
_CYCLE_YEARS = 400
_CYCLE_SECONDS = 146_097 * 86_400
_INTEGER_TEXT = r"\A\s*[+-]?\d{1,38}\s*\z"
_NUMBER_TEXT = r"\A\s*([+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(?i:inf|infinity)|(?i:nan))\s*\z"
_WHOLE_NUMBER = pa.decimal128(38, 0)
"""Type of whole numbers in text that may exceed 64 bits."""
_DATE_TEXT = r"\A\s*(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?:\s*|[ T](?s:.*))\z"


class BadCall(ValueError):  # noqa: N818 - never leaves the package, and is no error of ours
    """The function does not exist, or not for this column or these arguments; the text says what it takes."""


@dataclass(frozen=True, slots=True)
class _Function:
    takes: str
    accepts: Callable[[pa.DataType], bool]
    arguments: tuple[tuple[type, ...], ...]
    result: Callable[[pa.DataType, Arguments], pa.DataType]
    compute: Callable[[pc.Expression, pa.DataType, Arguments], pc.Expression]


def canonical_function(name: str) -> str:
    """The canonical name of a function or alias; BadCall if it is unknown."""
    lower = name.lower()
    known = _ALIASES.get(lower, lower)
    if known not in FUNCTIONS:
        raise BadCall(f"there is no function {name} for filters")
    return known


def result_type(function: str, kind: pa.DataType, arguments: Arguments) -> pa.DataType:
    """The type of a function's result over a column of type `kind`; BadCall if it does not take this input."""
    entry = FUNCTIONS[function]
    if not entry.accepts(kind):
        raise BadCall(f"{function} takes {entry.takes}, not {kind}")
    if tuple(map(type, arguments)) not in entry.arguments:
        raise BadCall(f"{function} does not take the arguments {arguments!r}")
    return entry.result(kind, arguments)


def compute(function: str, column: pc.Expression, kind: pa.DataType, arguments: Arguments) -> pc.Expression:
    """The function over a column of type `kind`, as an expression of type `result_type`."""
    return FUNCTIONS[function].compute(column, kind, arguments)


def _upper(column: pc.Expression, _kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.utf8_upper(column)


def _lower(column: pc.Expression, _kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.utf8_lower(column)


def _trim(column: pc.Expression, _kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.utf8_trim(column, characters=" ")  # Spark's trim leaves tabs and newlines.


def _length(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    count = pc.utf8_length(column) if is_text(kind) else pc.binary_length(column)
    return count.cast(pa.int32())


def _substring(column: pc.Expression, _kind: pa.DataType, arguments: Arguments) -> pc.Expression:
    position, *lengths = map(int, arguments)
    start = position - 1 if position > 0 else position  # From 1 on; negative: from the end; 0 is the same as 1.
    if not lengths:
        return pc.utf8_slice_codeunits(column, start=start)
    stop = start + lengths[0]
    if lengths[0] <= 0:
        return pc.utf8_slice_codeunits(column, start=0, stop=0)
    return pc.utf8_slice_codeunits(column, start=start, stop=None if start < 0 <= stop else stop)


def _abs(column: pc.Expression, _kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.abs(column)


def _year(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.year(_wall_time(column, kind)).cast(pa.int32())


def _month(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.month(_wall_time(column, kind)).cast(pa.int32())


def _day(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.day(_wall_time(column, kind)).cast(pa.int32())


def _hour(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    return pc.hour(_wall_time(column, kind)).cast(pa.int32())


def _date_format(column: pc.Expression, kind: pa.DataType, arguments: Arguments) -> pc.Expression:
    wall = _wall_time(column, kind)
    if pa.types.is_timestamp(kind):
        wall = pc.floor_temporal(wall, unit="second")
    return _format_seconds(wall.cast(pa.timestamp("s")).cast(pa.int64()), str(arguments[0]))


def _from_unixtime(column: pc.Expression, _kind: pa.DataType, arguments: Arguments) -> pc.Expression:
    return _format_seconds(column.cast(pa.int64()), str(arguments[0]) if arguments else _FORMAT_DEFAULT)


def _to_date(column: pc.Expression, kind: pa.DataType, _arguments: Arguments) -> pc.Expression:
    if not is_text(kind):
        return _wall_time(column, kind).cast(pa.date32(), safe=False)
    parts = pc.extract_regex(column.cast(pa.string()), pattern=_DATE_TEXT)
    year, month, day = (pc.struct_field(parts, [index]) for index in range(3))
    text = _joined(year, "-", pc.utf8_lpad(month, width=2, padding="0"), "-", pc.utf8_lpad(day, width=2, padding="0"))
    moment = pc.strptime(text, format="%Y-%m-%d", unit="s", error_is_null=True)
    # strptime turns February 30 into March 1: a date is valid only if it formats back to the same text.
    is_date = pc.strftime(moment, format="%Y-%m-%d") == text
    return _where(is_date, moment, pa.timestamp("s")).cast(pa.date32())


def _cast(column: pc.Expression, kind: pa.DataType, arguments: Arguments) -> pc.Expression:
    target = _TYPE_WORDS[str(arguments[0])]
    if pa.types.is_date(target):
        return _to_date(column, kind, ())
    if is_text(kind) and pa.types.is_integer(target):
        return _narrowed(_text_number(column, _INTEGER_TEXT).cast(_WHOLE_NUMBER), target, _WHOLE_NUMBER)
    if is_text(kind) and pa.types.is_floating(target):
        return _text_number(column, _NUMBER_TEXT).cast(target)
    if pa.types.is_integer(kind) and pa.types.is_integer(target):
        return _narrowed(column, target)
    return column.cast(target, safe=False)


def _cast_result(kind: pa.DataType, arguments: Arguments) -> pa.DataType:
    target = _TYPE_WORDS.get(str(arguments[0]))
    if target is None or not any(accepts(kind) and target in targets for accepts, targets in _CASTS):
        raise BadCall(f"cast from {kind} to {arguments[0]} is not supported in filters")
    return target


def _format_result(_kind: pa.DataType, arguments: Arguments) -> pa.DataType:
    for pattern in arguments:
        _java_tokens(str(pattern))
    return pa.string()


def _wall_time(column: pc.Expression, kind: Any) -> pc.Expression:
    """Dates unchanged, timestamps as wall-clock time in UTC."""
    return column.cast(pa.timestamp(kind.unit)) if pa.types.is_timestamp(kind) else column


def _narrowed(column: pc.Expression, target: pa.DataType, wide: pa.DataType | None = None) -> pc.Expression:
    wide = wide or pa.int64()
    most = (1 << target.bit_width - 1) - 1
    fits = (column >= pa.scalar(-most - 1, wide)) & (column <= pa.scalar(most, wide))
    return _where(fits, column.cast(wide), wide).cast(target)


def _text_number(column: pc.Expression, pattern: str) -> pc.Expression:
    number = pc.replace_substring_regex(column, pattern=r"\s+|\A\s*\+", replacement="")
    return _where(pc.match_substring_regex(column, pattern=pattern), number.cast(pa.string()), pa.string())


def _where(condition: pc.Expression, value: pc.Expression, kind: pa.DataType) -> pc.Expression:
    """The value where the condition holds, else null."""
    chosen: pc.Expression = pc.if_else(condition, value, pc.scalar(pa.scalar(None, kind)))
    return chosen


def _format_seconds(seconds: pc.Expression, pattern: str) -> pc.Expression:
    """Seconds since 1970 as text. Arrow's years end at 32767, so dates are computed within one 400-year cycle."""
    cycle = pc.divide(seconds, pa.scalar(_CYCLE_SECONDS))  # Rounds towards zero.
    rest = seconds - cycle * pa.scalar(_CYCLE_SECONDS)
    borrow = (rest < pa.scalar(0)).cast(pa.int64())
    moment = (rest + borrow * pa.scalar(_CYCLE_SECONDS)).cast(pa.timestamp("s"))
    year = pc.year(moment) + (cycle - borrow) * pa.scalar(_CYCLE_YEARS)
    pieces: list[pc.Expression | str] = []
    for token, is_field in _java_tokens(pattern):
        if not is_field:
            pieces.append(token)
        else:
            pieces.append(_year_text(year) if token == "yyyy" else pc.strftime(moment, format=_JAVA_FIELDS[token]))
    return _joined(*pieces)


def _year_text(year: pc.Expression) -> pc.Expression:
    sign = pc.if_else(year > pa.scalar(9999), "+", pc.if_else(year < pa.scalar(0), "-", ""))
    return _joined(sign, pc.utf8_lpad(pc.abs(year).cast(pa.string()), width=4, padding="0"))


def _joined(*pieces: pc.Expression | str) -> pc.Expression:
    scalars = [pc.scalar(piece) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*scalars, pc.scalar(""))


def _java_tokens(pattern: str) -> list[tuple[str, bool]]:
    """The parts of a Java date pattern, each with whether it is a field."""
    tokens: list[tuple[str, bool]] = []
    position = 0
    while position < len(pattern):
        found = _JAVA_TOKEN.match(pattern, position)
        if found is None or (found["field"] and found["field"] not in {"yyyy", *_JAVA_FIELDS}):
            raise BadCall(f"the date pattern {pattern!r} has more than the fields yyyy MM dd HH mm ss")
        if found["field"]:
            tokens.append((found["field"], True))
        else:
            tokens.append((found["plain"] or found["quoted"] or "'", False))  # Two quotes stand for one.
        position = found.end()
    return tokens


def _is_day(kind: pa.DataType) -> bool:
    return pa.types.is_date32(kind) or pa.types.is_timestamp(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _always(kind: pa.DataType) -> Callable[[pa.DataType, Arguments], pa.DataType]:
    return lambda _kind, _arguments: kind


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS = (pa.float32(), pa.float64())
_CASTS: tuple[tuple[Callable[[pa.DataType], bool], tuple[pa.DataType, ...]], ...] = (
    (pa.types.is_signed_integer, (*_INTEGERS, *_FLOATS, pa.string())),
    (is_text, (*_INTEGERS, *_FLOATS, pa.string(), pa.date32())),
    (pa.types.is_boolean, (pa.string(),)),
    (pa.types.is_floating, _FLOATS),
    (pa.types.is_decimal, _FLOATS),
    (pa.types.is_date32, (pa.string(), pa.date32(), pa.timestamp("us", "UTC"))),
    (pa.types.is_timestamp, (pa.date32(),)),
)

FUNCTIONS: dict[str, _Function] = {
    "upper": _Function("text", is_text, ((),), _always(pa.string()), _upper),
    "lower": _Function("text", is_text, ((),), _always(pa.string()), _lower),
    "trim": _Function("text", is_text, ((),), _always(pa.string()), _trim),
    "length": _Function(
        "text or bytes", lambda kind: is_text(kind) or is_binary(kind), ((),), _always(pa.int32()), _length
    ),
    "substring": _Function("text", is_text, ((int,), (int, int)), _always(pa.string()), _substring),
    "abs": _Function("numbers", _is_number, ((),), lambda kind, _arguments: kind, _abs),
    "year": _Function("dates and timestamps", _is_day, ((),), _always(pa.int32()), _year),
    "month": _Function("dates and timestamps", _is_day, ((),), _always(pa.int32()), _month),
    "day": _Function("dates and timestamps", _is_day, ((),), _always(pa.int32()), _day),
    "hour": _Function("timestamps", pa.types.is_timestamp, ((),), _always(pa.int32()), _hour),
    "date_format": _Function("dates and timestamps", _is_day, ((str,),), _format_result, _date_format),
    "from_unixtime": _Function("integers", pa.types.is_signed_integer, ((), (str,)), _format_result, _from_unixtime),
    "to_date": _Function(
        "dates, timestamps and text",
        lambda kind: _is_day(kind) or is_text(kind),
        ((),),
        _always(pa.date32()),
        _to_date,
    ),
    "cast": _Function("other columns", lambda _kind: True, ((str,),), _cast_result, _cast),
}
