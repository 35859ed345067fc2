"""Indexes that a table had and lost: nobody dropped them, and they are not there.

A restore does without a metadata table that it cannot carry along; a process may die while it builds an index anew;
Apache Hudi deletes the metadata table of a table that it writes to without one. The first two note in the table's
configuration what is lost, in the same step. Of what another engine did away with, the definition is left.
"""

from __future__ import annotations

from lakebed.model.index import lost_definitions
from lakebed.table.state import TableState


def lost_indexes(state: TableState) -> tuple[str, ...]:
    """The indexes, by metadata-table partition, that the table lost, in the order in which they can be built."""
    config = state.config
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    lost = {*config.lost_partitions, *lost_definitions(state.definitions, named)}
    return tuple(sorted(lost, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)))


def has_lost_global_index(state: TableState) -> bool:
    """Whether keys were unique in all partitions together, by a record index that is lost."""
    definition = state.definitions.get("record_index")
    is_global = definition is None or not definition.is_partitioned
    return is_global and bool(state.config.partition_fields) and "record_index" in lost_indexes(state)


_ORDER = ("files", "column_stats", "bloom_filters", "record_index", "partition_stats")
