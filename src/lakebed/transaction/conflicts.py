"""Which writes conflict: the rules as data, and the check that applies them.

Two writes that overlap in time conflict when they touch the same file groups, except that a log file may be appended
while its file group is compacted. The first to complete wins; the other has no effect and may run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from lakebed.model.commit import CommitMetadata
from lakebed.model.files import FileGroupId
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action
from lakebed.timeline import Timeline


class WriteKind(Enum):
    """The kind of a write, as far as conflicts depend on it."""

    UPSERT = "upsert"
    """Changes existing file groups: upserts, deletes, and inserts that fill small files."""
    INSERT = "insert"
    """Only adds new file groups."""
    COMPACTION = "compaction"
    CLUSTERING = "clustering"
    OVERWRITE = "overwrite"
    """Replaces whole partitions: overwrites and deletes of partitions."""

    @property
    def is_service(self) -> bool:
        """Whether it is a table service, to which no other service yields."""
        return self in (WriteKind.COMPACTION, WriteKind.CLUSTERING)


@dataclass(frozen=True, slots=True)
class WriteSet:
    """The write set: file groups it appends logs to, those it rewrites or replaces or adds, partitions it replaces."""

    kind: WriteKind
    appended: frozenset[FileGroupId] = frozenset()
    rewritten: frozenset[FileGroupId] = frozenset()
    added: frozenset[FileGroupId] = frozenset()
    partitions: frozenset[str] = frozenset()

    @property
    def changed(self) -> frozenset[FileGroupId]:
        """Existing file groups that the write changes."""
        return self.appended | self.rewritten

    @property
    def touched_partitions(self) -> frozenset[str]:
        """Every partition that the write touches."""
        groups = self.changed | self.added
        return self.partitions | frozenset(group.partition for group in groups)


@dataclass(frozen=True, slots=True)
class Rival:
    """Another write that overlapped in time, and what it touched."""

    instant: Instant
    writes: WriteSet


Overlap = Callable[[WriteSet, WriteSet], "frozenset[FileGroupId] | frozenset[str]"]


def _none(mine: WriteSet, other: WriteSet) -> frozenset[FileGroupId]:
    del mine, other
    return frozenset()


def _same_group(mine: WriteSet, other: WriteSet) -> frozenset[FileGroupId]:
    """Includes file groups that the other added: we saw them, but our files would sort below those that made them."""
    return mine.changed & (other.changed | other.added)


def _rewritten_group(mine: WriteSet, other: WriteSet) -> frozenset[FileGroupId]:
    """A log may be appended while its file group is compacted: it lies on top of the new base file."""
    return mine.rewritten & other.rewritten


def _same_partition(mine: WriteSet, other: WriteSet) -> frozenset[str]:
    return (mine.partitions & other.touched_partitions) | (other.partitions & mine.touched_partitions)


_U, _I = WriteKind.UPSERT, WriteKind.INSERT
_C, _K, _O = WriteKind.COMPACTION, WriteKind.CLUSTERING, WriteKind.OVERWRITE

RULES: dict[tuple[WriteKind, WriteKind], Overlap] = {
    (_U, _U): _same_group,
    (_U, _I): _same_group,
    (_U, _C): _rewritten_group,
    (_U, _K): _same_group,
    (_U, _O): _same_partition,
    (_I, _U): _none,
    (_I, _I): _none,
    (_I, _C): _none,
    (_I, _K): _none,
    (_I, _O): _same_partition,
    (_C, _U): _rewritten_group,
    (_C, _I): _same_group,
    (_C, _C): _same_group,
    (_C, _K): _same_group,
    (_C, _O): _same_partition,
    (_K, _U): _same_group,
    (_K, _I): _same_group,
    (_K, _C): _same_group,
    (_K, _K): _same_group,
    (_K, _O): _same_partition,
    (_O, _U): _same_partition,
    (_O, _I): _same_partition,
    (_O, _C): _same_partition,
    (_O, _K): _same_partition,
    (_O, _O): _same_partition,
}
"""What a committing write (first) may not share with one that overlapped it (second)."""


def find_conflict(mine: WriteSet, rivals: Iterable[Rival]) -> tuple[Instant, tuple[str, ...]] | None:
    """The first rival that conflicts with `mine`, and the file groups or partitions that both touch."""
    for rival in rivals:
        shared = RULES[mine.kind, rival.writes.kind](mine, rival.writes)
        if shared:
            return rival.instant, tuple(sorted(map(str, shared)))
    return None


def overlapping(timeline: Timeline, requested_at: InstantTime, seen: frozenset[InstantTime]) -> tuple[Instant, ...]:
    """Completed writes that overlapped the one requested at that time, or that its snapshot did not see.

    Neither test is enough alone: one misses a write that completed between our request and our snapshot, the other a
    write that was requested before ours and completed while ours ran.
    """
    return tuple(
        instant
        for instant in timeline.commits()
        if (instant.completed_at or "") > requested_at or instant.requested_at not in seen
    )


def write_set_of(instant: Instant, metadata: CommitMetadata) -> WriteSet:
    """The write set of a completed write, from its commit metadata."""
    replaced = _groups(metadata.replaced_file_ids.items())
    appended, rewritten, added = set(), set(), set()
    for partition, stats in metadata.write_stats.items():
        for stat in stats:
            group = FileGroupId(partition, stat.file_id)
            if "/." in f"/{stat.path}":
                appended.add(group)
            elif stat.prev_commit is None or stat.prev_commit == "null":
                added.add(group)
            else:
                rewritten.add(group)
    kind = _kind_of(instant, metadata, changes=bool(appended or rewritten))
    whole = frozenset(metadata.replaced_file_ids) | frozenset(metadata.write_stats) if kind is _O else frozenset()
    if kind is _C:  # A log compaction appends, but a base file that was made of the logs that it merged excludes it.
        appended, rewritten, added = set(), appended | rewritten | added, set()
    return WriteSet(kind, frozenset(appended), frozenset(rewritten) | replaced, frozenset(added), whole)


def _kind_of(instant: Instant, metadata: CommitMetadata, *, changes: bool) -> WriteKind:
    operation = (metadata.operation or "").upper()
    if metadata.compacted or operation in ("COMPACT", "LOG_COMPACT"):
        return WriteKind.COMPACTION
    if instant.action is Action.REPLACE_COMMIT:
        return WriteKind.CLUSTERING if operation == "CLUSTER" else WriteKind.OVERWRITE
    return WriteKind.UPSERT if changes else WriteKind.INSERT


def _groups(by_partition: Iterable[tuple[str, Iterable[str]]]) -> frozenset[FileGroupId]:
    return frozenset(FileGroupId(partition, file_id) for partition, ids in by_partition for file_id in ids)
