"""Value ranges of files and partitions, read from `column_stats` and `partition_stats`; pruning by those of files."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa

from lakebed.filter.ranges import may_match
from lakebed.format.metadata.column_ranges import COLUMN_STATS_SCHEMA, column_stats_values, decode_column_stats
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.keys import column_stats_prefix
from lakebed.format.metadata.records import decode_metadata_record, encode_column_stats_record, merge_column_stats
from lakebed.index.prune import Kept, NotUsed, Query, Slices, align, masked, ranged_columns, serving
from lakebed.metadata.shard import StoredValue
from lakebed.metadata.table import MetadataTable
from lakebed.model.metadata import ColumnStats

COLUMN_STATS, PARTITION_STATS = "column_stats", "partition_stats"


def find_column_ranges(metadata: MetadataTable, partition: str, column: str, arrow_type: pa.DataType) -> pa.Table:
    """Ranges of one column: file_name (or partition path), min, max, null_count, value_count, is_tight_bound."""
    prefix = column_stats_prefix(column)
    definition = metadata.definitions.get(COLUMN_STATS)
    version = definition.version if definition is not None else "V2"
    by_schema: dict[str, list[tuple[str, StoredValue]]] = {}
    for shard in metadata.shards(partition):
        for key, layers in shard.scan_prefix(prefix).items():
            stored = layers[-1] if partition != PARTITION_STATS or len(layers) == 1 else _widened(layers, version)
            by_schema.setdefault(stored.schema, []).append((key, stored))
    tables = []
    for schema, entries in by_schema.items():
        keys = pa.array([key.encode() for key, _ in entries], pa.binary())
        values = pa.array([stored.value for _, stored in entries], pa.binary())
        stats = decode_column_stats(keys, values, schema, path=entries[0][1].path)
        tables.append(column_stats_values(stats, column, arrow_type))
    return pa.concat_tables(tables) if tables else _empty_ranges(arrow_type)


def _widened(layers: list[StoredValue], version: str) -> StoredValue:
    """The newest of several entries of a partition, widened by older ones if it is not marked as tight."""
    stats = [decode_metadata_record(each.value, each.schema, path=each.path).payload for each in layers]
    known = [each for each in stats if isinstance(each, ColumnStats)]
    if not known or known[-1].is_tight_bound:
        return layers[-1]
    value = encode_column_stats_record(reduce(merge_column_stats, known), version=version, partition_stats=True)
    return StoredValue(value, stored_schema(), layers[-1].path)


def read_column_stats(metadata: MetadataTable, partition: str) -> pa.Table:
    """All entries of a statistics partition, the newest per key."""
    tables = [shard.read_all(lambda layer: layer.decode(decode_column_stats)) for shard in metadata.shards(partition)]
    return pa.concat_tables([COLUMN_STATS_SCHEMA.empty_table(), *(table for table in tables if table is not None)])


def _empty_ranges(arrow_type: pa.DataType) -> pa.Table:
    columns = {"file_name": pa.string(), "min": arrow_type, "max": arrow_type, "null_count": pa.int64()}
    return pa.schema([*columns.items(), ("value_count", pa.int64()), ("is_tight_bound", pa.bool_())]).empty_table()


def prune_by_column_stats(query: Query, slices: Slices) -> Kept | NotUsed:
    """Keeps slices of which some file may have a matching row."""
    metadata = serving(query, COLUMN_STATS)
    if isinstance(metadata, NotUsed):
        return metadata
    names = [path.rpartition("/")[2] for file_slice in slices for path in file_slice.paths]
    ranges = {}
    for column, kind in ranged_columns(query):
        table = find_column_ranges(metadata, COLUMN_STATS, column, kind)
        if table.num_rows:
            ranges[column] = align(table, names)
    if not ranges:
        return NotUsed("it has no ranges of the filter's columns")
    matching = may_match(query.predicate, ranges, len(names))
    owner = np.repeat(np.arange(len(slices)), [len(file_slice.paths) for file_slice in slices])
    # A slice is excluded only if all of its files are. The newest file with values of a matching row is never excluded:
    # it has no ranges for columns that it lacks.
    kept = np.zeros(len(slices), bool)
    kept[owner[matching]] = True
    return Kept(masked(slices, kept), f"by ranges of {', '.join(sorted(ranges))} per file")
