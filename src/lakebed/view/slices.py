"""From data files to file slices: listing a table, the latest slices of a snapshot, all versions for cleaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lakebed.format.file_names import decode_data_file_name, log_merge_order
from lakebed.format.properties import PARTITION_METAFILE
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage

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


@dataclass(slots=True)
class Version:
    """Names of the files of one file slice, which is visible from a completion time on ('' if always)."""

    since: str
    names: list[str] = field(default_factory=list)


def group_versions(files: Iterable[BaseFile | LogFile], completion_of: Completions) -> dict[str, list[Version]]:
    """The versions of each file group, oldest first, by file id. Files of instants that did not complete are left out:
    they are for a rollback to delete.
    """
    groups: dict[str, tuple[list[BaseFile], list[LogFile]]] = {}
    for file in files:
        if completion_of(file.instant) is not None:
            bases, logs = groups.setdefault(file.file_id, ([], []))
            bases.append(file) if isinstance(file, BaseFile) else logs.append(file)
    return {file_id: _versions(*groups[file_id], completion_of) for file_id in sorted(groups)}


def superseded(versions: list[Version], before: str) -> list[Version]:
    """The versions that no reader needs whose snapshot includes everything completed before a time."""
    return [version for version in versions if version.since < before][:-1]


def _versions(bases: list[BaseFile], logs: list[LogFile], completion_of: Completions) -> list[Version]:
    """A log belongs to the newest base file requested before it completed; others form a slice without base file."""
    versions: dict[InstantTime, Version] = {}
    for base in sorted(bases, key=lambda base: base.instant):
        versions.setdefault(base.instant, Version(completion_of(base.instant) or "")).names.append(base.name)
    first = Version("")
    for log in logs:
        completed_at = completion_of(log.instant) or ""
        below = max((instant for instant in versions if instant <= completed_at), default=None)
        (first if below is None else versions[below]).names.append(log.name)
    return [*([first] if first.names else []), *versions.values()]


def list_data_files(storage: Storage) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path, from one recursive listing; a partition is a folder with a partition metafile."""
    partitions: set[str] = set()
    files: dict[str, list[BaseFile | LogFile]] = {}
    for listed in storage.list("", recursive=True):
        folder, _, name = listed.path.rpartition("/")
        if folder == ".hoodie" or folder.startswith(".hoodie/"):
            continue
        if name.startswith(PARTITION_METAFILE):
            partitions.add(folder)
            continue
        file = decode_data_file_name(name, size=listed.size, folder=folder)
        if file is not None:
            files.setdefault(folder, []).append(file)
    return {partition: tuple(files.get(partition, ())) for partition in sorted(partitions)}


def parse_data_files(names: dict[str, int], folder: str) -> tuple[BaseFile | LogFile, ...]:
    """Data files of one partition from their names and sizes."""
    found = (decode_data_file_name(name, size=size, folder=folder) for name, size in names.items())
    return tuple(file for file in found if file is not None)
