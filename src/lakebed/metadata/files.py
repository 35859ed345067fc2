"""The `files` partition: every data file of the table, without listing a folder."""

from __future__ import annotations

from lakebed.errors import CorruptTableError
from lakebed.format.metadata.keys import partition_key
from lakebed.format.metadata.records import decode_metadata_record, merge_files
from lakebed.metadata.merging import live_files
from lakebed.metadata.table import MetadataTable
from lakebed.model.files import BaseFile, LogFile
from lakebed.model.metadata import FileEntry
from lakebed.view.listing import parse_data_files


def list_metadata_files(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path ('' for the one partition of a table that is not partitioned)."""
    (shard,) = metadata.shards("files")
    return {
        partition: parse_data_files({name: entry.size for name, entry in names.items()}, partition)
        for partition, names in sorted(live_files(shard, metadata.kept.files).items())
    }


def find_partition_files(metadata: MetadataTable, partition: str) -> dict[str, int]:
    """Names and sizes of the data files of one partition."""
    (shard,) = metadata.shards("files")
    key = partition_key(partition)
    merged: dict[str, FileEntry] = {}
    for stored in shard.find_many([key]).get(key, ()):
        payload = decode_metadata_record(stored.value, stored.schema, path=stored.path).payload
        if not isinstance(payload, dict):
            raise CorruptTableError("a list of files is a record of another kind", path=stored.path)
        merged = merge_files(merged, payload)
    return {name: entry.size for name, entry in merged.items() if not entry.is_deleted}
