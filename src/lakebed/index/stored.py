"""An index as stored in the metadata table: its shards, and their entries for a new set of shards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.engines import map_bounded
from lakebed.errors import InvalidInputError
from lakebed.format.metadata.keys import data_partition_of_group
from lakebed.index.build import Source, join_unique
from lakebed.index.kinds import kind_of, merge_shard
from lakebed.index.layout import ShardLayout, global_layout, partitioned_layout
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries, split_entries
from lakebed.metadata.merging import Form
from lakebed.model.files import FileSlice
from lakebed.model.index import IndexDefinition
from lakebed.table import TableState

_SLICES_PER_PASS = 64
"""Shards per pass: entries of that many are in memory at once."""


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """An index of a table at one moment, with the newest slice of each shard."""

    partition: str
    metadata: MetadataTable
    slices: tuple[FileSlice, ...]

    @classmethod
    def of(cls, state: TableState, partition: str) -> StoredIndex:
        """The index of a table; raises InvalidInputError if it has none."""
        if not isinstance(state.metadata, MetadataTable) or not state.metadata.has(partition):
            word = kind_of(partition).words[0]
            raise InvalidInputError(
                f"table {state.config.name} has no {word} index", hint=f'create it: create("{partition}")'
            )
        return cls(partition, state.metadata, state.metadata.slices(partition))

    @property
    def file_ids(self) -> frozenset[str]:
        """The file ids of its shards."""
        return frozenset(file_slice.group.file_id for file_slice in self.slices)

    @property
    def shards(self) -> dict[str, tuple[str, ...]]:
        """File ids of shards, in shard order, by data partition."""
        found: dict[str, tuple[str, ...]] = {}
        for file_slice in self.slices:
            file_id = file_slice.group.file_id
            found[data_partition(file_id)] = (*found.get(data_partition(file_id), ()), file_id)
        return found

    @property
    def partitions(self) -> frozenset[str]:
        """The data partitions that have their own shards; only "" if the index is global."""
        return frozenset(data_partition(file_id) for file_id in self.file_ids)

    @property
    def definition(self) -> IndexDefinition | None:
        """Its definition in index.json."""
        return self.metadata.definitions.get(self.partition)

    @property
    def has_ordering(self) -> bool:
        """Whether its entries carry ordering values."""
        return self.definition is not None and self.definition.ordering is not None

    def layout(self, shards: int) -> ShardLayout:
        """A layout of so many shards; per data partition if the index is partitioned."""
        if self.definition is None or not self.definition.is_partitioned:
            return global_layout(self.partition, self.partitions, shards)
        return partitioned_layout(self.partition, dict.fromkeys(self.partitions, shards))

    def source(self, layout: ShardLayout) -> Source:
        """The stored entries, redistributed over the shards of a layout."""

        def entries(file_slice: FileSlice, wanted: Collection[str]) -> Mapping[str, Entries]:
            file_id = file_slice.group.file_id
            shard = self.metadata.shard(self.partition, file_id)
            has_base = file_slice.base is not None
            merged = merge_shard(shard, self.partition, has_base=has_base, form=Form(has_ordering=self.has_ordering))
            found = Entries(merged.keys, merged.values, pa.array([], pa.string()))
            return split_entries(found, layout.shards[data_partition(file_id)], wanted=wanted)

        def read(wanted: Collection[str]) -> Iterator[Mapping[str, Entries]]:
            return map_bounded(self.slices, lambda file_slice: entries(file_slice, wanted))

        passes = -(-len(self.slices) // _SLICES_PER_PASS)
        return Source(read, len(self.slices), join_unique, max(passes, 1))


def data_partition(file_id: str) -> str:
    """The data partition of a shard; "" if the index is global."""
    return data_partition_of_group(file_id) or ""
