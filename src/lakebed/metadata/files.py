"""The `files` partition: every data file of the table, without listing a folder."""

from __future__ import annotations

import pyarrow as pa

from lakebed.format.metadata.records import decode_files, merge_file_entries
from lakebed.metadata.shard import EntryLayer
from lakebed.metadata.table import MetadataTable
from lakebed.model.files import BaseFile, LogFile
from lakebed.view.listing import parse_data_files


def list_metadata_files(metadata: MetadataTable) -> dict[str, tuple[BaseFile | LogFile, ...]]:
    """Data files by partition path ('' for the one partition of a table that is not partitioned)."""
    (shard,) = metadata.shards("files")
    layers = [layer.decode(decode_files) for layer in shard.layers() if isinstance(layer, EntryLayer)]
    names: dict[str, dict[str, int]] = {}
    if layers:
        entries = merge_file_entries(pa.concat_tables(layers))
        rows = zip(*(entries[column].to_pylist() for column in ("partition", "name", "size")), strict=True)
        for partition, name, size in rows:
            names.setdefault(partition, {})[name] = size
    return {partition: parse_data_files(names[partition], partition) for partition in sorted(names)}
