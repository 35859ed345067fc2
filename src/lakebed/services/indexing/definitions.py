"""Index definitions from what else tells of them, for a table whose index.json is lost or broken.

Of the record index its shards tell whether it is global, its entries whether they carry ordering values, and the last
delta commit whether these are kept current. Columns that have statistics are those that entries name. What a secondary
or expression index is on, and the window of a record index, is said nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.index_definitions import salvage_index_definitions
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.format.metadata.schema import stored_schema
from lakebed.index.column_stats.kind import column_stats_definition
from lakebed.index.column_stats.ranges import COLUMN_STATS
from lakebed.index.kinds import merge_shard
from lakebed.index.record.current_entries import are_current
from lakebed.index.record.kind import record_index_definition
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.metadata import MetadataTable, find_metadata_table
from lakebed.model.index import EntryOrdering, IndexDefinition, IndexWindow
from lakebed.model.metadata import ColumnStats
from lakebed.table import TableState
from lakebed.table.definitions import UNDERIVABLE

_KNOWS_NOTHING = IndexWindow(first="\U0010ffff", newest=1)
"""A window in which no partition is: an index with it is never wrong."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Definitions of indexes, and the indexes of which nothing tells what they are on.

    An index that has lost its window, as far as definitions go, knows no partition: it is of no use, and does no harm.
    """

    definitions: Mapping[str, IndexDefinition]
    unknown: tuple[str, ...] = ()
    without_window: tuple[str, ...] = ()


def defined_state(state: TableState) -> tuple[TableState, Derived, CorruptTableError | None]:
    """The table with all definitions that can be had, and what is wrong with those that are stored, if something is."""
    try:
        metadata = state.metadata
        if isinstance(metadata, MetadataTable) and metadata.has(RECORD_INDEX):
            metadata.check_defined(RECORD_INDEX)
        return state, Derived(state.definitions), None
    except CorruptTableError as error:
        if error.path != state.config.index_definitions_path:
            raise
        derived = derive_definitions(state)
        return state.with_definitions(derived.definitions), derived, error


def derive_definitions(state: TableState) -> Derived:
    """Definitions of the indexes that the configuration names: as stored if they can be read, else as derived."""
    config = state.config
    known = salvage_index_definitions(state.storage.find(config.index_definitions_path) or b"")
    found = {name: each for name, each in known.items() if name in config.metadata_partitions}
    missing = [name for name in config.metadata_partitions if name not in found]
    without_window = tuple(name for name in missing if name == RECORD_INDEX and name in config.own_partitions)
    if RECORD_INDEX in missing:
        found[RECORD_INDEX] = (
            record_index_definition(is_partitioned=True, window=_KNOWS_NOTHING)
            if without_window
            else _record_index(state)
        )
    if COLUMN_STATS in missing:
        found[COLUMN_STATS] = _column_stats(state)
    unknown = tuple(name for name in missing if name.startswith(UNDERIVABLE))
    return Derived(found, unknown, without_window)


def _record_index(state: TableState) -> IndexDefinition:
    """A global index has its shards from the beginning, a partitioned one gets them with its data partitions."""
    metadata = _metadata(state, {})
    partitions = {data_partition_of_group(file.file_id) for file in metadata.list_files(RECORD_INDEX)}
    plain = record_index_definition(is_partitioned=partitions != {None})
    fields = state.config.ordering_fields
    if len(fields) != 1 or not _has_ordering(_metadata(state, {RECORD_INDEX: plain})):
        return plain
    ordering = EntryOrdering(fields[0], are_current(metadata, EntryOrdering(fields[0], is_current=True)))
    return record_index_definition(is_partitioned=plain.is_partitioned, ordering=ordering)


def _has_ordering(metadata: MetadataTable) -> bool:
    for file_slice in metadata.slices(RECORD_INDEX):
        shard = metadata.shard(RECORD_INDEX, file_slice.group.file_id)
        if merge_shard(shard, RECORD_INDEX, has_base=file_slice.base is not None).has_ordering:
            return True
    return False


def _column_stats(state: TableState) -> IndexDefinition:
    """That of the columns that entries name, in the table's order; without entries that of a new table."""
    try:
        schema = state.data_schema(state.latest)
    except InvalidInputError:  # Nothing has been written yet that declares columns.
        schema = pa.schema([])
    default = column_stats_definition(schema, has_meta_columns=state.config.has_meta_columns)
    named = {*_columns_with_stats(_metadata(state, {}))}
    if not named:
        return default
    # In the order of a new table's columns; nested ones, and those that the table has no longer, come last.
    known = dict.fromkeys((*default.source_fields, *schema.names, *sorted(named)))
    return replace(default, source_fields=tuple(name for name in known if name in named))


def _columns_with_stats(metadata: MetadataTable) -> Iterator[str]:
    for file_slice in metadata.slices(COLUMN_STATS):
        shard = metadata.shard(COLUMN_STATS, file_slice.group.file_id)
        merged = merge_shard(shard, COLUMN_STATS, has_base=file_slice.base is not None)
        for value in merged.values.to_pylist():
            payload = decode_metadata_record(value, stored_schema(), path=COLUMN_STATS).payload
            if isinstance(payload, ColumnStats) and not payload.is_deleted:
                yield payload.column


def _metadata(state: TableState, definitions: Mapping[str, IndexDefinition]) -> MetadataTable:
    found = find_metadata_table(state.storage, state.config, state.timeline, definitions)
    if not isinstance(found, MetadataTable):
        raise CorruptTableError(found.reason, path=state.config.index_definitions_path)
    return found
