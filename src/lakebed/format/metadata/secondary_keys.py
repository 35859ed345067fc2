"""Keys of secondary index records: escaped value, `$`, escaped record key.

`\\`, `$` and NUL are escaped with a backslash; a null value is one unescaped NUL. The value is text: numbers are
written as Java does, dates as days and timestamps as microseconds since 1970. Functions are for one key or a column.

Version V1 of the index (tables of version 8 that Hudi 1.0 wrote) does not escape NUL and has no entry for null values.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.java import has_one_spelling, java_float_text

SEPARATOR = "$"
NULL_VALUE = "\0"
"""The text of a null value; a value of that one character is escaped."""

_ESCAPES = {version: {ord(c): f"\\{c}" for c in special} for version, special in (("V1", "\\$"), ("V2", "\\$\0"))}


def escape_secondary(text: str, *, version: str = "V2") -> str:
    """`text` with special characters escaped."""
    return text.translate(_ESCAPES[version])


def secondary_prefix(value: str | None, *, version: str = "V2") -> str:
    """The prefix that the keys of a value share, and no other keys have."""
    return (NULL_VALUE if value is None else escape_secondary(value, version=version)) + SEPARATOR


def secondary_key(value: str | None, record_key: str, *, version: str = "V2") -> str:
    """The key of the entry for a record with this value."""
    return secondary_prefix(value, version=version) + escape_secondary(record_key, version=version)


def split_secondary_key(stored: str, *, path: str) -> tuple[str | None, str]:
    """Value and record key of an entry."""
    end = _separator_at(stored, path)
    value, record_key = stored[:end], stored[end + 1 :]
    return None if value == NULL_VALUE else _unescape(value, path), _unescape(record_key, path)


def secondary_hash_part(stored: str, version: str, *, path: str = "<key>") -> str:
    """The part of a stored key that is hashed to a shard: in V2 all keys of a value share it."""
    return stored if version == "V1" else stored[: _separator_at(stored, path) + 1]


def _separator_at(stored: str, path: str) -> int:
    at = 0
    while at < len(stored) and stored[at] != SEPARATOR:
        at += 2 if stored[at] == "\\" else 1
    if at >= len(stored):
        raise CorruptTableError(f"a secondary index key has no separator: {stored[:200]!r}", path=path)
    return at


def _unescape(text: str, path: str) -> str:
    pieces, at = [], 0
    while (escape := text.find("\\", at)) >= 0:
        if escape + 1 == len(text):
            raise CorruptTableError(f"a secondary index key ends within an escape: {text[:200]!r}", path=path)
        pieces += [text[at:escape], text[escape + 1]]
        at = escape + 2
    return "".join([*pieces, text[at:]])


def has_certain_text(value: Any) -> bool:
    """Whether every writer stores the same text for a value as `secondary_value_text`.

    Older Javas wrote other text for some floats and doubles; for these, a miss in the index proves nothing.
    """
    if value is None or isinstance(value, (str, int)):
        return True
    element = _one_element(value)[0]
    if not pat.is_floating(element.type) or not element.is_valid:
        return True
    return has_one_spelling(element.as_py(), is_double=pat.is_float64(element.type))


def secondary_value_text(value: Any) -> str | None:
    """The text of a Python or Arrow value in a secondary index; a type without text raises InvalidInputError.

    A Python int stands for any integer column and a float for a double; pass an Arrow scalar for another type.
    """
    if isinstance(value, str) or value is None:
        return value
    text: str | None = secondary_value_texts(_one_element(value))[0].as_py()
    return text


_SPECIAL = {"V1": r"([\\$])", "V2": r"([\\$\x00])"}
_KEY = r"(?s)^(?P<value>(?:[^\\$]|\\.)*)\$(?P<record_key>(?:[^\\]|\\.)*)$"


def secondary_keys(values: ArrowArray, record_keys: ArrowArray, *, version: str = "V2") -> ArrowArray:
    """`secondary_key` of each pair; `values` is text from `secondary_value_texts`."""
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
        return pc.if_else(is_null, pa.scalar(None, pa.string()), _unescape_all(value)), _unescape_all(record_key)


def _unescape_all(texts: ArrowArray) -> ArrowArray:
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


def _one_element(value: Any) -> ArrowArray:
    if isinstance(value, pa.Scalar):
        return pa.array([value], value.type)
    if isinstance(value, datetime) and value.tzinfo:
        value = value.astimezone(timezone.utc)  # Arrow would keep the zone's name; only the instant matters.
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
    # The number does not depend on the zone. Nanoseconds are truncated to microseconds, as in Spark.
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
