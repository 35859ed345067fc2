"""Column statistics, one record at a time: Avro datum to `ColumnStats` and back, and the merge of two.

A bound is stored in a wrapper record of a union. Version V2 of the index has wrappers only for primitives, and
`valueType` gives their meaning: a date is an int of days, a decimal its unscaled bytes. V1 has a wrapper per type.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.format.metadata.datum import (
    NULL,
    RecordKind,
    datum_around,
    encode_boolean,
    encode_bytes,
    encode_double,
    encode_float,
    encode_optional_long,
    encode_optional_text,
    encode_text,
)
from lakebed.format.varint import encode_long
from lakebed.model.metadata import ColumnStats, StatValue, ValueType

V1_DECIMAL_SCALE = 15
"""Scale of every decimal in a V1 record, whatever the column's scale."""

_DECIMAL_BYTES_MAX, _DECIMAL_DIGITS_MAX = 32, 76
_EXACT = Context(prec=2 * _DECIMAL_DIGITS_MAX)
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND, _MILLISECOND, _DAY = timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(days=1)
_UNITS = {
    ValueType.TIME_MILLIS: _MILLISECOND,
    ValueType.TIME_MICROS: _MICROSECOND,
    ValueType.TIMESTAMP_MILLIS: _MILLISECOND,
    ValueType.TIMESTAMP_MICROS: _MICROSECOND,
    ValueType.LOCAL_TIMESTAMP_MILLIS: _MILLISECOND,
    ValueType.LOCAL_TIMESTAMP_MICROS: _MICROSECOND,
}
_TIMES = (ValueType.TIME_MILLIS, ValueType.TIME_MICROS)
_MOMENTS = (ValueType.TIMESTAMP_MILLIS, ValueType.TIMESTAMP_MICROS)

_STORED_AS: dict[ValueType, tuple[type, ...]] = {
    ValueType.NULL: (),
    ValueType.BOOLEAN: (bool,),
    ValueType.FLOAT: (float,),
    ValueType.DOUBLE: (float,),
    ValueType.STRING: (str,),
    ValueType.UUID: (str,),
    ValueType.BYTES: (bytes,),
    ValueType.FIXED: (bytes,),
    ValueType.DECIMAL: (bytes,),
}
"""Python types of stored values; those of other types are integers."""
_V1_TYPES = {
    "BooleanWrapper": ValueType.BOOLEAN,
    "IntWrapper": ValueType.INT,
    "LongWrapper": ValueType.LONG,
    "FloatWrapper": ValueType.FLOAT,
    "DoubleWrapper": ValueType.DOUBLE,
    "BytesWrapper": ValueType.BYTES,
    "StringWrapper": ValueType.STRING,
    "DateWrapper": ValueType.DATE,
    "LocalDateWrapper": ValueType.DATE,
    "DecimalWrapper": ValueType.DECIMAL,
    "TimeMicrosWrapper": ValueType.TIME_MICROS,
    "TimestampMicrosWrapper": ValueType.TIMESTAMP_MICROS,
}
_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING, _DATE, _DECIMAL, _TIME, _TIMESTAMP = range(1, 12)
"""Branches of the union of wrappers."""
_ENCODERS: dict[int, Callable[[Any], bytes]] = {
    _BOOLEAN: encode_boolean,
    _INT: encode_long,
    _LONG: encode_long,
    _FLOAT: encode_float,
    _DOUBLE: encode_double,
    _BYTES: encode_bytes,
    _STRING: encode_text,
    _DATE: encode_long,
    _DECIMAL: encode_bytes,
    _TIME: encode_long,
    _TIMESTAMP: encode_long,
}
_PRIMITIVE_BRANCHES = {
    ValueType.BOOLEAN: _BOOLEAN,
    ValueType.INT: _INT,
    ValueType.FLOAT: _FLOAT,
    ValueType.DOUBLE: _DOUBLE,
    ValueType.STRING: _STRING,
    ValueType.BYTES: _BYTES,
    ValueType.FIXED: _BYTES,
    ValueType.DECIMAL: _BYTES,
    ValueType.UUID: _STRING,
    ValueType.DATE: _INT,
    ValueType.TIME_MILLIS: _INT,
}
"""Wrappers of V2; other types are longs."""
_V1_BRANCHES = {
    ValueType.DATE: _DATE,
    ValueType.DECIMAL: _DECIMAL,
    ValueType.TIME_MICROS: _TIME,
    ValueType.TIMESTAMP_MICROS: _TIMESTAMP,
}
"""Where V1 differs from V2."""
_V1_STAND_INS = {ValueType.TIMESTAMP_MILLIS: ValueType.TIMESTAMP_MICROS, ValueType.TIME_MILLIS: ValueType.TIME_MICROS}
"""Types that V1 stores as others: it has only microseconds."""


def decode_column_stats_payload(payload: dict[str, Any]) -> ColumnStats:
    """The statistics of a decoded `ColumnStatsMetadata` field; fields that its writer did not know have defaults.

    Inconsistent values raise ValueError or LookupError.
    """
    wrapped = payload["minValue"], payload["maxValue"]
    value_type, info = _declared_type(payload.get("valueType"), wrapped)
    scale = _scale(info) if value_type is ValueType.DECIMAL else 0
    low, high = (_unwrap(pair, value_type, scale) for pair in wrapped)
    return ColumnStats(
        file_name=payload["fileName"] or "",
        column=payload["columnName"] or "",
        min_value=low,
        max_value=high,
        value_count=payload["valueCount"],
        null_count=payload["nullCount"],
        total_size=payload["totalSize"],
        total_uncompressed_size=payload["totalUncompressedSize"],
        is_deleted=payload["isDeleted"],
        is_tight_bound=payload.get("isTightBound", False),
        value_type=value_type,
        additional_info=info,
    )


def _declared_type(declared: Any, wrapped: tuple[Any, Any]) -> tuple[ValueType, str | None]:
    if declared is not None and declared["typeOrdinal"] != ValueType.V1:
        return ValueType(declared["typeOrdinal"]), declared["additionalInfo"]
    for pair in wrapped:
        if pair is not None:
            return _V1_TYPES.get(_wrapper(pair), ValueType.NULL), None
    return ValueType.NULL, None


def _wrapper(pair: tuple[str, Any]) -> str:
    return pair[0].rpartition(".")[2]


def _scale(info: str | None) -> int:
    if info is None:
        return V1_DECIMAL_SCALE
    precision, _, scale = info.partition(",")
    if not 0 <= int(scale) <= int(precision) <= _DECIMAL_DIGITS_MAX:
        raise ValueError(f"no precision and scale of a decimal: {info[:80]!r}")
    return int(scale)


def _unwrap(pair: tuple[str, Any] | None, value_type: ValueType, scale: int) -> StatValue | None:
    if pair is None or _wrapper(pair) not in _V1_TYPES:
        return None  # Arrays have a wrapper, which no release writes.
    stored = pair[1]["value"]
    if not isinstance(stored, _STORED_AS.get(value_type, int)):
        raise ValueError(f"a bound of type {value_type.name} in a {_wrapper(pair)}")
    if isinstance(stored, bytes) and value_type is ValueType.DECIMAL:
        if len(stored) > _DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal of {len(stored)} bytes")
        return Decimal(f"{int.from_bytes(stored, 'big', signed=True)}E-{scale}")
    if isinstance(stored, int) and (value_type is ValueType.DATE or value_type in _UNITS):
        return _natural_time(stored, value_type)
    value: StatValue = pair[1]["value"]
    return value


def _natural_time(stored: int, value_type: ValueType) -> StatValue:
    try:
        if value_type is ValueType.DATE:
            return _EPOCH_DAY + stored * _DAY
        moment = _EPOCH + stored * _UNITS[value_type]
    except OverflowError:
        return stored
    if value_type in _TIMES:
        return moment.time() if moment.date() == _EPOCH_DAY else stored
    return moment.replace(tzinfo=timezone.utc) if value_type in _MOMENTS else moment


def encode_column_stats_record(stats: ColumnStats, *, version: str, partition_stats: bool = False) -> bytes:
    """The datum of a column's statistics in a file, or over a partition; `version` is that of the index."""
    form = _form_of(stats.value_type, stats.additional_info, version)
    low, high = stats.min_value, stats.max_value
    return b"".join(
        (
            _PARTITION_HEAD if partition_stats else _FILE_HEAD,
            _encode_name(stats.file_name),
            _encode_name(stats.column),
            NULL if low is None else form.encode_bound(low),
            NULL if high is None else form.encode_bound(high),
            encode_optional_long(stats.value_count),
            encode_optional_long(stats.null_count),
            encode_optional_long(stats.total_size),
            encode_optional_long(stats.total_uncompressed_size),
            encode_boolean(stats.is_deleted),
            encode_boolean(stats.is_tight_bound),
            form.value_type,
            _END,
        )
    )


_FILE_HEAD, _END = datum_around(RecordKind.COLUMN_STATS)
_PARTITION_HEAD, _ = datum_around(RecordKind.PARTITION_STATS)


@lru_cache(maxsize=4096)
def _encode_name(name: str) -> bytes:
    """The name of a file or a column. Cached: a file has many columns, and columns are in many files."""
    return encode_optional_text(name)


@dataclass(frozen=True, slots=True)
class _Form:
    """How statistics of one type are stored: their bounds, and the type in the record."""

    encode_bound: Callable[[StatValue], bytes]
    value_type: bytes


@lru_cache(maxsize=256)
def _form_of(value_type: ValueType, info: str | None, version: str) -> _Form:
    if version != "V1":
        branch = _PRIMITIVE_BRANCHES.get(value_type, _LONG)
        named = encode_optional_long(value_type) + encode_optional_text(info)
        return _Form(_bound_encoder(branch, value_type, info), named)
    stand_in = _V1_STAND_INS.get(value_type, value_type)
    branch = _V1_BRANCHES.get(stand_in, _PRIMITIVE_BRANCHES.get(value_type, _LONG))
    return _Form(_bound_encoder(branch, stand_in, None), NULL)


def _bound_encoder(branch: int, value_type: ValueType, info: str | None) -> Callable[[StatValue], bytes]:
    """A function that encodes a bound: the branch of the union of wrappers, and its value."""
    head, encode = encode_long(branch), _ENCODERS[branch]

    def encode_decimal(value: StatValue) -> bytes:
        return head + encode(_unscaled_bytes(value, _scale(info)))

    def encode_number(value: StatValue) -> bytes:
        return head + encode(_stored(value, value_type))

    def encode_plain(value: StatValue) -> bytes:
        return head + encode(value)

    if value_type is ValueType.DECIMAL:
        return encode_decimal
    return encode_plain if _STORED_AS.get(value_type) else encode_number


def _stored(value: StatValue, value_type: ValueType) -> StatValue:
    """Inverse of `_natural_time`; other values are stored as they are."""
    if isinstance(value, datetime):
        moment = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        return (moment - _EPOCH) // _UNITS[value_type]
    if isinstance(value, time):
        return (datetime.combine(_EPOCH_DAY, value) - _EPOCH) // _UNITS[value_type]
    return (value - _EPOCH_DAY).days if isinstance(value, date) else value


def _unscaled_bytes(value: Any, scale: int) -> bytes:
    """The shortest big-endian two's complement of a decimal's unscaled value at that scale."""
    unscaled = Decimal(value).scaleb(scale, _EXACT)
    if unscaled != unscaled.to_integral_value():
        raise InvalidInputError(f"{value} has more than {scale} decimal places", hint="leave the bound out")
    number = int(unscaled)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def merge_column_stats(older: ColumnStats, newer: ColumnStats) -> ColumnStats:
    """Merges two records of a partition's statistics: a tight bound or a deletion replaces the older, others widen."""
    if newer.is_deleted or older.is_deleted or newer.is_tight_bound:
        return newer
    return widen_column_stats(older, newer, file_name=newer.file_name)


def widen_column_stats(
    older: ColumnStats, newer: ColumnStats, *, file_name: str, is_tight_bound: bool = False
) -> ColumnStats:
    """The union of two statistics, whether bounds are tight or not."""
    typed = newer if newer.value_type is not ValueType.NULL else older
    return ColumnStats(
        file_name,
        newer.column,
        _outer(operator.lt, older.min_value, newer.min_value),
        _outer(operator.gt, older.max_value, newer.max_value),
        _sum(older.value_count, newer.value_count),
        _sum(older.null_count, newer.null_count),
        _sum(older.total_size, newer.total_size),
        _sum(older.total_uncompressed_size, newer.total_uncompressed_size),
        is_tight_bound=is_tight_bound,
        value_type=typed.value_type,
        additional_info=typed.additional_info,
    )


def _outer(lies_beyond: Callable[[Any, Any], bool], older: StatValue | None, newer: StatValue | None) -> Any:
    """The outer one of two bounds; NaN is above all others."""
    if older is None or newer is None:
        return newer if older is None else older
    try:
        if older != older or newer != newer:  # Only NaN differs from itself.
            return newer if lies_beyond((newer != newer, newer), (older != older, older)) else older
        return newer if lies_beyond(newer, older) else older
    except TypeError as error:
        raise InvalidInputError(
            f"bounds {older!r} and {newer!r} are of different types", hint="rebuild the statistics partition"
        ) from error


def _sum(older: int | None, newer: int | None) -> int | None:
    return None if older is None or newer is None else older + newer


@lru_cache(maxsize=256)
def value_type_of(kind: pa.DataType) -> tuple[ValueType, str | None] | None:
    """The value type and additional info of a column in V2 statistics; None for a type without statistics."""
    if pat.is_dictionary(kind):
        return value_type_of(kind.value_type)
    if pat.is_decimal(kind):
        return ValueType.DECIMAL, f"{kind.precision},{kind.scale}"
    if pat.is_timestamp(kind):
        name = f"{'' if kind.tz else 'LOCAL_'}TIMESTAMP_{_TIMESTAMP_UNITS[kind.unit]}"
        return ValueType[name], None
    for value_type, *accepts in _TYPES:
        if any(accept(kind) for accept in accepts):
            return value_type, None
    return None


_TIMESTAMP_UNITS = {"s": "MILLIS", "ms": "MILLIS", "us": "MICROS", "ns": "NANOS"}
_TYPES: tuple[tuple[Any, ...], ...] = (
    (ValueType.BOOLEAN, pat.is_boolean),
    (ValueType.INT, pat.is_int8, pat.is_int16, pat.is_int32, pat.is_uint8, pat.is_uint16),
    (ValueType.LONG, pat.is_int64, pat.is_uint32),
    (ValueType.FLOAT, pat.is_float32),
    (ValueType.DOUBLE, pat.is_float64),
    (ValueType.STRING, pat.is_string, pat.is_large_string, pat.is_string_view),
    (ValueType.BYTES, pat.is_binary, pat.is_large_binary, pat.is_binary_view),
    (ValueType.FIXED, pat.is_fixed_size_binary),
    (ValueType.DATE, pat.is_date),
    (ValueType.TIME_MILLIS, pat.is_time32),
    (ValueType.TIME_MICROS, pat.is_time64),
)
