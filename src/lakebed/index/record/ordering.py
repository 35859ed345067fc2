"""Ordering values as entries of the record index carry them: numbers that compare as the values do.

Integers are themselves, times microseconds since 1970, dates days. Values of other types, and several fields together,
have no number: their entries carry none, and whoever compares reads the row.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.arrow import ArrowArray
from lakebed.model.config import TableConfig
from lakebed.model.index import EntryOrdering, IndexDefinition
from lakebed.model.words import MergeMode


def has_numbers(kind: pa.DataType) -> bool:
    """Whether ordering values of a type have numbers."""
    if pa.types.is_timestamp(kind):
        return kind.unit == "us"
    return (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_date32(kind)


def ordering_numbers(rows: pa.Table, ordering: EntryOrdering) -> ArrowArray:
    """The numbers of rows; null where there is none."""
    if ordering.field not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.int64())
    values = rows[ordering.field].combine_chunks()
    if not has_numbers(values.type):
        return pa.nulls(rows.num_rows, pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


def ask_ordering(asked: str, config: TableConfig, schema: pa.Schema) -> EntryOrdering | None:
    """What the option of a new index asks for: "off", "on", or "current"; raises if the table cannot have it."""
    if asked == "off":
        return None
    fields = config.ordering_fields if config.merge_mode is MergeMode.EVENT_TIME_ORDERING else ()
    if len(fields) != 1 or fields[0] not in schema.names or not has_numbers(schema.field(fields[0]).type):
        raise InvalidInputError(
            f"entries of a record index cannot carry the ordering values of table {config.name}",
            hint="order rows by one column of integers, dates or timestamps in microseconds, or"
            " leave out the option lakebed.record.index.ordering",
        )
    return EntryOrdering(fields[0], asked == "current")


def find_ordering(definitions: Mapping[str, IndexDefinition], config: TableConfig) -> EntryOrdering | None:
    """The ordering values that entries of the table's record index carry, if they still mean what the table means."""
    definition = definitions.get("record_index")
    ordering = definition.ordering if definition is not None else None
    if ordering is None or config.merge_mode is not MergeMode.EVENT_TIME_ORDERING:
        return None
    return ordering if config.ordering_fields == (ordering.field,) else None
