"""The records of the real tables' metadata tables, straight from the zips."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from conftest import DATA
from lakebed.format.hfile import HFile
from lakebed.format.log.blocks import hfile_content
from lakebed.format.log.file import BlockKind, decode_log_file
from lakebed.model.source import BytesSource

_METADATA = "/.hoodie/metadata/"


@dataclass(frozen=True)
class StoredFile:
    """An HFile of a metadata table, or one in a log block: its records, and what they are written with."""

    table: str
    partition: str
    name: str
    schema: str
    records: tuple[tuple[bytes, bytes], ...]

    @property
    def keys(self) -> pa.Array:
        return pa.array([key for key, _ in self.records], pa.binary())

    @property
    def values(self) -> pa.Array:
        return pa.array([value for _, value in self.records], pa.binary())

    @property
    def group(self) -> str:
        return self.name.lstrip(".").split("_")[0]

    def __str__(self) -> str:
        return f"{self.table}/{self.partition}/{self.name}"


@cache
def stored_files(prefix: str = "") -> tuple[StoredFile, ...]:
    """Of all partitions whose name starts with `prefix`, in all real tables."""
    return tuple(
        file
        for archive in sorted(DATA.glob("*.zip"))
        for file in _of_archive(archive.stem)
        if file.partition.startswith(prefix)
    )


@cache
def by_schema(*prefixes: str) -> tuple[StoredFile, ...]:
    """All records of those partitions that are written with one schema, as if they were in one file."""
    records: dict[str, list[tuple[bytes, bytes]]] = {}
    for file in (file for prefix in prefixes for file in stored_files(prefix)):
        records.setdefault(file.schema, []).extend(file.records)
    return tuple(StoredFile("all", "all", "all", schema, tuple(all_of)) for schema, all_of in records.items())


@cache
def _of_archive(table: str) -> tuple[StoredFile, ...]:
    with zipfile.ZipFile(DATA / f"{table}.zip") as archive:
        return tuple(
            StoredFile(table, partition, name, hfile.schema or "", tuple(hfile.items()))
            for path in archive.namelist()
            for partition, name in [_place(path)]
            for hfile in _hfiles(name, archive.read(path), path)
        )


def _place(path: str) -> tuple[str, str]:
    _, _, inside = f"/{path}".partition(_METADATA)
    partition, _, name = inside.rpartition("/")
    return ("", "") if partition.startswith(".") else (partition, name)


def _hfiles(name: str, data: bytes, path: str) -> Iterator[HFile]:
    if name.endswith(".hfile"):
        yield HFile.open(BytesSource(data, path))
    elif ".log." in name and not name.endswith(".crc"):
        for block in decode_log_file(data, path=path):
            if block.kind is BlockKind.HFILE_DATA:
                yield HFile.open(hfile_content(block, path=path))
