"""Lost indexes: the table had them, nobody dropped them, and they no longer exist.

A restore drops a metadata table that it cannot roll back; a process may die while it rebuilds an index; Apache Hudi
deletes the metadata table if a writer disables it. The first two record the loss in the table config, in the same
write. Of an index that another engine deleted, the definition remains.
"""

from __future__ import annotations

from lakebed.index.keys import KEY_INDEX, is_global
from lakebed.index.kinds import all_kinds
from lakebed.model.index import lost_definitions
from lakebed.table import TableState


def lost_indexes(state: TableState) -> tuple[str, ...]:
    """The indexes, by metadata-table partition, that the table lost, in the order in which they can be built."""
    config = state.config
    named = (*config.metadata_partitions, *config.metadata_partitions_inflight)
    lost = {*config.lost_partitions, *lost_definitions(state.definitions, named)}
    order = [kind.partition for kind in all_kinds() if kind.is_built]
    return tuple(sorted(lost, key=lambda name: (order.index(name) if name in order else len(order), name)))


def has_lost_keys(state: TableState) -> bool:
    """Whether the table lost the index of its record keys."""
    return KEY_INDEX in lost_indexes(state)


def has_lost_global_index(state: TableState) -> bool:
    """Whether the table lost a global index of record keys, which kept keys unique across partitions."""
    return is_global(state.definitions) and bool(state.config.partition_fields) and has_lost_keys(state)
