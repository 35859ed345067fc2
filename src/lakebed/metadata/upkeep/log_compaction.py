"""Log compaction of the metadata table: merges the log files of a shard into one, on the same base file.

It makes reads of a shard with many small log files cheaper, and costs less than a compaction. The merged log files stay
until their slice is cleaned; the blocks of the new one name the instants that they replace.

Readers put such a block in the place of the newest one that it replaces, or read all blocks in the order of instants,
as Apache Hudi does by default. Both must give the same result as before. So a log compaction merges all logs that
completed before its own time, and its time is before that of any write that may still add a block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lakebed.format.file_names import encode_log_file_name
from lakebed.format.metadata.shard_files import encode_merged_log
from lakebed.metadata.merging import MergedLogs, MergeRule
from lakebed.metadata.shard import load_blocks_of, shard_of_blocks
from lakebed.metadata.shard_writes import log_stat, store_file
from lakebed.metadata.table import ROOT
from lakebed.metadata.upkeep.compaction import merged_log_counts, operation_of
from lakebed.model.commit import CompactionOperation, CompactionPlan, WriteStat
from lakebed.model.files import FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.view.slices import Completions

LOG_COMPACTION_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}
"""The strategy in a plan of a log compaction, as Apache Hudi writes it."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """Decides which log files a log compaction at an `instant` can merge.

    `unsettled` are instants of the table that are pending or about to be rolled back; their blocks are never merged.
    """

    instant: InstantTime
    unsettled: frozenset[str]
    completion_of: Completions

    def logs_of(self, file_slice: FileSlice) -> tuple[LogFile, ...]:
        """The log files of a slice to merge: all that completed before the instant, or none if that is not possible."""
        logs = tuple(log for log in file_slice.logs if (self.completion_of(log.instant) or "9") < self.instant)
        return logs if self.can_take(file_slice, {log.name for log in logs}) else ()

    def can_take(self, file_slice: FileSlice, names: Collection[str]) -> bool:
        """Whether merging these log files leaves the content of the slice unchanged."""
        if any(time <= self.instant for time in self.unsettled):
            return False
        taken = [log for log in file_slice.logs if log.name in names]
        others = [log for log in file_slice.logs if log.name not in names]
        return not any(log.instant in self.unsettled for log in taken) and all(map(self._stays_on_top, others))

    def _stays_on_top(self, log: LogFile) -> bool:
        """Whether a log file that is not merged will always sort after the merged ones.

        A compaction may have a time just before that of any unsettled instant. If it merged this log but not the new
        one, which completes only now, older entries would end up on top of newer ones.
        """
        newest = max(self.unsettled, default="")
        return log.instant > self.instant and (self.completion_of(log.instant) or "") > newest


def plan_log_compaction(
    slices: Iterable[FileSlice], horizon: Horizon, *, blocks_min: int, merged: Collection[str]
) -> CompactionPlan:
    """The log compaction of shards in which readers must read at least `blocks_min` log files.

    `merged` are the instants of earlier log compactions; readers skip the log files that those merged.
    """
    operations = []
    for file_slice in slices:
        logs = horizon.logs_of(file_slice)
        newest = max((log.instant for log in file_slice.logs if log.instant in merged), default="")
        if _completed_since(newest, logs, horizon) >= max(blocks_min, 2):
            operations.append(operation_of(file_slice, logs))
    return CompactionPlan(tuple(operations), strategy=LOG_COMPACTION_STRATEGY, preserve_meta_columns=True)


def slices_to_merge(
    operations: Iterable[CompactionOperation], slices: Iterable[FileSlice], horizon: Horizon
) -> tuple[FileSlice, ...]:
    """The slices of a plan whose log files can still be merged; the plan may be old.

    Shards that were compacted since, no longer exist, or got logs that prevent a merge are skipped; readers need no
    change there.
    """
    current = {file_slice.group: file_slice for file_slice in slices}
    found = (_to_merge(each, current, horizon) for each in operations)
    return tuple(file_slice for file_slice in found if file_slice is not None)


def _to_merge(
    operation: CompactionOperation, current: Mapping[FileGroupId, FileSlice], horizon: Horizon
) -> FileSlice | None:
    found = current.get(FileGroupId(operation.partition, operation.file_id))
    if found is None or (found.base.name if found.base else None) != operation.base_file:
        return None
    logs = tuple(log for log in found.logs if log.name in operation.log_files)
    is_whole = len(logs) == len(operation.log_files)
    return replace(found, logs=logs) if is_whole and horizon.can_take(found, operation.log_files) else None


def compact_shard_logs(
    storage: Storage, file_slice: FileSlice, rule: MergeRule, *, instant: InstantTime, token: str, created_ms: int
) -> WriteStat | None:
    """Stores the log file that replaces those of a slice; None if they have no entries and deletes.

    `rule` is the merge rule of the index, `token` is unique per attempt, `created_ms` the current time.
    """
    group = file_slice.group
    blocks = load_blocks_of(storage, file_slice, root=ROOT)
    merged = rule.logs(shard_of_blocks(blocks))
    if not len(merged):
        return None
    name = encode_log_file_name(group.file_id, instant, 1, token)
    data = encode_merged_log(
        instant,
        merged.deletes,
        merged.blocks,
        replaced=dict.fromkeys(block.instant for block in reversed(blocks)),
        mdt_partition=group.partition,
        schema=merged.schema,
        created_ms=created_ms,
    )
    store_file(storage, f"{ROOT}{file_slice.path(name)}", data)
    return _stat(file_slice, name, merged, blocks=len(blocks), size=len(data))


def _completed_since(merged_at: str, logs: tuple[LogFile, ...], horizon: Horizon) -> int:
    """Number of log files that readers must read: those completed since the last log compaction."""
    return sum((horizon.completion_of(log.instant) or "") >= merged_at for log in logs)


def _stat(file_slice: FileSlice, name: str, merged: MergedLogs, *, blocks: int, size: int) -> WriteStat:
    deletes = len(merged.deletes)
    stat = log_stat(
        file_slice.group,
        name,
        prev_commit=file_slice.base_instant,
        entries=len(merged) - deletes,
        deletes=deletes,
        size=size,
    )
    return replace(stat, extra=merged_log_counts(file_slice.logs, merged.log_records, len(merged), blocks))
