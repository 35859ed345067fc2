"""What index.json says of column statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.format.metadata.column_stats import value_type_of
from lakebed.format.metadata.records import decode_metadata_record
from lakebed.format.metadata.schema import stored_schema
from lakebed.index.column_stats.ranges import COLUMN_STATS
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import MergeRule
from lakebed.model.index import IndexDefinition
from lakebed.model.metadata import ColumnStats
from lakebed.model.words import COMMIT_TIME, PARTITION_PATH, RECORD_KEY
from lakebed.table import TableState

STATS_COLUMNS_MAX = 32
"""Data columns that get statistics unless others are asked for."""


def column_stats_definition(schema: pa.Schema, *, has_meta_columns: bool) -> IndexDefinition:
    """The column statistics that a table with these data columns gets by default."""
    meta = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY) if has_meta_columns else ()
    columns = [field.name for field in schema if value_type_of(field.type) is not None]
    fields = (*meta, *columns[:STATS_COLUMNS_MAX])
    return IndexDefinition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, source_fields=fields, version="V2")


def derive_column_stats(state: TableState, rule: MergeRule) -> IndexDefinition:
    """That of the columns that entries name, in the table's order; without entries that of a new table."""
    try:
        schema = state.data_schema(state.latest)
    except InvalidInputError:  # Nothing has been written yet that declares columns.
        schema = pa.schema([])
    default = column_stats_definition(schema, has_meta_columns=state.config.has_meta_columns)
    named = {*_columns_with_stats(state.metadata_with({}), rule)}
    if not named:
        return default
    # In the order of a new table's columns; nested ones, and those that the table has no longer, come last.
    known = dict.fromkeys((*default.source_fields, *schema.names, *sorted(named)))
    return replace(default, source_fields=tuple(name for name in known if name in named))


def _columns_with_stats(metadata: MetadataTable, rule: MergeRule) -> Iterator[str]:
    for file_slice in metadata.slices(COLUMN_STATS):
        shard = metadata.shard(COLUMN_STATS, file_slice.group.file_id)
        merged = rule.shard(shard, has_base=file_slice.base is not None)
        for value in merged.values.to_pylist():
            payload = decode_metadata_record(value, stored_schema(), path=COLUMN_STATS).payload
            if isinstance(payload, ColumnStats) and not payload.is_deleted:
                yield payload.column
