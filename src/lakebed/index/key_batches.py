"""The index of record keys, for many keys at once: locates the keys of a write and makes its index entries.

Like `keys`, it stands for the kind of index that has an entry per record key.
"""

from __future__ import annotations

from lakebed.index.record.definition import are_current
from lakebed.index.record.entries import KeyChanges
from lakebed.index.record.key_locations import Locations, ProbeCounts, locate_everywhere, locate_keys
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.shard_cache import ShardCache, default_cache
from lakebed.index.record.stored_keys import KeyFiles, ShardSets, StoredKeys, shard_sets, store_keys
from lakebed.index.record.writes import PreparedKeys, prepare_keys

__all__ = [
    "KeyChanges",
    "KeyFiles",
    "Locations",
    "NewTables",
    "PreparedKeys",
    "ProbeCounts",
    "ShardCache",
    "ShardSets",
    "StoredKeys",
    "are_current",
    "default_cache",
    "locate_everywhere",
    "locate_keys",
    "prepare_keys",
    "shard_sets",
    "store_keys",
]
