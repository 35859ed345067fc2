"""The definition of a record index: in index.json, from other sources if that is lost, and what entries carry by it.

Entries may carry ordering values, as numbers that compare as the values do: integers are themselves, times microseconds
since 1970, dates days. Values of other types, and several fields together, have no number: their entries carry none,
and a comparison must read the row.

An ordering value is the one that the row had when the entry was written, so a lower bound. If every update writes an
entry too, it is the row's own value; entries are then current. A writer that does not do so, such as another engine,
ends that: see `index/extra.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.arrow import ArrowArray
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import MergeRule, merged_shards
from lakebed.model.config import TableConfig
from lakebed.model.index import (
    ORDERING_FIELD,
    ORDERING_IS_CURRENT,
    WINDOW_FIRST,
    WINDOW_KEPT,
    WINDOW_NEWEST,
    WINDOW_OUTSIDE,
    EntryOrdering,
    IndexDefinition,
    IndexWindow,
)
from lakebed.model.words import MergeMode
from lakebed.table import TableState


def record_index_definition(
    *, is_partitioned: bool, ordering: EntryOrdering | None = None, window: IndexWindow | None = None
) -> IndexDefinition:
    """The definition of a record index: global or partitioned, with or without a window and ordering values."""
    options = {"isPartitioned": str(is_partitioned).lower()}
    if window is not None:
        options |= {WINDOW_FIRST: window.first, WINDOW_NEWEST: str(window.newest), WINDOW_OUTSIDE: window.outside}
    if ordering is not None:
        options |= {ORDERING_FIELD: ordering.field, ORDERING_IS_CURRENT: str(ordering.is_current).lower()}
    return IndexDefinition(RECORD_INDEX, RECORD_INDEX, options=options, version="V1")


def key_marks(definition: IndexDefinition, *, kept: bool) -> dict[str, str]:
    """Marks of a delta commit: entries are current, and all keys of the window are indexed."""
    ordering = definition.ordering
    return {
        **(_CURRENT if kept and ordering is not None and ordering.is_current else {}),
        **(WINDOW_KEPT if definition.window is not None else {}),
    }


_CURRENT: Mapping[str, str] = {"lakebed.entries.current": "true"}
"""The mark of a delta commit that keeps entries current."""


def are_current(metadata: MetadataTable, ordering: EntryOrdering) -> bool:
    """Whether ordering values in entries equal those of the rows, in this snapshot of the metadata table."""
    newest = metadata.newest_delta_commit() if ordering.is_current else None
    return newest is not None and newest.extra_metadata.items() >= _CURRENT.items()


def find_ordering(definitions: Mapping[str, IndexDefinition], config: TableConfig) -> EntryOrdering | None:
    """The ordering values that entries carry; None if there are none, or the table is ordered differently by now."""
    definition = definitions.get("record_index")
    ordering = definition.ordering if definition is not None else None
    if ordering is None or config.merge_mode is not MergeMode.EVENT_TIME_ORDERING:
        return None
    return ordering if config.ordering_fields == (ordering.field,) else None


def ordering_numbers(rows: pa.Table, ordering: EntryOrdering) -> ArrowArray:
    """Ordering values of rows as numbers; null for values without a number."""
    if ordering.field not in rows.column_names:
        return pa.nulls(rows.num_rows, pa.int64())
    values = rows[ordering.field].combine_chunks()
    if not has_numbers(values.type):
        return pa.nulls(rows.num_rows, pa.int64())
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).cast(pa.int64())
    return values.cast(pa.int64())


def ask_ordering(asked: str, config: TableConfig, schema: pa.Schema) -> EntryOrdering | None:
    """Parses the option of a new index: "off", "on" or "current". Raises if the table cannot have ordering values."""
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


def has_numbers(kind: pa.DataType) -> bool:
    """Whether ordering values of a type can be written as numbers."""
    if pa.types.is_timestamp(kind):
        return kind.unit == "us"
    return (pa.types.is_integer(kind) and kind != pa.uint64()) or pa.types.is_date32(kind)


_KNOWS_NOTHING = IndexWindow(first="\U0010ffff", newest=1)
"""A window without any partition, for an index whose real window is lost: nothing is looked up in it."""


def derive_record_index(state: TableState, rule: MergeRule) -> IndexDefinition:
    """Derives the definition for a table whose index.json is lost or broken.

    Names of shards tell whether it is global, entries whether they carry ordering values, and the latest delta commit
    whether these are kept current. A window is recorded nowhere else: a windowed index gets one without partitions.
    """
    if RECORD_INDEX in state.config.own_partitions:
        return record_index_definition(is_partitioned=True, window=_KNOWS_NOTHING)
    metadata = state.metadata_with({})
    partitions = {data_partition_of_group(file.file_id) for file in metadata.list_files(RECORD_INDEX)}
    plain = record_index_definition(is_partitioned=partitions != {None})
    fields = state.config.ordering_fields
    if len(fields) != 1 or not _has_ordering(state.metadata_with({RECORD_INDEX: plain}), rule):
        return plain
    ordering = EntryOrdering(fields[0], are_current(metadata, EntryOrdering(fields[0], is_current=True)))
    return record_index_definition(is_partitioned=plain.is_partitioned, ordering=ordering)


def _has_ordering(metadata: MetadataTable, rule: MergeRule) -> bool:
    return any(merged.has_ordering for merged in merged_shards(metadata, RECORD_INDEX, rule))
