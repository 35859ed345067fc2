"""The Arrow types that Hudi tables store, and what other types become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import InvalidInputError

_DECIMAL_DIGITS_MAX = 38
_AS_IS = (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())
_BECOMES = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_HINTS = {
    pa.null(): "give it a type, even if every value is null: pa.nulls(n, pa.string())",
    pa.uint64(): "cast it to int64, or to decimal128(20, 0) if it has values beyond",
}


def stored_field(field: pa.Field, column: str) -> pa.Field:
    """The field with the type that a table stores for it; `column` is its full name, for errors."""
    return pa.field(field.name, stored_type(field.type, column), nullable=field.nullable)


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type that a table stores for values of type `kind`; one that it cannot store raises InvalidInputError."""
    if kind in _AS_IS:
        return kind
    if kind in _BECOMES:
        return _BECOMES[kind]
    if pat.is_dictionary(kind) or pat.is_run_end_encoded(kind):
        return stored_type(kind.value_type, column)
    if pat.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pat.is_fixed_size_binary(kind):
        return pa.binary()
    if pat.is_decimal(kind) and kind.precision <= _DECIMAL_DIGITS_MAX and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    if pat.is_struct(kind) and kind.num_fields:
        check_names((field.name for field in kind), within=column)
        return pa.struct([stored_field(field, f"{column}.{field.name}") for field in kind])
    if is_any_list(kind):
        return pa.list_(stored_field(kind.value_field.with_name("item"), f"{column}[]"))
    if pat.is_map(kind) and is_text(kind.key_type):
        return pa.map_(pa.string(), stored_field(kind.item_field.with_name("value"), f"{column}{{}}"))
    raise _unsupported(kind, column)


def check_names(names: Iterable[str], *, within: str = "") -> None:
    """Raises InvalidInputError if two names are equal or differ in case alone: Spark does not tell them apart."""
    repeated = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if repeated:
        where = f" in {within!r}" if within else ""
        raise InvalidInputError(
            f"several columns{where} are named {repeated[0]!r} if case is ignored, as engines do",
            hint="rename all but one; a column of the table must be spelled as the table spells it",
        )


def is_any_list(kind: pa.DataType) -> bool:
    """Whether it is a type of lists that can be stored, given storable items."""
    return pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether it is a type of strings."""
    kind = kind.value_type if pat.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _unsupported(kind: pa.DataType, column: str) -> InvalidInputError:
    hint = _HINTS.get(kind, "cast it to a type that Hudi tables have, e.g. to string")
    if pat.is_decimal(kind):
        hint = f"cast it to a decimal of at most {_DECIMAL_DIGITS_MAX} digits with a scale from 0 to their number"
    if pat.is_map(kind):
        hint = "maps need keys of type string"
    return InvalidInputError(f"column {column!r} of type {kind} cannot be stored in a Hudi table", hint=hint)
