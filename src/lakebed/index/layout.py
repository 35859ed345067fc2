"""The shards of an index over which keys are hashed: one set, or one per data partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from lakebed.format.metadata.keys import data_partition_of_group, group_file_id
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


def layout_of(file_ids: Iterable[str], partitions: Collection[str]) -> ShardLayout:
    """The layout of existing shards; `partitions` are the data partitions of the table."""
    shards: dict[str | None, tuple[str, ...]] = {}
    for file_id in file_ids:
        partition = data_partition_of_group(file_id)
        shards[partition] = (*shards.get(partition, ()), file_id)
    if None in shards:
        return ShardLayout(dict.fromkeys(partitions, shards[None]), shards[None])
    own = {partition: ids for partition, ids in shards.items() if partition is not None}
    return ShardLayout(own, tuple(file_id for ids in own.values() for file_id in ids))


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
