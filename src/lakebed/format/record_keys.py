"""Text of column values in record keys and partition paths.

A key generator calls Java's `toString` on the Avro value: a timestamp is its number of units since 1970, a date is
written `yyyy-MM-dd`, bytes are hexadecimal, a decimal keeps its scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.format.java import java_float_text

NULL_TEXT, EMPTY_TEXT = "__null__", "__empty__"
"""Placeholders in a composite key for a field that is null or empty."""

_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
_DAY_MIN, _DAY_MAX = -719162, 2932896  # 0001-01-01 and 9999-12-31: beyond them Java puts a sign before the year.


def has_value_text(kind: pa.DataType) -> bool:
    """Whether `value_texts` supports the type."""
    kind = kind.value_type if pat.is_dictionary(kind) else kind
    return not pat.is_nested(kind) and not pat.is_null(kind) and any(check(kind) for check in _SPELLED)


def value_texts(values: pa.Array) -> pa.Array:
    """Each value as text, as key generators write it; nulls stay null."""
    kind = values.type
    assert has_value_text(kind), kind
    if pat.is_dictionary(kind):
        return value_texts(values.dictionary).take(values.indices)
    if pat.is_floating(kind):
        return java_float_text(values)
    if pat.is_date(kind):
        return _date_texts(pc.cast(values, pa.date32()))
    if pat.is_timestamp(kind) or pat.is_time64(kind):
        return pc.cast(pc.cast(values, pa.int64()), pa.string())
    if pat.is_time32(kind):
        return pc.cast(pc.cast(values, pa.int32()), pa.string())
    if pat.is_binary(kind) or pat.is_large_binary(kind) or pat.is_fixed_size_binary(kind):
        return _hex_texts(pc.cast(values, pa.binary()))
    # Arrow, like BigDecimal, uses an exponent below 10⁻⁶.
    return pc.cast(values, pa.string())


def composite_keys(names: Sequence[str], texts: Sequence[pa.Array]) -> pa.Array:
    """The keys `name:value,name:value` of several fields."""
    pieces: list[object] = []
    for name, text in zip(names, texts, strict=True):
        pieces += [f",{name}:" if pieces else f"{name}:", _without_gaps(text)]
    return pc.binary_join_element_wise(*pieces, "")


def _without_gaps(text: pa.Array) -> pa.Array:
    if text.null_count:
        text = pc.fill_null(text, NULL_TEXT)
    is_empty = pc.equal(pc.binary_length(text), 0)
    return pc.if_else(is_empty, EMPTY_TEXT, text) if pc.any(is_empty).as_py() else text


def _date_texts(values: pa.Array) -> pa.Array:
    bounds = pc.min_max(pc.cast(values, pa.int32()))
    if bounds["min"].is_valid and not _DAY_MIN <= bounds["min"].as_py() <= bounds["max"].as_py() <= _DAY_MAX:
        raise InvalidInputError(
            "a date before the year 1 or after 9999 cannot be part of a key", hint="keep dates between those years"
        )
    return pc.cast(values, pa.string())


def _hex_texts(values: pa.Array) -> pa.Array:
    values = pa.concat_arrays([values]) if values.offset else values
    validity, offsets, data = values.buffers()
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    places = np.frombuffer(offsets, np.int32, len(values) + 1) if len(values) else np.zeros(1, np.int32)
    texts = _HEX[content[places[0] : places[-1]]]
    moved = ((places - places[0]) * 2).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(values), [validity, pa.py_buffer(moved), pa.py_buffer(texts)], values.null_count
    )


_SPELLED = (
    pat.is_string,
    pat.is_large_string,
    pat.is_integer,
    pat.is_boolean,
    lambda kind: pat.is_float32(kind) or pat.is_float64(kind),
    pat.is_decimal,
    pat.is_date,
    pat.is_timestamp,
    pat.is_time,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)
