"""What index.json says of column statistics."""

from __future__ import annotations

import pyarrow as pa

from lakebed.format.metadata.column_stats import value_type_of
from lakebed.index.column_stats.ranges import COLUMN_STATS
from lakebed.model.index import IndexDefinition
from lakebed.model.words import COMMIT_TIME, PARTITION_PATH, RECORD_KEY

STATS_COLUMNS_MAX = 32
"""Data columns that get statistics unless others are asked for."""


def column_stats_definition(schema: pa.Schema, *, has_meta_columns: bool) -> IndexDefinition:
    """The column statistics that a table with these data columns gets by default."""
    meta = (COMMIT_TIME, PARTITION_PATH, RECORD_KEY) if has_meta_columns else ()
    columns = [field.name for field in schema if value_type_of(field.type) is not None]
    fields = (*meta, *columns[:STATS_COLUMNS_MAX])
    return IndexDefinition(COLUMN_STATS, COLUMN_STATS, COLUMN_STATS, source_fields=fields, version="V2")
