"""The contents of timeline files: commit metadata, and the plans and results of table services.

Where the format has null for an empty collection, values here have the empty collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.files import FileGroupId

NO_LOGS: Mapping[str, Any] = {
    "totalWriteErrors": 0,
    "totalLogRecords": 0,
    "totalUpdatedRecordsCompacted": 0,
    "totalLogBlocks": 0,
    "totalCorruptLogBlock": 0,
    "totalRollbackBlocks": 0,
    "totalLogFilesCompacted": 0,
    "totalLogReadTimeMs": 0,
    "totalLogSizeCompacted": 0,
}
"""Write statistics about merged logs, for files without any."""


@dataclass(frozen=True, slots=True)
class WriteStat:
    """One file that a write created or, in an inflight instant, one file group of its write set.

    `path` is relative to the table, and '' for a file that is only planned. `prev_commit` is the instant of the file
    that this one supersedes in its file group. `extra` has the remaining fields under their names in the format.
    """

    file_id: str
    path: str
    partition: str
    prev_commit: str | None = None
    num_writes: int = 0
    num_deletes: int = 0
    num_updates: int = 0
    num_inserts: int = 0
    total_write_bytes: int = 0
    file_size: int = 0
    prev_base_file: str | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] = ()
    log_version: int | None = None
    log_offset: int | None = None
    cdc_stats: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The content of a commit, delta commit or replace commit.

    `replaced_file_ids` are the file groups, by partition, that are hidden once the instant completes.
    """

    write_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    replaced_file_ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    operation: str | None = None
    compacted: bool = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema_json(self) -> str | None:
        """The table's Avro schema without meta columns, if the commit states it."""
        return self.extra_metadata.get("schema") or None

    @property
    def stats(self) -> Iterator[WriteStat]:
        """The write stats of all partitions."""
        return (stat for stats in self.write_stats.values() for stat in stats)


@dataclass(frozen=True, slots=True)
class InstantRef:
    """An instant as plans and results refer to it, by requested time and action."""

    requested_at: str
    action: str


@dataclass(frozen=True, slots=True)
class CleanedPartition:
    """Names of the files that a clean was to delete in one partition, did delete, and failed to delete."""

    partition: str
    policy: str
    planned: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    is_partition_deleted: bool = False


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """Names of the files, by partition, that a clean will delete; `partitions` are deleted as a whole.

    Slices as of `earliest_to_retain` and later are kept.
    """

    earliest_to_retain: InstantRef | None
    last_completed: str
    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """What a clean did. Instants before `earliest_to_retain` ('' if there is none) may have lost files."""

    started_at: str
    earliest_to_retain: str
    last_completed: str
    partitions: Mapping[str, CleanedPartition] = field(default_factory=dict)
    time_taken_ms: int = 0
    total_files_deleted: int = 0
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def deleted_files(self) -> dict[str, tuple[str, ...]]:
        """Names of the deleted files, by partition."""
        return {name: partition.deleted for name, partition in self.partitions.items()}


@dataclass(frozen=True, slots=True)
class RolledBackPartition:
    """What a rollback did in one partition; paths are absolute, sizes in bytes.

    `rollback_log_files` contain the command blocks with which version 6 rolls back `failed_log_files`.
    """

    partition: str
    deleted: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    rollback_log_files: Mapping[str, int] = field(default_factory=dict)
    failed_log_files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackMetadata:
    """What a rollback did. `commits` are the requested times of the instants that are undone."""

    started_at: str
    commits: tuple[str, ...]
    instants: tuple[InstantRef, ...] = ()
    partitions: Mapping[str, RolledBackPartition] = field(default_factory=dict)
    time_taken_ms: int = 0
    total_files_deleted: int = 0


@dataclass(frozen=True, slots=True)
class RestoreMetadata:
    """What a restore did: the rollback of each of the `instants`, by requested time, as far as its process made it."""

    started_at: str
    instants: tuple[InstantRef, ...] = ()
    undone: Mapping[str, RollbackMetadata] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """The instant that a rollback will undo, and names of the files, by partition, that it will delete."""

    target: InstantRef
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The instant that a table is restored to, and the instants to undo, in that order."""

    target: str
    instants: tuple[InstantRef, ...] = ()


@dataclass(frozen=True, slots=True)
class SavepointMetadata:
    """Names of the base and log files, by partition, that must be kept while the savepoint exists."""

    files: Mapping[str, tuple[str, ...]]
    saved_by: str = ""
    saved_at_ms: int = 0
    comments: str = ""


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to compact. `base_file` and `log_files` are file names."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None = None
    log_files: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The file slices that a compaction or log compaction will merge.

    `strategy` has the format's own fields, {} if the plan names no strategy.
    """

    operations: tuple[CompactionOperation, ...] = ()
    strategy: Mapping[str, Any] = field(default_factory=dict)
    preserve_meta_columns: bool = False
    skipped_partitions: tuple[str, ...] = ()
    extra_metadata: Mapping[str, str] = field(default_factory=dict)


def stats_by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    """Write stats grouped as in commit metadata."""
    found: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        found[stat.partition] = (*found.get(stat.partition, ()), stat)
    return found


@dataclass(frozen=True, slots=True)
class ClusteringSlice:
    """One file slice to cluster. `base_file` and `log_files` are file names."""

    partition: str
    file_id: str
    base_file: str | None
    log_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices whose rows go to `output_count` new file groups."""

    slices: tuple[ClusteringSlice, ...]
    output_count: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """The file slices that a clustering will rewrite, group by group.

    `strategy` is the Java class with which Apache Hudi would execute the plan, `params` its parameters.
    """

    groups: tuple[ClusteringGroup, ...] = ()
    strategy: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    preserve_meta_columns: bool = False
    extra_metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_groups(self) -> frozenset[FileGroupId]:
        """The file groups that will be replaced."""
        return frozenset(FileGroupId(piece.partition, piece.file_id) for group in self.groups for piece in group.slices)


@dataclass(frozen=True, slots=True)
class IndexedPartition:
    """A metadata-table partition that is built from the table as of the instant `up_to`."""

    partition: str
    up_to: str
    extra_metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The metadata-table partitions that an indexing instant will build, or has built."""

    partitions: tuple[IndexedPartition, ...] = ()
