"""The file slices of a snapshot as a report."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.api import Table
from lakebed.model.files import FileSlice


@dataclass(frozen=True, slots=True)
class SliceEntry:
    """One file slice: a base file (None if only logs were written yet) and the log files on top."""

    partition: str
    file_id: str
    base_instant: str
    base_file: str | None
    base_bytes: int
    log_files: tuple[str, ...]
    log_bytes: int


@dataclass(frozen=True, slots=True)
class FilesReport:
    """The file slices that a snapshot reads."""

    table: str
    as_of: str | None
    slices: tuple[SliceEntry, ...]


def files_report(table: Table, as_of: str | None = None) -> FilesReport:
    """The file slices that a snapshot reads, by partition."""
    slices = sorted(table.files(as_of), key=lambda file_slice: file_slice.group)
    return FilesReport(table.config.name, as_of, tuple(_slice_entry(file_slice) for file_slice in slices))


def _slice_entry(file_slice: FileSlice) -> SliceEntry:
    base = file_slice.base
    return SliceEntry(
        partition=file_slice.group.partition,
        file_id=file_slice.group.file_id,
        base_instant=file_slice.base_instant,
        base_file=base.name if base else None,
        base_bytes=base.size or 0 if base else 0,
        log_files=tuple(log.name for log in file_slice.logs),
        log_bytes=sum(log.size or 0 for log in file_slice.logs),
    )
