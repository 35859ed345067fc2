"""Giving rows of older files the table's present columns and types."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.guard import decoding


def conform_table(table: pa.Table, schema: pa.Schema, *, path: str) -> pa.Table:
    """`table` with exactly the columns of `schema`: missing ones are null, narrower types are widened."""
    if not len(schema):
        return table.select([])  # Its rows still count: columns that the path tells are added to them.
    columns = []
    for field in schema:
        position = table.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        with decoding(path, f"column {field.name} as {field.type}"):
            columns.append(_conform_chunks(table.column(position), field.type))
    return pa.table(columns, schema=schema)


def _conform_chunks(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type == wanted:
        return column
    return pa.chunked_array([conform_array(chunk, wanted) for chunk in column.chunks], wanted)


def conform_array(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """`values` as `wanted`; structs are matched by field name, lists and maps by their items."""
    if values.type == wanted:
        return values
    if values.offset and pa.types.is_nested(values.type):
        values = pa.concat_arrays([values])  # A copy that starts at zero, so that offsets and children line up.
    if pa.types.is_dictionary(wanted):
        return conform_array(values, wanted.value_type).dictionary_encode().cast(wanted)
    if pa.types.is_dictionary(values.type):
        return conform_array(values.dictionary_decode(), wanted)
    if pa.types.is_struct(wanted) and pa.types.is_struct(values.type):
        return _conform_struct(values, wanted)
    if pa.types.is_map(wanted) and pa.types.is_map(values.type):
        keys, items = conform_array(values.keys, wanted.key_type), conform_array(values.items, wanted.item_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=_mask(values))
    if pa.types.is_list(wanted) and pa.types.is_list(values.type):
        items = conform_array(values.values, wanted.value_type)
        return pa.ListArray.from_arrays(values.offsets, items, type=wanted, mask=_mask(values))
    if pa.types.is_float32(values.type) and pa.types.is_float64(wanted):
        return pc.cast(pc.cast(values, pa.string()), wanted)  # 1.1 stays 1.1, as in Apache Hudi.
    # The table's type decides, never the file's: nanoseconds become microseconds, large integers the nearest float.
    return pc.cast(values, wanted, safe=not (pa.types.is_timestamp(wanted) or pa.types.is_floating(wanted)))


def _conform_struct(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    children = []
    for field in wanted:
        known = values.type.get_field_index(field.name) >= 0
        # `field()` leaves out the parent's nulls, which the mask puts back.
        children.append(
            conform_array(values.field(field.name), field.type) if known else pa.nulls(len(values), field.type)
        )
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(values))


def _mask(values: pa.Array) -> pa.Array | None:
    return pc.is_null(values) if values.null_count else None
