"""Casts incoming rows to the columns and types of a table, without loss."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lakebed.errors import InvalidInputError


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema, *, first_row: int = 0) -> pa.RecordBatch:
    """Casts `batch` to `schema`; missing columns are null.

    Raises InvalidInputError for a value that its column cannot hold exactly, and for a null in a required column.
    `first_row` is the number of the batch's first row in the whole input.
    """
    columns = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        given = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
        values = _conform(given, field.type, field.name)
        _check_nulls(values, field, field.name, first_row)
        is_partly_required = _has_required_parts(field.type)
        columns.append(_without_hidden_nulls(values, required=False) if is_partly_required else values)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conform(values: pa.Array, wanted: pa.DataType, column: str) -> pa.Array:
    if values.type == wanted:
        return values
    if pat.is_null(values.type):
        return pa.nulls(len(values), wanted)
    if pat.is_dictionary(values.type):
        return _conform(values.dictionary_decode(), wanted, column)
    if pat.is_run_end_encoded(values.type):
        return _conform(pc.run_end_decode(values), wanted, column)
    if pat.is_nested(wanted):
        return _conform_nested(pa.concat_arrays([values]) if values.offset else values, wanted, column)
    return _cast(values, wanted, column)


def _conform_nested(values: pa.Array, wanted: pa.DataType, column: str) -> pa.Array:
    mask = pc.is_null(values) if values.null_count else None
    if pat.is_struct(wanted):
        children = [_conform_child(values, field, column) for field in wanted]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=mask)
    if pat.is_map(wanted):
        keys = _conform(values.keys, wanted.key_type, column)
        items = _conform(values.items, wanted.item_type, f"{column}{{}}")
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=mask)
    if not pat.is_list(values.type):
        values = _cast(values, pa.list_(values.type.value_field), column)
    items = _conform(values.values, wanted.value_type, f"{column}[]")
    return pa.ListArray.from_arrays(values.offsets, items, type=wanted, mask=mask)


def _conform_child(values: pa.Array, field: pa.Field, column: str) -> pa.Array:
    place = values.type.get_field_index(field.name)
    if place < 0:
        return pa.nulls(len(values), field.type)
    return _conform(pc.struct_field(values, [place]), field.type, f"{column}.{field.name}")


def _cast(values: pa.Array, wanted: pa.DataType, column: str) -> pa.Array:
    try:
        if pat.is_float32(values.type) and pat.is_float64(wanted):
            # As in Apache Hudi: 1.1 stays 1.1 and does not become 1.100000023841858.
            values = pc.cast(values, pa.string())
        return pc.cast(values, wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"column {column!r} has a value that {wanted} cannot hold: {error}", hint=_advice(values.type, wanted)
        ) from error


def _advice(given: pa.DataType, wanted: pa.DataType) -> str:
    if pat.is_timestamp(given) and pat.is_timestamp(wanted):
        return f"round the times to {wanted.unit} first, e.g. with pyarrow.compute.floor_temporal"
    return "cast the column before writing, to choose what is lost"


def _check_nulls(values: pa.Array, field: pa.Field, column: str, first_row: int) -> None:
    """Raises InvalidInputError for a null in a required column or field."""
    if not field.nullable and values.null_count:
        row = first_row + pc.index(pc.is_null(values), True).as_py()
        raise _null_found(column, f"in row {row}")
    if _has_required_parts(field.type):
        _check_parts(values, field.type, column, first_row)


def _check_parts(values: pa.Array, kind: pa.DataType, column: str, first_row: int) -> None:
    if pat.is_struct(kind):
        for place, field in enumerate(kind):
            child = pc.struct_field(values, [place])
            if not field.nullable and child.null_count > values.null_count:
                is_missing = pc.and_(pc.is_null(child), pc.is_valid(values))
                raise _null_found(f"{column}.{field.name}", f"in row {first_row + pc.index(is_missing, True).as_py()}")
            # Children of a null struct may be null.
            inner = child.drop_null() if child.null_count else child
            _check_nulls(inner, field, f"{column}.{field.name}", first_row)
        return
    if pat.is_map(kind):
        # Copies the maps to offset zero without nulls, so that `items` has no others.
        items, field, name = pa.concat_arrays([values.drop_null()]).items, kind.item_field, f"{column}{{}}"
    else:
        items, field, name = values.flatten(), kind.value_field, f"{column}[]"
    if not field.nullable and items.null_count:
        raise _null_found(name, "among its items")
    _check_nulls(items, field, name, first_row)


def _has_required_parts(kind: pa.DataType) -> bool:
    if pat.is_struct(kind):
        parts = list(kind)
    elif pat.is_map(kind):
        parts = [kind.item_field]
    elif pat.is_list(kind):
        parts = [kind.value_field]
    else:
        return False
    return any(not part.nullable or _has_required_parts(part.type) for part in parts)


def _without_hidden_nulls(values: pa.Array, *, required: bool) -> pa.Array:
    """Removes nulls of `required` fields below null structs.

    Spark produces such nulls. They are invisible, but writers that check a field without its struct refuse them.
    """
    kind = values.type
    values = pa.concat_arrays([values]) if values.offset and pat.is_nested(kind) else values
    mask = None if required or not values.null_count else pc.is_null(values)
    if pat.is_struct(kind):
        parts = [
            _without_hidden_nulls(values.field(place), required=not field.nullable) for place, field in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pat.is_map(kind):
        items = _without_hidden_nulls(values.items, required=not kind.item_field.nullable)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=kind, mask=mask)
    if pat.is_list(kind):
        items = _without_hidden_nulls(values.values, required=not kind.value_field.nullable)
        return pa.ListArray.from_arrays(values.offsets, items, type=kind, mask=mask)
    if not required or not values.null_count:
        return values
    return pa.Array.from_buffers(kind, len(values), [None, *values.buffers()[1:]], offset=values.offset)


def _null_found(column: str, where: str) -> InvalidInputError:
    return InvalidInputError(
        f"column {column!r} must not be null, and is {where}", hint="give it a value; the table requires one"
    )
