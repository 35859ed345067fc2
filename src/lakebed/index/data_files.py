"""Data files of a table and their contents, for indexes that are built from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.format.guard import decoding
from lakebed.format.log.blocks import decode_records
from lakebed.format.log.file import BlockKind, decode_log_file
from lakebed.format.parquet_footer import BaseFileFooter, decode_parquet_footer
from lakebed.model.files import BaseFile, LogFile
from lakebed.storage import Storage
from lakebed.table import TableState
from lakebed.view import list_data_files

DATA_BLOCKS = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA)
"""Kinds of log block that hold rows."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A data file of a completed instant."""

    storage: Storage
    partition: str
    file: BaseFile | LogFile

    @property
    def path(self) -> str:
        """Its path, relative to the table."""
        return f"{self.partition}/{self.file.name}" if self.partition else self.file.name


def stored_files(state: TableState) -> list[StoredFile]:
    """All data files of completed instants, those of older slices included, CDC files excluded."""
    snapshot = state.latest
    snapshot.prefetch(file.instant for files in state.files.values() for file in files)
    return [
        StoredFile(state.storage, partition, file)
        for partition, files in state.files.items()
        for file in files
        if snapshot.completion_of(file.instant) is not None and not (isinstance(file, LogFile) and file.is_cdc)
    ]


def listed_files(state: TableState) -> dict[str, dict[str, int]]:
    """Sizes of files of completed instants by partition and name, from listing the folders."""
    snapshot, listed = state.latest, list_data_files(state.storage)
    snapshot.prefetch(file.instant for files in listed.values() for file in files)
    return {
        partition: {f.name: f.size or 0 for f in files if snapshot.completion_of(f.instant) is not None}
        for partition, files in listed.items()
    }


def base_files(state: TableState) -> list[StoredFile]:
    """All base files of completed instants."""
    return [stored for stored in stored_files(state) if isinstance(stored.file, BaseFile)]


def current_files(state: TableState) -> dict[str, tuple[str, ...]]:
    """Names of the files in the latest slices of each data partition."""
    found: dict[str, tuple[str, ...]] = {}
    for file_slice in state.latest_slices:
        names = tuple(path.rpartition("/")[2] for path in file_slice.paths)
        found[file_slice.group.partition] = found.get(file_slice.group.partition, ()) + names
    return found


def read_blocks(stored: StoredFile, columns: Sequence[str]) -> list[pa.Table]:
    """The rows of a data file, one table per block, with those of `columns` that the block has."""
    if isinstance(stored.file, LogFile):
        blocks = decode_log_file(stored.storage.get(stored.path), path=stored.path)
        tables = [decode_records(block, path=stored.path) for block in blocks if block.kind in DATA_BLOCKS]
        return [table.select([name for name in columns if name in table.column_names]) for table in tables]
    with stored.storage.arrow_file(stored.path) as file, decoding(stored.path, "the Parquet file"):
        parquet: Any = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        return [parquet.read(columns=[name for name in columns if name in parquet.schema_arrow.names])]


def read_footer(stored: StoredFile) -> BaseFileFooter:
    """The footer of a base file."""
    with stored.storage.arrow_file(stored.path) as file:
        return decode_parquet_footer(file, path=stored.path)
