"""Finds what writes have added to the shards of an index since a snapshot of it.

These are the log files of delta commits that are visible now and were not then. A compaction of the metadata table in
between does no harm: the log files that it merged stay until they are cleaned. If the changes cannot be determined for
certain, there is no answer and the caller starts again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.engine.engines import map_bounded
from lakebed.format.file_names import decode_data_file_name, log_merge_order
from lakebed.index.kinds import kind_of, merge_logs
from lakebed.index.layout import ShardLayout
from lakebed.index.stored import StoredIndex, data_partition
from lakebed.metadata import MetadataTable
from lakebed.metadata.entries import Entries, concat_entries, split_entries
from lakebed.metadata.merging import Form
from lakebed.metadata.shard import load_blocks_of, shard_of_blocks
from lakebed.metadata.table import ROOT
from lakebed.model.commit import CommitMetadata
from lakebed.model.files import FileGroupId, FileSlice, LogFile
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action
from lakebed.storage import Storage
from lakebed.timeline import Timeline
from lakebed.view.blocks import FiledBlock


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of an index.

    `counted` has the visible instants on the metadata table's active timeline with their completion times; `first` is
    the earliest request there.
    """

    file_ids: frozenset[str]
    partitions: frozenset[str]
    definition: IndexDefinition | None
    counted: Mapping[InstantTime, InstantTime]
    first: InstantTime | None

    @classmethod
    def of(cls, index: StoredIndex) -> Seen:
        """A snapshot of the index as it is now."""
        timeline = index.metadata.timeline
        counted = index.metadata.completions(i.requested_at for i in timeline.commits())
        return cls(index.file_ids, index.partitions, index.definition, counted, timeline.first_requested_at)


@dataclass(frozen=True, slots=True)
class Changes:
    """Log files added by writes, by old shard, and the completion times of these writes."""

    logs: Mapping[str, tuple[LogFile, ...]]
    completed: tuple[InstantTime, ...]


def find_changes(seen: Seen, now: StoredIndex, timeline: Timeline) -> Changes | None:
    """What was added since; `timeline` is the data table's. None if unknown, or the index was replaced."""
    if not _is_same(seen, now) or not _still_counts(seen, now.metadata):
        return None
    added = _added_commits(seen, now.metadata)
    documents = now.metadata.documents
    written = None if added is None else [(i, documents.commit(i)) for i in added]
    if written is None or not all(_is_write(i, document, timeline) for i, document in written):
        return None
    instants = {i.requested_at for i, _ in written}
    files = [file for file in now.metadata.list_files(now.partition) if file.instant in instants]
    logs = [file for file in files if isinstance(file, LogFile)]
    if len(logs) < len(files) or not _named_files(now.partition, written) <= {log.name for log in logs}:
        return None
    of_index = [log for log in logs if log.file_id in now.file_ids]
    return Changes(_by_shard(of_index), tuple(i.completed_at for i, _ in written if i.completed_at is not None))


class ChangeReader:
    """Reads log files that writes have added, each only once."""

    def __init__(self, storage: Storage, partition: str) -> None:
        self._storage, self._partition = storage, partition
        self._blocks: dict[str, tuple[FiledBlock, ...]] = {}

    def has(self, changes: Changes) -> bool:
        """Whether all log files have been read."""
        return all(log.name in self._blocks for logs in changes.logs.values() for log in logs)

    def load(self, changes: Changes) -> None:
        """Reads log files that have not been read yet."""
        missing = [log for logs in changes.logs.values() for log in logs if log.name not in self._blocks]
        for name, blocks in map_bounded(missing, self._load):
            self._blocks[name] = blocks

    def entries(self, changes: Changes, layout: ShardLayout, *, has_ordering: bool) -> dict[str, Entries]:
        """The newest entry or delete of each key, for the shards of a new layout, by file id."""
        self.load(changes)
        parts: dict[str, list[Entries]] = {}
        for file_id, logs in changes.logs.items():
            blocks = [block for log in logs for block in self._blocks[log.name]]
            merged = merge_logs(shard_of_blocks(blocks), self._partition, form=Form(has_ordering=has_ordering))
            nothing = pa.array([], pa.string()), pa.array([], pa.binary())
            entries = Entries(*(merged.blocks[0] if merged.blocks else nothing), merged.deletes)
            for new_id, found in split_entries(entries, layout.shards[data_partition(file_id)]).items():
                parts.setdefault(new_id, []).append(found)
        return {new_id: concat_entries(of_shard) for new_id, of_shard in parts.items()}

    def _load(self, log: LogFile) -> tuple[str, tuple[FiledBlock, ...]]:
        part = FileSlice(FileGroupId(self._partition, log.file_id), log.instant, None, (log,))
        return log.name, load_blocks_of(self._storage, part, root=ROOT)


def _is_same(seen: Seen, now: StoredIndex) -> bool:
    """Whether it may be the same index; new data partitions may have added shards."""
    new = {data_partition(file_id) for file_id in now.file_ids - seen.file_ids}
    return seen.definition == now.definition and seen.file_ids <= now.file_ids and new.isdisjoint(seen.partitions)


def _still_counts(seen: Seen, metadata: MetadataTable) -> bool:
    """Whether no instant of the snapshot has been rolled back."""
    return metadata.completions(seen.counted) == dict(seen.counted)


def _added_commits(seen: Seen, metadata: MetadataTable) -> list[Instant] | None:
    """Delta commits since, without compactions; None if some are archived already."""
    timeline = metadata.timeline
    newest = max(seen.counted.values(), default=InstantTime(""))
    if timeline.first_requested_at != seen.first and metadata.archived_after(newest):
        return None
    counted = metadata.completions(i.requested_at for i in timeline.commits())
    new = [i for i in timeline.commits() if i.requested_at in counted and i.requested_at not in seen.counted]
    return [i for i in new if i.action is not Action.COMMIT and i.requested_at not in timeline.log_compactions]


def _is_write(instant: Instant, document: CommitMetadata, timeline: Timeline) -> bool:
    """Whether a delta commit belongs to a write.

    It has the time of an instant of the table, or only partition statistics, which a write added early. Others built or
    resharded an index.
    """
    owners = {i.requested_at for i in timeline.completed() if i.action is not Action.INDEXING}
    names = document.write_stats.keys()
    is_ahead = len(names) == 1 and all(kind_of(name).newest_request_wins for name in names)
    return instant.action is Action.DELTA_COMMIT and (instant.requested_at in owners or is_ahead)


def _named_files(partition: str, written: Iterable[tuple[Instant, CommitMetadata]]) -> set[str]:
    """Names of the files that delta commits added to the index.

    Delta commits of Apache Hudi also name older log files.
    """
    found = set()
    for instant, document in written:
        for stat in document.write_stats.get(partition, ()):
            for name in (stat.path.rpartition("/")[2], *stat.log_files):
                file = decode_data_file_name(name)
                if file is None or file.instant == instant.requested_at:
                    found.add(name)
    return found


def _by_shard(logs: Collection[LogFile]) -> dict[str, tuple[LogFile, ...]]:
    """Log files by shard, in merge order."""
    found: dict[str, tuple[LogFile, ...]] = {}
    for log in sorted(logs, key=log_merge_order):
        found[log.file_id] = (*found.get(log.file_id, ()), log)
    return found


def is_contested(changes: Changes, pending: Sequence[Instant]) -> bool:
    """Whether a pending write was requested after one of these writes completed.

    It may change the same keys. Its log file has an earlier instant than one written for the changes now, and would
    sort below it.
    """
    writes = [i.requested_at for i in pending if i.action.when_completed.changes_data]
    return bool(changes.completed and writes) and min(changes.completed) < max(writes)
