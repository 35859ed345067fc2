"""Lost indexes: the table had them, nobody dropped them, and they no longer exist.

A restore drops a metadata table that it cannot roll back; a process may die while it rebuilds an index; Apache Hudi
deletes the metadata table if a writer disables it. The first two record the loss in the table config, in the same
write. Of an index that another engine deleted, the definition remains.
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
    """Whether the table lost a global record index, which kept keys unique across partitions."""
    definition = state.definitions.get("record_index")
    is_global = definition is None or not definition.is_partitioned
    return is_global and bool(state.config.partition_fields) and "record_index" in lost_indexes(state)


_ORDER = ("files", "column_stats", "bloom_filters", "record_index", "partition_stats")
