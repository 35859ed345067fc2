"""Data files, and the file groups and slices they form."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.model.instant import InstantTime


@dataclass(frozen=True, slots=True, order=True)
class FileGroupId:
    """A file group: a file id inside a partition ('' when not partitioned). It holds a set of record keys."""

    partition: str
    file_id: str

    def __str__(self) -> str:
        return f"{self.partition}/{self.file_id}" if self.partition else self.file_id


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A columnar file with all records of its file group as of one instant."""

    name: str
    file_id: str
    write_token: str
    instant: InstantTime
    extension: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """Changes to a file group.

    `instant` is the delta commit's requested time in table versions 8 and 9, and the base instant
    of the file slice in version 6.
    """

    name: str
    file_id: str
    instant: InstantTime
    version: int
    write_token: str
    is_cdc: bool = False
    size: int | None = None


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: at most one base file, and the log files on top in merge order."""

    group: FileGroupId
    base_instant: InstantTime
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    def path(self, name: str) -> str:
        """The path of a file of this slice, relative to the table."""
        return f"{self.group.partition}/{name}" if self.group.partition else name

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of all files of the slice, base file first."""
        files = ((self.base,) if self.base else ()) + self.logs
        return tuple(self.path(file.name) for file in files)
