"""Names that files of a table give for other files of it: they lead to data of that table, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lakebed.errors import CorruptTableError

_OUTSIDE = re.compile(r"\A/|/\Z|//|(?:\A|/)\.{1,2}(?:/|\Z)|\0|\A\.hoodie(?:\Z|/(?!metadata/[^.]))")
"""Partitions of the metadata table count as data: a rollback names them, too."""
_NO_NAME = re.compile(r"\A\.{0,2}\Z|[/\0]")


def check_partitions(partitions: Iterable[str], *, path: str) -> None:
    """CorruptTableError if the file at `path` names a partition that cannot be one of the table."""
    for partition in partitions:
        if _OUTSIDE.search(partition):
            raise _outside(partition, path)


def check_files(files: Mapping[str, Iterable[str]], *, path: str) -> None:
    """CorruptTableError if the file at `path` names files, by partition, that cannot be data files of the table."""
    check_partitions(files, path=path)
    for names in files.values():
        for name in names:
            if _NO_NAME.search(name):
                raise _outside(name, path)


def _outside(name: str, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"it names {name[:200]!r}, which is outside the table's data",
        path=path,
        hint="nothing was read or deleted; find out who wrote the file, and restore it from a backup",
    )
