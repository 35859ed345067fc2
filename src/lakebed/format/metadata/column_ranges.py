"""Column statistics of many files as Arrow columns, and the ranges of one column in its own type.

Ranges exclude files, so an unreliable bound becomes null. These are not trusted:

* Bounds of bytes: Hudi orders bytes as signed numbers where it merges bounds, readers as unsigned ones.
* A string bound that depends on the sort order: Hudi merges by UTF-16 code units, where U+E000 to U+FFFF sort after
  the characters above; in UTF-8 they sort before. A minimum with a character above U+FFFF, or a maximum with one
  from U+E000 to U+FFFF, may therefore be wrong.
* NaN, whose position differs between orders, and floats of a column that is double now: 0.1 may be either number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.guard import decoding
from lakebed.format.metadata.datum import decode_payloads, field_of, part_of, texts
from lakebed.model.metadata import ValueType

_WRAPPERS: dict[str, tuple[tuple[str, ...], pa.DataType]] = {
    "boolean": (("BooleanWrapper",), pa.bool_()),
    "int": (("IntWrapper",), pa.int32()),
    "long": (("LongWrapper",), pa.int64()),
    "float": (("FloatWrapper",), pa.float32()),
    "double": (("DoubleWrapper",), pa.float64()),
    "bytes": (("BytesWrapper",), pa.binary()),
    "string": (("StringWrapper",), pa.string()),
    "date": (("DateWrapper", "LocalDateWrapper"), pa.int32()),
    "decimal": (("DecimalWrapper",), pa.decimal128(30, 15)),
    "time": (("TimeMicrosWrapper",), pa.time64("us")),
    "timestamp": (("TimestampMicrosWrapper",), pa.int64()),
}
BOUND = pa.struct([pa.field(name, kind) for name, (_, kind) in _WRAPPERS.items()])
"""The type of a stored bound: the child that is set tells how it is stored."""

COLUMN_STATS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("file_name", pa.string()),
        pa.field("column", pa.string()),
        pa.field("min", BOUND),
        pa.field("max", BOUND),
        pa.field("value_count", pa.int64()),
        pa.field("null_count", pa.int64()),
        pa.field("total_size", pa.int64()),
        pa.field("total_uncompressed_size", pa.int64()),
        pa.field("is_deleted", pa.bool_()),
        pa.field("is_tight_bound", pa.bool_()),
        pa.field("type_ordinal", pa.int32()),
        pa.field("additional_info", pa.string()),
    ]
)
"""Columns of statistics of all table versions; fields that a version lacks are null."""

_SCALARS = {
    "file_name": "fileName",
    "column": "columnName",
    "value_count": "valueCount",
    "null_count": "nullCount",
    "total_size": "totalSize",
    "total_uncompressed_size": "totalUncompressedSize",
    "is_deleted": "isDeleted",
    "is_tight_bound": "isTightBound",
}
_DECIMAL_DIGITS_MAX, _DECIMAL_BYTES = 76, 32
_SCALES_MAX = 100
"""Maximum number of distinct scales; hostile rows could have one each."""
_MISLEADING = {"min": r"[\x{10000}-\x{10FFFF}]", "max": r"[\x{E000}-\x{FFFF}]"}


def decode_column_stats(keys: ArrowArray, values: ArrowArray, schema: str, *, path: str) -> pa.Table:
    """One row per record of column or partition statistics, with the columns of `COLUMN_STATS_SCHEMA`."""
    stats = decode_payloads(values, schema, "ColumnStatsMetadata", path=path, required=True)
    with decoding(path, "column statistics"):
        columns = {
            name: field_of(stats, stored, COLUMN_STATS_SCHEMA.field(name).type) for name, stored in _SCALARS.items()
        }
        columns["key"] = texts(keys)
        columns["min"], columns["max"] = _bound(stats, "minValue"), _bound(stats, "maxValue")
        columns["type_ordinal"] = _value_type(stats, "typeOrdinal", pa.int32())
        columns["additional_info"] = _value_type(stats, "additionalInfo", pa.string())
        return pa.table([columns[name] for name in COLUMN_STATS_SCHEMA.names], schema=COLUMN_STATS_SCHEMA)


def _value_type(stats: ArrowArray, name: str, kind: pa.DataType) -> ArrowArray:
    value_type = part_of(stats, "valueType")
    return pa.nulls(len(stats), kind) if value_type is None else field_of(value_type, name, kind)


def _bound(stats: ArrowArray, name: str) -> ArrowArray:
    union = part_of(stats, name)
    children = [_unwrapped(union, wrappers, kind, len(stats)) for wrappers, kind in _WRAPPERS.values()]
    return pa.StructArray.from_arrays(children, fields=list(BOUND))


def _unwrapped(union: ArrowArray | None, wrappers: tuple[str, ...], kind: pa.DataType, rows: int) -> ArrowArray:
    parts = [] if union is None else [part_of(union, wrapper) for wrapper in wrappers]
    values = [field_of(part, "value", kind) for part in parts if part is not None]
    return pc.coalesce(*values) if values else pa.nulls(rows, kind)


def column_stats_values(stats: pa.Table, column: str, arrow_type: pa.DataType) -> pa.Table:
    """Statistics of one column by file or partition: file_name, min, max, null_count, value_count, is_tight_bound.

    Bounds have type `arrow_type`, that of the column as it is read; null if unknown or unreliable. Deleted statistics
    are left out.
    """
    rows = stats.filter(pc.and_(pc.equal(stats["column"], column), pc.invert(stats["is_deleted"]))).combine_chunks()
    bounds = {name: _in_type(rows, name, arrow_type) for name in ("min", "max")}
    kept = {name: rows[name] for name in ("null_count", "value_count", "is_tight_bound")}
    return pa.table({"file_name": rows["file_name"], **bounds, **kept})


def _in_type(rows: pa.Table, name: str, kind: pa.DataType) -> ArrowArray:
    """A bound of all rows in the wanted type, decoded by the way in which each row stores it."""
    stored, ordinals, infos = (rows[column].combine_chunks() for column in (name, "type_ordinal", "additional_info"))
    inner = kind.value_type if pat.is_dictionary(kind) else kind
    found = [pa.nulls(len(stored), inner)]
    for source in _sources(inner):
        where = pc.is_in(ordinals, pa.array([int(each) for each in source.value_types], pa.int32()))
        if source.in_v1:
            where = pc.or_(where, pc.is_null(ordinals))
        array = _trusted(pc.struct_field(stored, [source.child]), name)
        found.append(_cast(_only(array, where), source.meaning, inner))
    if pat.is_decimal(inner):
        found += _decimals(
            _only(pc.struct_field(stored, ["bytes"]), pc.equal(ordinals, ValueType.DECIMAL)), infos, inner
        )
    return pc.coalesce(*found)


def _only(array: ArrowArray, where: ArrowArray) -> ArrowArray:
    return pc.if_else(where, array, pa.scalar(None, array.type))


def _trusted(array: ArrowArray, name: str) -> ArrowArray:
    if pat.is_string(array.type):
        return _only(array, pc.invert(pc.match_substring_regex(array, _MISLEADING[name])))
    return _only(array, pc.invert(pc.is_nan(array))) if pat.is_floating(array.type) else array


def _cast(array: ArrowArray, meaning: pa.DataType | None, kind: pa.DataType) -> ArrowArray:
    """Values cast to their meaning, then to `kind`; all null if one does not fit, so that no bound is ever wrong."""
    try:
        array.validate(full=True)
        values = array if meaning is None else pc.cast(array, meaning)
        # Integers become the nearest float, as when rows are read: the order is preserved.
        return pc.cast(values, kind, safe=not pat.is_floating(kind))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(array), kind)


@dataclass(frozen=True, slots=True)
class _Source:
    """A way of storing a bound: the child of `BOUND`, the value types (none in V1), and the meaning of the number."""

    child: str
    value_types: tuple[ValueType, ...]
    meaning: pa.DataType | None = None
    in_v1: bool = True


_INTEGERS = (_Source("int", (ValueType.INT,)), _Source("long", (ValueType.LONG,)))
_WHOLE_DECIMALS = (
    _Source("int", (ValueType.INT,), pa.decimal128(10, 0)),
    _Source("long", (ValueType.LONG,), pa.decimal128(19, 0)),
)
_DATES = (_Source("int", (ValueType.DATE,), pa.date32(), in_v1=False), _Source("date", (), pa.date32()))
_TIMES = (
    _Source("int", (ValueType.TIME_MILLIS,), pa.time32("ms"), in_v1=False),
    _Source("long", (ValueType.TIME_MICROS,), pa.time64("us"), in_v1=False),
    _Source("time", ()),
)
_MOMENTS = (
    _Source("long", (ValueType.TIMESTAMP_MILLIS,), pa.timestamp("ms", "UTC"), in_v1=False),
    _Source("long", (ValueType.TIMESTAMP_MICROS,), pa.timestamp("us", "UTC"), in_v1=False),
    _Source("long", (ValueType.TIMESTAMP_NANOS,), pa.timestamp("ns", "UTC"), in_v1=False),
    _Source("timestamp", (), pa.timestamp("us", "UTC")),
)
_LOCAL_TIMES = (
    _Source("long", (ValueType.LOCAL_TIMESTAMP_MILLIS,), pa.timestamp("ms"), in_v1=False),
    _Source("long", (ValueType.LOCAL_TIMESTAMP_MICROS,), pa.timestamp("us"), in_v1=False),
    _Source("long", (ValueType.LOCAL_TIMESTAMP_NANOS,), pa.timestamp("ns"), in_v1=False),
)
_SOURCES: tuple[tuple[Callable[[pa.DataType], bool], tuple[_Source, ...]], ...] = (
    (pat.is_boolean, (_Source("boolean", (ValueType.BOOLEAN,)),)),
    (pat.is_integer, _INTEGERS),
    (pat.is_float32, (_Source("float", (ValueType.FLOAT,)), *_INTEGERS)),
    (pat.is_float64, (_Source("double", (ValueType.DOUBLE,)), *_INTEGERS)),
    (lambda kind: pat.is_string(kind) or pat.is_large_string(kind), (_Source("string", (ValueType.STRING,)),)),
    (pat.is_string_view, (_Source("string", (ValueType.STRING,)),)),
    (pat.is_date, _DATES),
    (pat.is_time, _TIMES),
    (lambda kind: pat.is_timestamp(kind) and kind.tz is not None, _MOMENTS),
    (pat.is_timestamp, _LOCAL_TIMES),
    (pat.is_decimal, (_Source("decimal", ()), *_WHOLE_DECIMALS)),
)


def _sources(kind: pa.DataType) -> tuple[_Source, ...]:
    return next((sources for accepts, sources in _SOURCES if accepts(kind)), ())


def _decimals(unscaled: ArrowArray, infos: ArrowArray, kind: pa.DataType) -> Iterator[ArrowArray]:
    """Decimals of V2: each row's additional info has the scale; a column has few distinct ones."""
    for info in pc.unique(infos.drop_null()).to_pylist()[:_SCALES_MAX]:
        scale = info.partition(",")[2]
        if scale.isdecimal() and int(scale) <= _DECIMAL_DIGITS_MAX:
            yield _cast(_decimal_array(_only(unscaled, pc.equal(infos, info)), int(scale)), None, kind)


def _decimal_array(unscaled: ArrowArray, scale: int) -> ArrowArray:
    """Decimals from big-endian two's complement; null if there are too many bytes."""
    lengths = pc.fill_null(pc.binary_length(unscaled), 0).to_numpy(zero_copy_only=False)
    lengths = np.where(lengths <= _DECIMAL_BYTES, lengths, 0)
    _, offsets, data = unscaled.buffers()
    starts = np.frombuffer(offsets, np.int32)[unscaled.offset :][: len(unscaled)] if len(unscaled) else lengths
    digits = np.zeros((len(unscaled), _DECIMAL_BYTES), np.uint8)
    for length in np.unique(lengths[lengths > 0]):
        rows = np.flatnonzero(lengths == length)
        own = np.frombuffer(data, np.uint8)[starts[rows, None] + np.arange(length)]
        digits[rows] = np.where(own[:, :1] > 0x7F, 0xFF, 0)
        digits[rows, -length:] = own
    little_endian = np.ascontiguousarray(digits[:, ::-1])
    valid = np.packbits(lengths > 0, bitorder="little")
    buffers = [pa.py_buffer(valid.tobytes()), pa.py_buffer(little_endian.tobytes())]
    return pa.Array.from_buffers(pa.decimal256(_DECIMAL_DIGITS_MAX, scale), len(unscaled), buffers)
