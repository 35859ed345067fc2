"""The `bloom_filters` partition: which base files may hold a key."""

from __future__ import annotations

from collections.abc import Iterable

from lakebed.format.bloom import BloomFilter, decode_bloom
from lakebed.format.java import shard_of
from lakebed.format.metadata.keys import bloom_key
from lakebed.format.metadata.records import decode_bloom_record
from lakebed.metadata.table import MetadataTable

BLOOM_FILTERS = "bloom_filters"


def find_blooms(metadata: MetadataTable, files: Iterable[tuple[str, str]]) -> dict[str, BloomFilter]:
    """Bloom filters by file name, of base files given as (partition path, file name); unknown files are left out."""
    file_ids = [file_slice.group.file_id for file_slice in metadata.slices(BLOOM_FILTERS)]
    by_shard: dict[str, dict[str, str]] = {}
    for partition, name in files:
        key = bloom_key(partition, name)
        by_shard.setdefault(file_ids[shard_of(key, len(file_ids))], {})[key] = name
    found = {}
    for file_id, names in by_shard.items():
        for key, layers in metadata.shard(BLOOM_FILTERS, file_id).find_many(names).items():
            record = decode_bloom_record(layers[-1].value, layers[-1].schema, path=layers[-1].path)
            if not record.is_deleted:
                found[names[key]] = decode_bloom(record.bloom, record.type_code, path=layers[-1].path)
    return found
