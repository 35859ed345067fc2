"""Keys of secondary index records, a column at a time. `secondary_keys` has the same for one key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.java_text import has_one_spelling, java_float_text
from lakebed.format.metadata.secondary_keys import NULL_VALUE, SEPARATOR

_SPECIAL = {"V1": r"([\\$])", "V2": r"([\\$\x00])"}
_KEY = r"(?s)^(?P<value>(?:[^\\$]|\\.)*)\$(?P<record_key>(?:[^\\]|\\.)*)$"


def secondary_keys(values: ArrowArray, record_keys: ArrowArray, *, version: str = "V2") -> ArrowArray:
    """`secondary_key` of each pair: values are text as `secondary_value_texts` gives it."""
    special = _SPECIAL[version]
    escaped = pc.fill_null(pc.replace_substring_regex(values, special, r"\\\1"), NULL_VALUE)
    return pc.binary_join_element_wise(escaped, pc.replace_substring_regex(record_keys, special, r"\\\1"), SEPARATOR)


def split_secondary_keys(stored: ArrowArray, *, path: str) -> tuple[ArrowArray, ArrowArray]:
    """`split_secondary_key` of each key: the values and the record keys. Takes UTF-8 text, also as binary."""
    with decoding(path, "a secondary index key"):
        parts = pc.extract_regex(pc.cast(stored, pa.string()), _KEY)
        if parts.null_count > stored.null_count:
            raise CorruptTableError("a secondary index key has no separator, or ends within an escape", path=path)
        value, record_key = pc.struct_field(parts, [0]), pc.struct_field(parts, [1])
        is_null = pc.equal(value, NULL_VALUE)
        return pc.if_else(is_null, pa.scalar(None, pa.string()), _unescape(value)), _unescape(record_key)


def _unescape(texts: ArrowArray) -> ArrowArray:
    return pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")


def secondary_value_texts(values: ArrowArray) -> ArrowArray:
    """`secondary_value_text` of each value of a column."""
    if pat.is_dictionary(values.type):
        return pc.take(secondary_value_texts(values.dictionary), values.indices)
    for accepts, text in _TEXTS:
        if accepts(values.type):
            return text(values)
    raise InvalidInputError(
        f"values of type {values.type} cannot be stored in a secondary index",
        hint="index a column of text, integers, doubles, dates or timestamps",
    )


def value_text(value: Any) -> str | None:
    """`secondary_keys.secondary_value_text` of a value that is not text."""
    text: str | None = secondary_value_texts(_one_element(value))[0].as_py()
    return text


def has_certain_text(value: Any) -> bool:
    """`secondary_keys.has_certain_text` of any value."""
    element = _one_element(value)[0]
    if not pat.is_floating(element.type) or not element.is_valid:
        return True
    return has_one_spelling(element.as_py(), is_double=pat.is_float64(element.type))


def _one_element(value: Any) -> ArrowArray:
    if isinstance(value, pa.Scalar):
        return pa.array([value], value.type)
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(timezone.utc)  # Arrow would keep the zone's name; only the moment counts.
    try:
        return pa.array([value])
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{value!r} is not a column value", hint="give a value of the indexed column's type"
        ) from error


def _cast_text(values: ArrowArray) -> ArrowArray:
    return pc.cast(values, pa.string())


def _days(values: ArrowArray) -> ArrowArray:
    return _cast_text(pc.cast(pc.cast(values, pa.date32()), pa.int32()))


def _micros(values: ArrowArray) -> ArrowArray:
    # A zone or none: the number is the same. Nanoseconds beyond the microsecond are cut off, as Spark does.
    unit = pa.timestamp("us", values.type.tz)
    return _cast_text(pc.cast(pc.cast(values, unit, safe=False), pa.int64()))


def _time_of_day(values: ArrowArray) -> ArrowArray:
    return _cast_text(pc.cast(values, pa.int32() if pat.is_time32(values.type) else pa.int64()))


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[ArrowArray], ArrowArray]], ...] = (
    (pat.is_string, lambda values: values),
    (lambda kind: pat.is_large_string(kind) or pat.is_string_view(kind), _cast_text),
    (lambda kind: pat.is_integer(kind) or pat.is_boolean(kind) or pat.is_null(kind), _cast_text),
    (lambda kind: pat.is_float64(kind) or pat.is_float32(kind), java_float_text),
    (pat.is_decimal, _cast_text),
    (pat.is_date, _days),
    (pat.is_timestamp, _micros),
    (pat.is_time, _time_of_day),
)
