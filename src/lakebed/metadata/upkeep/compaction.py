"""Compaction of the metadata table: merges base file and log files of a shard into a new base file.

A compaction merges the logs that completed before its own instant. Logs that completed later belong to the new base
file, whenever they were requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from lakebed.format.file_names import decode_data_file_name, encode_base_file_name
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.shard_files import encode_shard_base
from lakebed.metadata.merging import PLAIN, Form, Merged, MergeRule
from lakebed.metadata.shard import load_whole_shard
from lakebed.metadata.shard_writes import store_file
from lakebed.metadata.table import ROOT
from lakebed.model.commit import NO_LOGS, CompactionOperation, CompactionPlan, WriteStat
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.view.slices import Completions

DELTA_COMMITS = 10
"""Number of delta commits after which the metadata table is compacted, as in Hudi."""

LARGE_BYTES = 16 << 20
"""Size in bytes of a large base file: its shard is compacted only if the logs are large or many."""
LOG_SHARE = 10
"""A large shard is compacted if its logs have at least one part in this many of the base file's bytes,"""
LOG_FILES_MAX = 30
"""or if it has at least this number of log files."""

_MIB = 1 << 20
_NEW_BASE_MIB = 120.0
"""Size in MiB that Hudi assumes for the first base file of a slice."""


def plan_compaction(slices: Iterable[FileSlice], up_to: InstantTime, completion_of: Completions) -> CompactionPlan:
    """The compaction, at the instant `up_to`, of shards with logs that completed before it.

    Large shards with few and small logs are left out: else a table with many keys would rewrite all of them whenever a
    few are added.
    """
    operations = []
    for file_slice in slices:
        logs = tuple(log for log in file_slice.logs if _is_before(completion_of(log.instant), up_to))
        if logs and _are_worth_it(file_slice.base, logs):
            operations.append(operation_of(file_slice, logs))
    return CompactionPlan(tuple(operations))


def slice_of(operation: CompactionOperation) -> FileSlice:
    """The file slice that an operation of a plan names."""
    names = (*((operation.base_file,) if operation.base_file else ()), *operation.log_files)
    files = [decode_data_file_name(name) for name in names]
    base = next((file for file in files if isinstance(file, BaseFile)), None)
    logs = tuple(file for file in files if isinstance(file, LogFile))
    group = FileGroupId(operation.partition, operation.file_id)
    return FileSlice(group, InstantTime(operation.base_instant), base, logs)


def operation_of(file_slice: FileSlice, logs: tuple[LogFile, ...]) -> CompactionOperation:
    """The operation of a plan that merges these log files of a slice."""
    return CompactionOperation(
        partition=file_slice.group.partition,
        file_id=file_slice.group.file_id,
        base_instant=file_slice.base_instant,
        base_file=file_slice.base.name if file_slice.base else None,
        log_files=tuple(log.name for log in logs),
        metrics=_metrics(file_slice.base, logs),
    )


class Compacted(Protocol):
    """An observer of the base files that a compaction writes."""

    def compacted(self, stat: WriteStat, merged: Merged) -> None:
        """A base file with these entries was stored."""
        ...

    def keep(self, storage: Storage, completed_at: InstantTime) -> None:
        """The compaction has completed."""
        ...


def compact_shard(
    storage: Storage,
    file_slice: FileSlice,
    rule: MergeRule,
    *,
    instant: InstantTime,
    token: str,
    created_ms: int,
    form: Form = PLAIN,
    observer: Compacted | None = None,
) -> WriteStat:
    """Stores the base file that replaces a slice, even if it has no entry.

    `rule` is the merge rule of the index, `token` is unique per attempt, `created_ms` the current time.
    """
    shard = load_whole_shard(storage, file_slice, root=ROOT)
    merged = rule.shard(shard, has_base=file_slice.base is not None, form=form)
    name = encode_base_file_name(file_slice.group.file_id, token, instant, ".hfile")
    schema = stored_schema(has_ordering=merged.has_ordering)
    data = encode_shard_base(merged.keys, merged.values, schema=schema, created_ms=created_ms, in_order=True)
    store_file(storage, f"{ROOT}{file_slice.path(name)}", data)
    stat = _stat(file_slice, file_slice.path(name), merged, len(data))
    if observer is not None:
        observer.compacted(stat, merged)
    return stat


def merged_log_counts(logs: tuple[LogFile, ...], records: int, keys: int, blocks: int) -> Mapping[str, Any]:
    """Counters of a write stat for merged log files: `records` in `blocks` were merged into `keys`."""
    return {
        **NO_LOGS,
        "totalLogRecords": records,
        "totalUpdatedRecordsCompacted": keys,
        "totalLogBlocks": blocks,
        "totalLogFilesCompacted": len(logs),
        "totalLogSizeCompacted": sum(log.size or 0 for log in logs),
    }


def _is_before(completed_at: InstantTime | None, up_to: InstantTime) -> bool:
    return completed_at is not None and completed_at < up_to


def _are_worth_it(base: BaseFile | None, logs: tuple[LogFile, ...]) -> bool:
    base_bytes = base.size or 0 if base is not None else 0
    is_small = base_bytes < LARGE_BYTES or sum(log.size or 0 for log in logs) * LOG_SHARE >= base_bytes
    return is_small or len(logs) >= LOG_FILES_MAX


def _metrics(base: BaseFile | None, logs: tuple[LogFile, ...]) -> dict[str, float]:
    """The metrics of an operation, as in Hudi's plans."""
    log_bytes, base_bytes = sum(log.size or 0 for log in logs), base.size or 0 if base else 0
    read = float((log_bytes + base_bytes) // _MIB)
    write = float(base_bytes // _MIB) if base else _NEW_BASE_MIB
    return {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_IO_READ_MB": read,
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_WRITE_MB": write,
        "TOTAL_IO_MB": read + write,
    }


def _stat(file_slice: FileSlice, path: str, merged: Merged, size: int) -> WriteStat:
    base, logs = file_slice.base, file_slice.logs
    return WriteStat(
        file_id=file_slice.group.file_id,
        path=path,
        partition=file_slice.group.partition,
        prev_commit=base.instant if base else None,
        num_writes=len(merged.keys),
        num_deletes=merged.deleted,
        num_updates=merged.updated,
        num_inserts=merged.inserted,
        total_write_bytes=size,
        file_size=size,
        prev_base_file=base.name if base else None,
        extra=merged_log_counts(logs, merged.log_records, merged.inserted + merged.updated + merged.deleted, len(logs)),
    )
