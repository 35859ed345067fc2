"""The `files` partition: every data file of the table, without listing a folder."""

from __future__ import annotations

from lakebed.metadata.merging import live_files
from lakebed.metadata.table import MetadataTable
from lakebed.model.files import BaseFile, LogFile
from lakebed.view.listing import parse_data_files


def list_metadata_files(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path ('' for the one partition of a table that is not partitioned)."""
    (shard,) = metadata.shards("files")
    return {
        partition: parse_data_files({name: entry.size for name, entry in names.items()}, partition)
        for partition, names in sorted(live_files(shard, metadata.kept_files).items())
    }
