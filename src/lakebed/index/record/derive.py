"""The definition of a record index from what else tells of it, for a table whose index.json is lost or broken.

Its shards tell whether it is global, its entries whether they carry ordering values, and the last delta commit whether
these are kept current. Its window is recorded nowhere else.
"""

from __future__ import annotations

from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.definitions import metadata_of
from lakebed.index.record.current_entries import are_current
from lakebed.index.record.definition import record_index_definition
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.metadata import MetadataTable
from lakebed.metadata.merging import MergeRule
from lakebed.model.index import EntryOrdering, IndexDefinition, IndexWindow
from lakebed.table import TableState

_KNOWS_NOTHING = IndexWindow(first="\U0010ffff", newest=1)
"""A window in which no partition is: an index with it is never wrong."""


def derive_record_index(state: TableState, rule: MergeRule) -> IndexDefinition:
    """A global index has its shards from the beginning, a partitioned one gets them with its data partitions.

    An index for lakebed alone has lost its window: as far as the definition goes, it knows no partition.
    """
    if RECORD_INDEX in state.config.own_partitions:
        return record_index_definition(is_partitioned=True, window=_KNOWS_NOTHING)
    metadata = metadata_of(state, {})
    partitions = {data_partition_of_group(file.file_id) for file in metadata.list_files(RECORD_INDEX)}
    plain = record_index_definition(is_partitioned=partitions != {None})
    fields = state.config.ordering_fields
    if len(fields) != 1 or not _has_ordering(metadata_of(state, {RECORD_INDEX: plain}), rule):
        return plain
    ordering = EntryOrdering(fields[0], are_current(metadata, EntryOrdering(fields[0], is_current=True)))
    return record_index_definition(is_partitioned=plain.is_partitioned, ordering=ordering)


def _has_ordering(metadata: MetadataTable, rule: MergeRule) -> bool:
    for file_slice in metadata.slices(RECORD_INDEX):
        shard = metadata.shard(RECORD_INDEX, file_slice.group.file_id)
        if rule.shard(shard, has_base=file_slice.base is not None).has_ordering:
            return True
    return False
