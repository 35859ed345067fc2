"""Partition paths of the timestamp-based key generator: a time, formatted by a pattern in a time zone.

The rules are Apache Hudi's, even odd ones: null means one unit after 1970, fractions are truncated, and a date means
its number of days. Where Apache Hudi would use the local zone of the writing machine, which differs between machines,
the write is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.model.config import TableConfig
from lakebed.write.rows.time_patterns import (
    TimePattern,
    parse_input_pattern,
    parse_output_pattern,
    read_times,
    spell_time,
    spell_times,
)

_PREFIXES = ("hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased.")
_TYPES = {"UNIX_TIMESTAMP": "SECONDS", "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS"}
_UNITS_US = {
    "MICROSECONDS": 1,
    "MILLISECONDS": 1000,
    "SECONDS": 1_000_000,
    "MINUTES": 60_000_000,
    "HOURS": 3_600_000_000,
    "DAYS": 86_400_000_000,
}
_FIXED_ZONE = re.compile(r"GMT(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")
_MS_MIN, _MS_MAX = -62135596800000, 253402300799999  # The years 1 to 9999.


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """How times are parsed (numbers of `unit_us`, or texts by the patterns `inputs`) and formatted."""

    unit_us: int | None
    inputs: tuple[TimePattern, ...]
    output: TimePattern
    input_zone: str | None
    output_zone: str | None


def parse_time_format(config: TableConfig) -> TimeFormat:
    """The time format in the table's configuration; raises UnsupportedTableError if not supported."""
    kind = _setting(config, "timestamp.type").upper()
    unit = _TYPES.get(kind)
    if kind == "SCALAR":
        unit = _setting(config, "timestamp.scalar.time.unit", "SECONDS").upper()
    if (unit is not None and unit not in _UNITS_US) or (unit is None and kind not in ("DATE_STRING", "MIXED")):
        raise _unsupported(config, f"time values of type {kind or 'unknown'} {unit or ''}".rstrip())
    output = parse_output_pattern(_setting(config, "output.dateformat"), path=config.path)
    both = _setting(config, "timezone")
    how = TimeFormat(
        unit_us=None if unit is None else _UNITS_US[unit],
        inputs=() if unit is not None else _input_patterns(config),
        output=output,
        input_zone=_zone(config, both or _setting(config, "input.timezone")),
        output_zone=_zone(config, both or _setting(config, "output.timezone")),
    )
    if not _states_zones(how):
        raise UnsupportedTableError(
            f"{config.path}: times in partition paths are in the local zone of the writing machine",
            hint="set hoodie.keygen.timebased.timezone in the table's properties to the zone that its writers have",
        )
    return how


def time_texts(values: pa.Array, how: TimeFormat, column: str, *, first_row: int = 0) -> pa.Array:
    """Formats each value, as a dictionary without nulls."""
    if how.unit_us is not None:
        times = _local(_instants(values, how.unit_us, column), how.output_zone or "UTC")
    else:
        times = _parsed(values, how, column, first_row)
    unit = how.output.unit_ms
    units = pc.cast(times, pa.int64()).to_numpy(zero_copy_only=False) // unit * unit
    encoded = pa.array(units).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        encoded.indices, spell_times(pc.cast(encoded.dictionary, pa.timestamp("ms")), how.output)
    )


def _instants(values: pa.Array, unit_us: int, column: str) -> pa.Array:
    """Converts numbers of a unit to milliseconds since 1970."""
    kind = values.type
    if pat.is_timestamp(kind) and unit_us != 1:
        raise InvalidInputError(
            f"the partition column {column!r} is of type {kind}, and the table counts in other units",
            hint="create the table with hoodie.keygen.timebased.timestamp.type=EPOCHMICROSECONDS",
        )
    if pat.is_timestamp(kind):
        values = pc.cast(values, pa.timestamp("us", kind.tz))
    elif pat.is_date(kind):
        values = pc.cast(pc.cast(values, pa.date32()), pa.int32())
    elif not (pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind)):
        raise InvalidInputError(f"the partition column {column!r} is of type {kind}", hint="give it numbers or times")
    numbers = pc.cast(pc.fill_null(pc.cast(values, pa.int64(), safe=False), 1), pa.int64())
    if unit_us < 1000:
        return _checked(pc.divide(numbers, 1000), column)  # Towards zero.
    return _checked(_multiplied(numbers, unit_us // 1000, column), column)


def _multiplied(numbers: pa.Array, factor: int, column: str) -> pa.Array:
    try:
        return pc.multiply_checked(numbers, factor)
    except pa.ArrowInvalid as error:
        raise _out_of_range(column) from error


def _checked(millis: pa.Array, column: str) -> pa.Array:
    bounds = pc.min_max(millis)
    if bounds["min"].is_valid and not _MS_MIN <= bounds["min"].as_py() <= bounds["max"].as_py() <= _MS_MAX:
        raise _out_of_range(column)
    return pc.cast(millis, pa.timestamp("ms"))


def _local(instants: pa.Array, zone: str) -> pa.Array:
    """Instants as local times of a zone."""
    if zone == "UTC":
        return instants
    return pc.local_timestamp(pc.cast(pc.assume_timezone(instants, "UTC"), pa.timestamp("ms", zone)))


def _states_zones(how: TimeFormat) -> bool:
    """Whether the result is independent of the machine's zone."""
    if how.unit_us is not None:
        return how.output_zone is not None
    return how.output_zone is None or how.input_zone is not None or _has_offsets(how)


def _has_offsets(how: TimeFormat) -> bool:
    return any("Z" in pattern.letters for pattern in how.inputs)


def _parsed(values: pa.Array, how: TimeFormat, column: str, first_row: int) -> pa.Array:
    """Parses texts into local times of the output zone."""
    if not pat.is_string(values.type):
        raise InvalidInputError(f"the partition column {column!r} is of type {values.type}", hint="give it text")
    encoded = pc.fill_null(values, _when_null(how)).dictionary_encode()
    codes, texts = encoded.indices, encoded.dictionary
    times, offsets = read_times(texts, how.inputs[0])
    for pattern in how.inputs[1:]:
        more_times, more_offsets = read_times(texts, pattern)
        offsets = pc.if_else(pc.is_valid(times), offsets, more_offsets)
        times = pc.coalesce(times, more_times)
    unread = pc.is_null(times).take(codes)
    if pc.any(unread).as_py():
        place = pc.index(unread, True).as_py()
        raise InvalidInputError(
            f"row {first_row + place}: column {column!r} is {values[place].as_py()!r}, not a time in the pattern "
            f"{' or '.join(pattern.text for pattern in how.inputs)}",
            hint="give times in the table's pattern",
        )
    return _moved(times, offsets, how, column).take(codes)


def _moved(times: pa.Array, offsets: pa.Array, how: TimeFormat, column: str) -> pa.Array:
    """Converts local times from the input zone, or their own offsets, to the output zone."""
    target = how.output_zone or how.input_zone
    if target is None:
        return times
    if _has_offsets(how):
        millis = pc.subtract(pc.cast(times, pa.int64()), pc.multiply(offsets, 60_000))
        return _local(pc.cast(millis, pa.timestamp("ms")), target)
    if target == how.input_zone:
        return times
    try:
        instants = pc.assume_timezone(times, how.input_zone, ambiguous="earliest")
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"column {column!r} has a time that {how.input_zone} skips: {error}", hint="give a time that exists"
        ) from error
    return pc.local_timestamp(pc.cast(instants, pa.timestamp("ms", target)))


def _when_null(how: TimeFormat) -> str:
    """The text that stands for null: one millisecond after 1970, in the first input pattern."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=1)
    return spell_time(moment.astimezone(_tzinfo(how.input_zone or how.output_zone or "UTC")), how.inputs[0])


def _tzinfo(zone: str) -> timezone | ZoneInfo:
    if zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[4:6])
        return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))
    return timezone.utc if zone == "UTC" else ZoneInfo(zone)


def _input_patterns(config: TableConfig) -> tuple[TimePattern, ...]:
    delimiter = _setting(config, "input.dateformat.list.delimiter.regex", ",")
    patterns = [text.strip() for text in re.split(delimiter, _setting(config, "input.dateformat")) if text.strip()]
    if not patterns:
        raise _unsupported(config, "time values without a pattern to read them")
    parsed = tuple(parse_input_pattern(text, path=config.path) for text in patterns)
    if len({"Z" in pattern.letters for pattern in parsed}) > 1:
        raise _unsupported(config, "time patterns with and without a zone")
    return parsed


def _zone(config: TableConfig, name: str) -> str | None:
    """The zone's name in Arrow; names that only Java knows are refused, because their meaning has changed."""
    if not name:
        return None
    if name in ("UTC", "GMT", "Z", "Etc/UTC", "Etc/GMT"):
        return "UTC"
    fixed = _FIXED_ZONE.fullmatch(name)
    if fixed:
        return f"{fixed['sign']}{int(fixed['hours']):02d}:{fixed['minutes'] or '00'}"
    try:
        if "/" in name:
            return ZoneInfo(name).key
    except (KeyError, ValueError, OSError):
        pass
    raise _unsupported(config, f"the time zone {name!r}")


def _setting(config: TableConfig, name: str, default: str = "") -> str:
    return next((value for p in _PREFIXES if (value := config.properties.get(p + name, "").strip())), default)


def _unsupported(config: TableConfig, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"{config.path}: the partition paths depend on {what}, which is not supported",
        hint="write to this table with Apache Hudi, or set the hoodie.keygen.timebased.* properties to what it uses",
    )


def _out_of_range(column: str) -> InvalidInputError:
    return InvalidInputError(
        f"the partition column {column!r} has a time outside the years 1 to 9999",
        hint="see whether its values are in the unit that hoodie.keygen.timebased.timestamp.type states",
    )
