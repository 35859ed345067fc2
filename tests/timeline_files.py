"""The files below `.hoodie` of the real tables and of their metadata tables, straight from the zips."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

from conftest import DATA


@dataclass(frozen=True)
class TableFile:
    """A file of a real table; `path` starts with the table's folder."""

    zip: str
    path: PurePosixPath
    data: bytes

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def layout(self) -> int:
        return 1 if self.zip.startswith("hudi015") else 2

    def __str__(self) -> str:
        return f"{self.zip}/{self.path}"


def timeline_files() -> Iterator[TableFile]:
    """Everything that lies in a folder of active instants, of both layouts."""
    for file in _files():
        if file.path.parent.name == ("timeline" if file.layout == 2 else ".hoodie"):
            yield file


def files_named(pattern: str) -> list[TableFile]:
    """Files whose path matches a glob pattern from its right end."""
    return [file for file in _files() if file.path.match(pattern)]


@cache
def _files() -> tuple[TableFile, ...]:
    return tuple(file for path in sorted(DATA.glob("*.zip")) for file in _members(path))


def _members(path: Path) -> Iterator[TableFile]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            member = PurePosixPath(name)
            small = member.suffix not in (".hfile", ".crc") and ".log." not in name
            if not name.endswith("/") and small and (".hoodie" in member.parts or member.name.startswith(".hoodie")):
                yield TableFile(path.stem, member, archive.read(name))
