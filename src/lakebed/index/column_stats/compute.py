"""Computes the column statistics of one data file.

Bounds are those that Apache Hudi takes from Parquet footers: text is ordered by its UTF-8 bytes, as readers compare it.
There are two differences. A column of nulls has no bounds (Hudi: zeros). NaN is above every other number, as it is to
readers (Hudi: zeros, so that its readers lose rows).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.format.arrow import identity
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.metadata.column_stats import value_type_of
from lakebed.format.parquet_encode import Spread
from lakebed.kernels.ordering import find_bounds
from lakebed.model.metadata import ColumnStats, StatValue

_Bounds = tuple[StatValue | None, StatValue | None]
_EPOCH = datetime(1970, 1, 1)
_TICKS = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1)}


def column_stats(
    table: pa.Table, file_name: str, columns: Sequence[str], footer: Any = None
) -> tuple[ColumnStats, ...]:
    """Statistics of `columns` in a file with the rows of `table`.

    Nested columns, and columns that the rows lack, are left out. A base file without rows has empty statistics, as a
    log file of deletes does: without them its partition could have none. `footer` is the Parquet metadata of a base
    file; log files have none, and sizes of 0 bytes.
    """
    given = [name for name in columns if name in table.schema.names]
    chunks = _chunks(footer, given)
    known = given if footer is None else [name for name in given if name in chunks]
    bounds: dict[Hashable, _Bounds] = {}
    found = (_stats(table[name], file_name, name, chunks.get(name, []), bounds) for name in known)
    return tuple(stats for stats in found if stats is not None)


def spread_stats(
    spreads: Mapping[str, Spread], file_name: str, columns: Sequence[str], rows: int
) -> tuple[ColumnStats, ...]:
    """Statistics of `columns` in a log file of so many rows, from the spread of values that its encoder found."""
    found = (_spread_stats(spreads[name], file_name, name, rows) for name in columns if name in spreads)
    return tuple(stats for stats in found if stats is not None)


def _spread_stats(spread: Spread, file_name: str, name: str, rows: int) -> ColumnStats | None:
    declared = value_type_of(spread.kind)
    if declared is None:
        return None
    low, high = (None if bound is None else _natural(bound) for bound in (spread.low, spread.high))
    return ColumnStats(
        file_name, name, low, high, rows, spread.nulls, value_type=declared[0], additional_info=declared[1]
    )


def _stats(
    column: pa.ChunkedArray, file_name: str, name: str, chunks: list[Any], known: dict[Hashable, _Bounds]
) -> ColumnStats | None:
    """The statistics of a column. `known` caches bounds by array: the record key often is a data column too."""
    declared = value_type_of(column.type)
    if declared is None:
        return None
    low, high = _footer_bounds(column.type, chunks) or _known_bounds(column, known)
    return ColumnStats(
        file_name,
        name,
        low,
        high,
        len(column),
        column.null_count,
        value_type=declared[0],
        additional_info=declared[1],
        total_size=sum(chunk.total_compressed_size for chunk in chunks),
        total_uncompressed_size=sum(chunk.total_uncompressed_size for chunk in chunks),
    )


def _known_bounds(column: pa.ChunkedArray, known: dict[Hashable, _Bounds]) -> _Bounds:
    place = identity(column)
    if place not in known:
        known[place] = _bounds(column)
    return known[place]


def _chunks(footer: Any, columns: Sequence[str]) -> dict[str, list[Any]]:
    """The column chunks of a Parquet file, for flat columns.

    Only for columns that were read or written: for others, Arrow may crash the process if their bytes are bad.
    """
    found: dict[str, list[Any]] = {}
    for index in range(footer.num_columns if footer is not None else 0):
        path = footer.schema.column(index).path
        if path in columns:
            found[path] = [footer.row_group(group).column(index) for group in range(footer.num_row_groups)]
    return found


def _footer_bounds(kind: pa.DataType, chunks: list[Any]) -> tuple[StatValue, StatValue] | None:
    """Bounds of text from the Parquet footer: they are exact, and computing them again is slow.

    Not used for numbers: the Parquet writer ignores NaN.
    """
    if pat.is_dictionary(kind):
        kind = kind.value_type
    if not chunks or not pat.is_string(kind):
        return None
    known = [chunk.statistics for chunk in chunks]
    if not all(stats is not None and stats.has_min_max for stats in known):
        return None
    return min((s.min for s in known), key=_bytes), max((s.max for s in known), key=_bytes)


def _bytes(text: str) -> bytes:
    return text.encode()


def _bounds(column: pa.ChunkedArray) -> _Bounds:
    if pat.is_dictionary(column.type):
        column = _used_values(column)
    elif pat.is_string(column.type) and not column.null_count and len(column):
        return _text_bounds(column)
    ends = pc.min_max(column)
    low, high = ends["min"], ends["max"]
    if pat.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        return _natural(low), float("nan")
    return _natural(low), _natural(high)


def _text_bounds(column: pa.ChunkedArray) -> _Bounds:
    """Like `_bounds`, for text without nulls."""
    ends = []
    for chunk in column.chunks:
        if len(chunk):
            ends += [chunk[at].as_py() for at in find_bounds(*binary_buffers(chunk))]
    return min(ends, key=_bytes), max(ends, key=_bytes)


def _used_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The dictionary values that a column refers to."""
    used = [
        chunk.dictionary if _is_constant(chunk) else chunk.dictionary.take(pc.unique(chunk.indices))
        for chunk in column.chunks
    ]
    return pa.chunked_array(used, column.type.value_type)


def _is_constant(chunk: pa.DictionaryArray) -> bool:
    return len(chunk) > 0 and len(chunk.dictionary) == 1 and not chunk.null_count


def _natural(bound: pa.Scalar) -> StatValue | None:
    """A bound as a Python value; dates and timestamps beyond the range of Python's types stay numbers."""
    if not bound.is_valid:
        return None
    kind = bound.type
    if pat.is_date32(kind):
        return _natural_date(bound.cast(pa.int32()).as_py())
    if pat.is_timestamp(kind):
        return _natural_timestamp(bound.cast(pa.int64()).as_py(), kind)
    value: StatValue = bound.as_py()
    return value


def _natural_date(days: int) -> StatValue:
    try:
        return date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        return days


def _natural_timestamp(ticks: int, kind: pa.DataType) -> StatValue:
    try:
        moment = _EPOCH + ticks * _TICKS[kind.unit]
    except (OverflowError, KeyError):  # Python's timestamps have no nanoseconds, and end in the year 9999.
        return ticks
    return moment.replace(tzinfo=timezone.utc) if kind.tz else moment
