"""From data files to the latest file slice of each file group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.format.file_names import log_merge_order
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime

Completions = Callable[[InstantTime], "InstantTime | None"]
"""Completion time of the write requested at a time; None if it is not visible in the snapshot."""


@dataclass(slots=True)
class _Files:
    bases: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)


def latest_slices(
    files: Mapping[str, Iterable[BaseFile | LogFile]],
    completion_of: Completions,
    *,
    layout: int,
    replaced: frozenset[FileGroupId] = frozenset(),
) -> tuple[FileSlice, ...]:
    """The newest slice of every file group that the snapshot sees, ordered by file group.

    `files` maps partitions to their data files; files of instants without a completion time are not visible.
    """
    slices = []
    for partition in sorted(files):
        for file_id, group in sorted(_by_file_id(files[partition]).items()):
            group_id = FileGroupId(partition, file_id)
            found = None if group_id in replaced else _latest_slice(group_id, group, completion_of, layout)
            if found is not None:
                slices.append(found)
    return tuple(slices)


def _by_file_id(files: Iterable[BaseFile | LogFile]) -> dict[str, _Files]:
    groups: dict[str, _Files] = {}
    for file in files:
        group = groups.setdefault(file.file_id, _Files())
        if isinstance(file, BaseFile):
            group.bases.append(file)
        elif not file.is_cdc:
            group.logs.append(file)
    return groups


def _latest_slice(group_id: FileGroupId, files: _Files, completion_of: Completions, layout: int) -> FileSlice | None:
    bases = [base for base in files.bases if completion_of(base.instant) is not None]
    base = max(bases, key=lambda file: (file.instant, file.write_token), default=None)
    on_top = _logs_by_name if layout == 1 else _logs_by_completion
    logs = on_top(files.logs, base, completion_of)
    if base is None and not logs:
        return None
    base_instant = base.instant if base else min(log.instant for log in logs)
    return FileSlice(group_id, base_instant, base, _in_merge_order(logs))


def _in_merge_order(logs: list[LogFile]) -> tuple[LogFile, ...]:
    """Log files in merge order: by instant; an instant hardly ever has two log files in a slice."""
    by_instant = {log.instant: log for log in logs}
    if len(by_instant) == len(logs):
        return tuple([by_instant[instant] for instant in sorted(by_instant)])
    return tuple(sorted(logs, key=log_merge_order))


def _logs_by_completion(logs: list[LogFile], base: BaseFile | None, completion_of: Completions) -> list[LogFile]:
    """Layout 2: a log belongs to the newest base file requested before the log completed.

    Never sliced by the log's requested time: a write may begin before a compaction and end after it was requested.
    """
    found = []
    for log in logs:
        completed_at = completion_of(log.instant)
        if completed_at is not None and (base is None or completed_at >= base.instant):
            found.append(log)
    return found


def _logs_by_name(logs: list[LogFile], base: BaseFile | None, completion_of: Completions) -> list[LogFile]:
    """Layout 1: the log's name carries its base instant, or that of a compaction that is still pending.

    Which of its blocks are visible is decided per block.
    """
    del completion_of
    return [log for log in logs if base is None or log.instant >= base.instant]
