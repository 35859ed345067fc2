"""Which partitions of the metadata table a commit must write to, and over which shards.

A partition that is ready must have all its shards. One that is being built counts as soon as it surely has them: keys
that were hashed over fewer would be looked for in other shards once the index is ready. Until then it is left out, and
the delta commit does not claim to cover it. A plan alone obliges nobody: Apache Hudi makes shards when it executes one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from lakebed.errors import CorruptTableError
from lakebed.format.metadata.keys import data_partition_of_group, group_index
from lakebed.index.kinds import kind_of
from lakebed.metadata.shard_writes import FIRST_TOKEN, Groups
from lakebed.metadata.table import ROOT, MetadataTable, list_partition_files
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.transaction.index_plans import pending_plans
from lakebed.transaction.section import Section

_LOG = logging.getLogger(__name__)
COVERS = "lakebed.covers"
"""In a delta commit, while an index is being built: the partitions that it has entries for, or nothing to say to."""


@dataclass(frozen=True, slots=True)
class Obliged:
    """File ids of the shards that a commit writes to, by metadata-table partition, in shard order.

    Of these partitions some are still `building`; `left_out` are those that are not ready for entries yet.
    """

    groups: Groups
    building: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions to write to."""
        return tuple(self.groups)

    @property
    def extra_metadata(self) -> dict[str, str]:
        """What the delta commit says for whoever builds an index."""
        return {COVERS: ",".join(self.groups)} if self.building or self.left_out else {}


def find_obliged(section: Section, metadata: MetadataTable) -> Obliged:
    """The partitions that a commit must write to, under the lock and by a metadata table that is of today."""
    config, storage = section.config, section.ports.storage
    groups = {partition: _ready_groups(storage, metadata, partition) for partition in config.metadata_partitions}
    planned = planned_shards(storage, config, section.timeline)
    named = [p for p in dict.fromkeys((*config.metadata_partitions_inflight, *planned)) if p not in groups]
    begun = {instant.requested_at for instant in section.metadata_timeline} if named else set()
    building = {
        p: find_groups(storage, p, begun, planned.get(p)) if kind_of(p).is_defined(metadata.definitions) else None
        for p in named
    }
    left_out = tuple(partition for partition, found in building.items() if found is None)
    for partition in left_out:
        _LOG.warning(
            "%s is being built by another process and is not ready for entries: this commit is not in it. When it is "
            "built, validate it: table.indexes.validate(%r)",
            partition,
            partition,
        )
    whole = {partition: found for partition, found in building.items() if found is not None}
    return Obliged({**groups, **whole}, frozenset(whole), left_out)


@dataclass(frozen=True, slots=True)
class PlannedShards:
    """How many shards a plan makes of a partition, and the delta commit that makes them, if the plan tells."""

    count: int
    build: InstantTime | None = None


def find_groups(
    storage: Storage, partition: str, begun: Collection[str], planned: PlannedShards | None = None
) -> tuple[str, ...] | None:
    """The shards of a partition that is being built; None as long as there may be more to come.

    They are all there if as many were made as planned; writes add shards for new data partitions. Where no plan says
    how many, they are if their build is among the delta commits that have `begun`: Apache Hudi makes all shards of a
    partition, and only then begins to fill them.
    """
    files = list_partition_files(storage, partition)
    found = _group_ids(files)
    if not _are_numbered(found):
        return None
    first = [file for file in files if isinstance(file, LogFile) and file.write_token == FIRST_TOKEN]
    if planned is not None:
        made = {file.file_id for file in first if planned.build in (None, file.instant)}
        return found if len(made) == planned.count else None
    return found if first and all(file.instant in begun for file in first) else None


def planned_shards(storage: Storage, config: TableConfig, timeline: Timeline) -> dict[str, PlannedShards]:
    """The shards of partitions that are being built by plans that tell of them."""
    found = {}
    for plan in pending_plans(storage, config, timeline):
        for partition in plan.partitions:
            count = plan.shards_of(partition)
            if count is not None:
                found[partition] = PlannedShards(count, plan.build_of(partition))
    return found


def _ready_groups(storage: Storage, metadata: MetadataTable, partition: str) -> tuple[str, ...]:
    if metadata.has(partition):
        return tuple(file_slice.group.file_id for file_slice in metadata.slices(partition))
    found = _group_ids(list_partition_files(storage, partition))
    if not _are_numbered(found):
        raise CorruptTableError(
            "a shard is missing",
            path=f"{ROOT}{partition}",
            hint=f"rebuild the index: table.indexes.create({partition!r}, rebuild=True)",
        )
    return found


def list_groups(storage: Storage, partitions: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The file groups of metadata-table partitions: whatever has a file, whether it counts or not."""
    return {partition: _group_ids(list_partition_files(storage, partition)) for partition in partitions}


def _group_ids(files: Sequence[BaseFile | LogFile]) -> tuple[str, ...]:
    # By number, not by name: `%04d` runs over after 9999.
    return tuple(sorted({file.file_id for file in files}, key=_order))


def _order(file_id: str) -> tuple[str, int]:
    return data_partition_of_group(file_id) or "", group_index(file_id) or 0


def _are_numbered(file_ids: Sequence[str]) -> bool:
    """Whether the shards, of each data partition where there are several sets, count up from 0."""
    counts: dict[str, int] = {}
    for of_partition, number in map(_order, file_ids):
        if number != counts.setdefault(of_partition, 0):
            return False
        counts[of_partition] += 1
    return True
