"""Log compaction of the metadata table: the log files of a shard become one, which lies on the same base file.

It makes reads of a shard with many small log files cheaper, for less than a compaction costs. The log files that were
merged stay until their slice is cleaned; the blocks of the new one say whose place they take.

Readers put such a block where the newest that it replaces was; or they read all blocks by the times of their instants,
as Apache Hudi does unless told otherwise. Both must come to what the blocks came to before. So a log compaction takes
all that completed before its own time, and its time is before that of any write that may still put a block there.
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
"""Who is to execute the plan, as Apache Hudi says it in plans of its own."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What a log compaction at an `instant` can take in.

    `unsettled` are the instants of the table that are pending or about to be undone: the blocks that they have, or will
    have, stay by themselves.
    """

    instant: InstantTime
    unsettled: frozenset[str]
    completion_of: Completions

    def logs_of(self, file_slice: FileSlice) -> tuple[LogFile, ...]:
        """The log files of a slice that it takes in, all that completed before it; none if that cannot be."""
        logs = tuple(log for log in file_slice.logs if (self.completion_of(log.instant) or "9") < self.instant)
        return logs if self.can_take(file_slice, {log.name for log in logs}) else ()

    def can_take(self, file_slice: FileSlice, names: Collection[str]) -> bool:
        """Whether a slice comes to the same if these log files of it become one."""
        if any(time <= self.instant for time in self.unsettled):
            return False
        taken = [log for log in file_slice.logs if log.name in names]
        others = [log for log in file_slice.logs if log.name not in names]
        return not any(log.instant in self.unsettled for log in taken) and all(map(self._stays_on_top, others))

    def _stays_on_top(self, log: LogFile) -> bool:
        """Whether a log file that is left out counts after those that are taken in, whatever comes.

        A compaction may take a time just before that of any unsettled instant. If it took this log in, and not the
        merged one, which completes only now, older entries would come to lie on newer ones.
        """
        newest = max(self.unsettled, default="")
        return log.instant > self.instant and (self.completion_of(log.instant) or "") > newest


def plan_log_compaction(
    slices: Iterable[FileSlice], horizon: Horizon, *, blocks_min: int, merged: Collection[str]
) -> CompactionPlan:
    """The log compaction of the shards in which a reader has to read `blocks_min` log files or more.

    `merged` are the instants of earlier log compactions: what those took in is read no more.
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
    """The slices whose log files are to be merged by a plan, which may have been made some time ago.

    A shard that was compacted since, or is not there any more, or has got what must not lie on merged log files, is
    left as it is: readers have all that they need.
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
    """Stores the log file that stands for those of a slice; None if they say nothing.

    `rule` is that of the index, `token` is unique per attempt, `created_ms` the time of day.
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
    """How many log files a reader has to read: the last log compaction took in all that had completed before it."""
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
