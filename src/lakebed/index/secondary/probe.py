"""The `secondary_index_*` partitions: record keys by the value of another column."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.format.java import shard_of
from lakebed.format.metadata.records import decode_secondary_records
from lakebed.format.metadata.secondary_keys import secondary_prefix, split_secondary_key, split_secondary_keys
from lakebed.metadata.shard import StoredValue
from lakebed.metadata.table import MetadataTable

PREFIX = "secondary_index_"


def find_record_keys(metadata: MetadataTable, index: str, values: Iterable[str | None]) -> tuple[str, ...]:
    """Keys of the records whose indexed column has one of `values`, as the index spells them."""
    file_ids = [file_slice.group.file_id for file_slice in metadata.slices(index)]
    version = metadata.definitions[index].version
    keys: list[str] = []
    for value in dict.fromkeys(values):
        prefix = secondary_prefix(value, version=version)
        # Version 1 hashed the whole stored key, so the entries of a value lie in any shard.
        chosen = [file_ids[shard_of(prefix, len(file_ids))]] if version != "V1" else file_ids
        for file_id in chosen:
            for stored, layers in metadata.shard(index, file_id).scan_prefix(prefix).items():
                if not _is_deleted(layers[-1]):
                    keys.append(split_secondary_key(stored, path=layers[-1].path)[1])
    return tuple(keys)


def read_secondary_index(metadata: MetadataTable, index: str) -> pa.Table:
    """Every entry: value (as text, null for null), record_key."""
    tables = [shard.read_all(lambda layer: layer.decode(decode_secondary_records)) for shard in metadata.shards(index)]
    live = [table.filter(pc.invert(table["is_deleted"])) for table in tables if table is not None]
    stored = pa.concat_tables(live)["key"].combine_chunks() if live else pa.array([], pa.string())
    values, keys = split_secondary_keys(stored, path=index)
    return pa.table({"value": values, "record_key": keys})


def _is_deleted(stored: StoredValue) -> bool:
    key, value = pa.array([b""], pa.binary()), pa.array([stored.value], pa.binary())
    return bool(decode_secondary_records(key, value, stored.schema, path=stored.path)["is_deleted"][0].as_py())
