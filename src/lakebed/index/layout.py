"""The shards of an index over which keys are hashed: one set, or one per data partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from lakebed.format.metadata.keys import group_file_id
from lakebed.index.build import Source
from lakebed.metadata.bootstrap import group_ids


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """File ids of shards, by data partition (the same for all if the index is global), and all together."""

    shards: Mapping[str, tuple[str, ...]]
    file_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """The shards planned for a new index, and the source of entries for these or other shards."""

    layout: ShardLayout
    source: Callable[[ShardLayout], Source]


def global_layout(mdt_partition: str, partitions: Collection[str], count: int) -> ShardLayout:
    """The layout of a global index: one set of shards."""
    file_ids = group_ids(mdt_partition, count)
    return ShardLayout(dict.fromkeys(partitions, file_ids), file_ids)


def partitioned_layout(mdt_partition: str, counts: Mapping[str, int]) -> ShardLayout:
    """The layout of a partitioned index: a set of shards per data partition."""
    shards = {
        partition: tuple(group_file_id(mdt_partition, index, partition) for index in range(count))
        for partition, count in sorted(counts.items())
    }
    return ShardLayout(shards, tuple(file_id for file_ids in shards.values() for file_id in file_ids))
