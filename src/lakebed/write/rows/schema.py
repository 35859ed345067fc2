"""A table's columns: the types that it stores, and schema evolution.

As in Apache Hudi, incoming rows may add columns, widen the type of a number, or make a column nullable. Nothing is
renamed, narrowed or dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.types as pat

from lakebed.errors import InvalidInputError
from lakebed.format.avro.schema import avro_schema
from lakebed.model.config import TableConfig
from lakebed.model.words import META_COLUMNS
from lakebed.read.file_slice import IS_DELETED

_NOT_A_NAME = re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_]")
_WIDER = {
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
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


def table_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a new table for rows of this schema; raises InvalidInputError for what a table cannot store."""
    check_names(schema.names)
    stored = pa.schema([stored_field(field, field.name) for field in schema if field.name != IS_DELETED])
    avro_schema(stored, name="record", namespace="")  # Raises for names that are invalid in Avro.
    return stored


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns, all nullable, including nested fields."""
    return pa.schema([_nullable(field) for field in schema])


def evolve_schema(
    table: pa.Schema, incoming: pa.Schema, *, keep: Collection[str] = (), required: Collection[str] = ()
) -> pa.Schema:
    """The columns of the table after a write of rows with `incoming` columns, which may be a part of the columns.

    Columns in `keep` (keys and partition paths) change type only if the text of values stays the same. A column becomes
    nullable if it is nullable in the rows, except for those in `required`.
    """
    check_spelling(table.names, incoming.names)
    added = [field for field in incoming if field.name not in table.names and field.name != IS_DELETED]
    fields = [_evolved(field, incoming, keep, required) for field in table]
    evolved = pa.schema([*fields, *(_new_field(field, field.name) for field in added)])
    if added:
        check_names(evolved.names)
        avro_schema(evolved, name="record", namespace="")
    return evolved


def check_spelling(table: Iterable[str], given: Iterable[str]) -> None:
    """Raises InvalidInputError for a given column that differs from one of the table only in case.

    Names are case sensitive, as in Apache Hudi, but engines that ignore case could not read both columns.
    """
    known = {*table}
    by_case = {name.casefold(): name for name in known}
    for name in given:
        if name not in known and name.casefold() in by_case:
            spelled = by_case[name.casefold()]
            raise InvalidInputError(
                f"the rows have a column {name!r}, which is {spelled!r} in the table",
                hint=f"rename it to {spelled!r}: column names are case sensitive",
            )


def missing_columns(table: pa.Schema, incoming: pa.Schema) -> list[str]:
    """Columns of the table, and fields within given columns, that rows with `incoming` columns lack."""
    missing: list[str] = []
    for field in table:
        if field.name in incoming.names:
            missing += _missing_parts(field.type, incoming.field(field.name).type, field.name)
        elif field.name != IS_DELETED:  # Rows without this column are no deletes.
            missing.append(field.name)
    return missing


def _missing_parts(table: pa.DataType, given: pa.DataType, column: str) -> Iterator[str]:
    if pat.is_dictionary(given) or pat.is_run_end_encoded(given):
        yield from _missing_parts(table, given.value_type, column)
    elif pat.is_struct(table) and pat.is_struct(given):
        for field in table:
            place = given.get_field_index(field.name)
            if place < 0:
                yield f"{column}.{field.name}"
            else:
                yield from _missing_parts(field.type, given[place].type, f"{column}.{field.name}")
    elif pat.is_list(table) and is_any_list(given):
        yield from _missing_parts(table.value_type, given.value_type, f"{column}[]")
    elif pat.is_map(table) and pat.is_map(given):
        yield from _missing_parts(table.item_type, given.item_type, f"{column}{{}}")


def declared_schema(schema: pa.Schema, config: TableConfig, *, meta_columns: bool) -> str:
    """The Avro schema of a table as JSON, with Apache Hudi's record name; with or without meta columns."""
    table = _NOT_A_NAME.sub("__", config.name)
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS] if meta_columns else []
    return avro_schema(pa.schema([*meta, *schema]), name=f"{table}_record", namespace=f"hoodie.{table}")


def _evolved(field: pa.Field, incoming: pa.Schema, keep: Collection[str], required: Collection[str]) -> pa.Field:
    if field.name not in incoming.names:
        return field
    is_nullable = field.nullable or (incoming.field(field.name).nullable and field.name not in required)
    evolved = _join_types(field.type, incoming.field(field.name).type, field.name)
    if field.name in keep and evolved != field.type and (field.type, evolved) != (pa.int32(), pa.int64()):
        raise InvalidInputError(
            f"column {field.name!r} of type {field.type} cannot become {evolved}: keys and paths are derived from it",
            hint=f"cast the column to {field.type}",
        )
    return field.with_type(evolved).with_nullable(is_nullable)


def _new_field(field: pa.Field, column: str) -> pa.Field:
    """A field that is new to the table: nullable, because stored rows have no value for it."""
    return stored_field(field, column).with_nullable(True)


def _join_types(table: pa.DataType, incoming: pa.DataType, column: str) -> pa.DataType:
    """The type for values of both types; raises InvalidInputError if there is none."""
    if incoming == table or pat.is_null(incoming):  # A column of nulls only fits every type.
        return table
    if pat.is_struct(table) and pat.is_struct(incoming):
        return _join_structs(table, incoming, column)
    if pat.is_list(table) and is_any_list(incoming):
        return pa.list_(_join_fields(table.value_field, incoming.value_field, f"{column}[]"))
    if pat.is_map(table) and pat.is_map(incoming) and is_string_type(incoming.key_type):
        return pa.map_(table.key_type, _join_fields(table.item_field, incoming.item_field, f"{column}{{}}"))
    given = stored_type(incoming, column)
    joined = _join_scalars(table, given)
    if joined is None:
        raise InvalidInputError(
            f"column {column!r} is of type {table} in the table and of type {incoming} in the rows",
            hint=_advice(table, given),
        )
    return joined


def _join_fields(table: pa.Field, incoming: pa.Field, column: str) -> pa.Field:
    joined = _join_types(table.type, incoming.type, column)
    return table.with_type(joined).with_nullable(table.nullable or incoming.nullable)


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pat.is_struct(kind):
        kind = pa.struct([_nullable(part) for part in kind])
    elif pat.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pat.is_map(kind):
        kind = pa.map_(kind.key_field, _nullable(kind.item_field))
    return field.with_type(kind).with_nullable(True)


def _join_structs(table: pa.DataType, given: pa.DataType, column: str) -> pa.DataType:
    known = {field.name for field in table}
    added = [field for field in given if field.name not in known]
    check_names((field.name for field in given), within=column)
    if added:
        check_names([*known, *(field.name for field in added)], within=column)
    fields = []
    for field in table:
        place = given.get_field_index(field.name)
        # A missing field is null.
        joined = _join_fields(field, given[place], f"{column}.{field.name}") if place >= 0 else _nullable(field)
        fields.append(joined)
    return pa.struct([*fields, *(_new_field(field, f"{column}.{field.name}") for field in added)])


def _join_scalars(table: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    if table == given or table in _WIDER.get(given, ()):
        return table
    if given in _WIDER.get(table, ()):
        return given
    if pat.is_timestamp(table) and pat.is_timestamp(given) and bool(table.tz) == bool(given.tz):
        return table  # Tables of other engines may have milliseconds.
    if pat.is_fixed_size_binary(table) and pat.is_binary(given):
        return table
    if pat.is_decimal(table) and pat.is_decimal(given):
        return _wider_decimal(table, given)
    return None


def _wider_decimal(table: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    for wide, narrow in ((table, given), (given, table)):
        if wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale:
            return wide
    return None


def _advice(table: pa.DataType, given: pa.DataType) -> str:
    if pat.is_timestamp(table) and pat.is_timestamp(given):
        to_do = "give the times a zone" if table.tz else "convert the times to one zone and drop the zone"
        return f"{to_do}: the table's type is {table}"
    return f"cast the column to {table}, or write it under another name"


def stored_field(field: pa.Field, column: str) -> pa.Field:
    """The field with the type that a table stores for it; `column` is its full name, for errors."""
    return pa.field(field.name, stored_type(field.type, column), nullable=field.nullable)


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type that a table stores for values of type `kind`; raises InvalidInputError if there is none."""
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
    if pat.is_map(kind) and is_string_type(kind.key_type):
        return pa.map_(pa.string(), stored_field(kind.item_field.with_name("value"), f"{column}{{}}"))
    raise _unsupported(kind, column)


def check_names(names: Iterable[str], *, within: str = "") -> None:
    """Raises InvalidInputError if two names are equal or differ only in case, which Spark ignores."""
    repeated = [name for name, count in Counter(name.lower() for name in names).items() if count > 1]
    if repeated:
        where = f" in {within!r}" if within else ""
        raise InvalidInputError(
            f"several columns{where} are named {repeated[0]!r} if case is ignored, as in other engines",
            hint="rename all but one; column names must be spelled as in the table",
        )


def is_any_list(kind: pa.DataType) -> bool:
    """Whether it is a list type that can be stored if its items can."""
    return pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind)


def is_string_type(kind: pa.DataType) -> bool:
    """Whether it is a string type, or a dictionary of strings."""
    kind = kind.value_type if pat.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _unsupported(kind: pa.DataType, column: str) -> InvalidInputError:
    hint = _HINTS.get(kind, "cast it to a type that Hudi tables have, e.g. to string")
    if pat.is_decimal(kind):
        hint = f"cast it to a decimal of at most {_DECIMAL_DIGITS_MAX} digits with a scale from 0 to its precision"
    if pat.is_map(kind):
        hint = "maps need keys of type string"
    return InvalidInputError(f"column {column!r} of type {kind} cannot be stored in a Hudi table", hint=hint)
