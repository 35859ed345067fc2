"""The columns of a file slice: which must be read, which follow from its folder or key, and casts to the table's types.

Half of a row's bytes are copies: the partition path, partition columns, and the key column beside `_hoodie_record_key`.
They are skipped while a slice is read and merged, and added at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.filter.keys import PLAIN_KEY_GENERATORS, path_constants
from lakebed.format.arrow import ArrowArray, text_array
from lakebed.format.guard import decoding
from lakebed.model.config import TableConfig
from lakebed.model.words import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RECORD_KEY

REPETITIVE = (COMMIT_TIME, FILE_NAME)
"""Meta columns with few distinct values per file: cheaper as dictionaries."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How to get the wanted columns of one slice.

    `stored` are read from files and merged. `constants` have one value in the whole slice, given as an array of length
    one. `key_copy` is the key column whose values equal `_hoodie_record_key`.
    """

    wanted: pa.Schema
    stored: pa.Schema
    constants: dict[str, ArrowArray]
    key_copy: str | None

    def complete(self, rows: pa.Table, *, path: str) -> pa.Table:
        """Adds to `rows`, which have the stored columns, all other wanted columns."""
        for name, value in self.constants.items():
            rows = rows.append_column(self.wanted.field(name), pa.repeat(value[0], rows.num_rows))
        if self.key_copy is not None:
            rows = rows.append_column(self.wanted.field(self.key_copy), rows[RECORD_KEY])
        return conform_table(rows, self.wanted, path=path)


def plan_columns(wanted: pa.Schema, partition: str, config: TableConfig, *, merged: bool) -> ColumnPlan:
    """Decides which of the wanted columns of a slice must be read. `merged`: the slice has log files."""
    constants = _constants(wanted, partition, config)
    if merged:  # Ordering values decide the merge, so they are read from the files.
        constants = {name: value for name, value in constants.items() if name not in config.ordering_fields}
    copy = key_copy(wanted, config)
    needed = {*wanted.names} - constants.keys() - {copy} | ({RECORD_KEY} if copy else set())
    fields = [pa.field(RECORD_KEY, pa.string())] if RECORD_KEY in needed - {*wanted.names} else []
    fields += [field for field in wanted if field.name in needed]
    stored = pa.schema([_merged_form(field) if merged else field for field in fields])
    return ColumnPlan(wanted, stored, constants, copy)


def _constants(wanted: pa.Schema, partition: str, config: TableConfig) -> dict[str, ArrowArray]:
    constants = path_constants(partition, config, wanted)
    if not config.has_meta_columns:
        return {name: value for name, value in constants.items() if name not in config.key_fields}
    if PARTITION_PATH in wanted.names:
        constants[PARTITION_PATH] = text_array([partition])
    return constants


def key_copy(wanted: pa.Schema, config: TableConfig) -> str | None:
    """The text column whose values are the record keys; None if keys are generated or composite."""
    if not config.has_meta_columns or len(config.key_fields) != 1 or config.key_generator not in PLAIN_KEY_GENERATORS:
        return None
    name = config.key_fields[0]
    is_text = name in wanted.names and wanted.field(name).type == pa.string()
    return name if is_text and name not in config.partition_fields else None


def as_dictionary(field: pa.Field) -> pa.Field:
    """A text field as a dictionary type."""
    return field.with_type(pa.dictionary(pa.int32(), pa.string()))


def _merged_form(field: pa.Field) -> pa.Field:
    return as_dictionary(field) if field.name in REPETITIVE else field


def conform_table(table: pa.Table, schema: pa.Schema, *, path: str) -> pa.Table:
    """`table` with exactly the columns of `schema`: missing ones are null, narrower types are widened."""
    if not len(schema):
        return table.select([])  # Keeps the row count: columns that follow from the path are added later.
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
    """Casts `values` to `wanted`; fields of structs are matched by name, lists and maps are cast item by item."""
    if values.type == wanted:
        return values
    if values.offset and pa.types.is_nested(values.type):
        values = pa.concat_arrays([values])  # Copies the slice to offset zero, so that offsets and children line up.
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
    # The table's type wins: nanoseconds become microseconds, large integers the nearest float.
    return pc.cast(values, wanted, safe=not (pa.types.is_timestamp(wanted) or pa.types.is_floating(wanted)))


def _conform_struct(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    children = []
    for field in wanted:
        known = values.type.get_field_index(field.name) >= 0
        # `field()` ignores the parent's nulls; the mask restores them.
        children.append(
            conform_array(values.field(field.name), field.type) if known else pa.nulls(len(values), field.type)
        )
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(values))


def _mask(values: pa.Array) -> pa.Array | None:
    return pc.is_null(values) if values.null_count else None
