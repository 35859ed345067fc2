"""Records of the metadata table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import IntEnum
from typing import TypeAlias

StatValue: TypeAlias = bool | int | float | str | bytes | Decimal | date | time | datetime


class ValueType(IntEnum):
    """The type of a column in column statistics, by ordinal; V1 if a record names none."""

    V1 = 0
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file (or, in the list of partitions, a partition) that a commit added or a service removed."""

    size: int
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Min/max/null statistics of one column in one file, or in one partition (`file_name` is then the partition).

    `value_count` counts rows, nulls included. Bounds are None if unknown or if there is no value. They have the
    column's natural Python type; a date or timestamp outside Python's range is the stored number.
    """

    file_name: str
    column: str
    min_value: StatValue | None
    max_value: StatValue | None
    value_count: int | None
    null_count: int | None
    total_size: int | None = 0
    total_uncompressed_size: int | None = 0
    is_deleted: bool = False
    is_tight_bound: bool = False
    value_type: ValueType = ValueType.NULL
    additional_info: str | None = None
    """Precision and scale of a decimal, as `10,2`; None for other types."""


@dataclass(frozen=True, slots=True)
class BloomRecord:
    """The Bloom filter of a base file: `bloom` is the base64 text in its Parquet footer."""

    type_code: str
    timestamp: str
    bloom: bytes
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class SecondaryRecord:
    """An entry of a secondary index; its key contains all information."""

    is_deleted: bool = False
