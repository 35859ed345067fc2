"""Finding data files by listing folders: for tables without a usable metadata table."""

from __future__ import annotations

from lakebed.format.file_names import decode_data_file_name
from lakebed.model.files import BaseFile, LogFile
from lakebed.storage import Storage

PARTITION_METAFILE = ".hoodie_partition_metadata"


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
