"""Builds key tables of new record index files from the entries being written; the next write need not decode them.

The name of a table contains the completion time of its instant, so tables are stored after the commit, if it succeeds.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import decode_record_index_value
from lakebed.index.record.key_table import KeyTable, build_entries_table, slot_bytes
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.index.record.shard_cache import ShardCache, file_identity
from lakebed.kernels.key_table import enter_keys
from lakebed.metadata.entries import Entries
from lakebed.metadata.merging import Merged
from lakebed.metadata.shard_writes import ShardWrite
from lakebed.model.commit import WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage

_BASE_BYTES_MAX = 128 << 20
"""Maximum size in bytes of base file tables held until the compaction completes. Others are built when needed."""


class NewTables:
    """Tables built for a cache."""

    def __init__(self, cache: ShardCache) -> None:
        self._cache = cache
        self._made: dict[tuple[str, int], KeyTable] = {}

    def build(self, write: ShardWrite) -> KeyTable | None:
        """The table of a log file; None if it belongs to another index."""
        if write.mdt_partition != RECORD_INDEX:
            return None
        return self._build(write.at_hand, has_ordering=write.has_ordering)

    def _build(self, entries: Entries, *, has_ordering: bool) -> KeyTable:
        schema = stored_schema(has_ordering=has_ordering)
        if entries.in_order and not has_ordering and not len(entries.deletes):
            return build_plain_table(entries.keys, entries.values, schema, self._cache.seed)
        return build_entries_table(entries.keys, entries.values, entries.deletes, schema, self._cache.seed)

    def add(self, stat: WriteStat, built: object) -> None:
        """Adds the table of a file."""
        assert isinstance(built, KeyTable), built
        self._made[stat.path, stat.file_size] = built

    def compacted(self, stat: WriteStat, merged: Merged) -> None:
        """Builds the table of a new base file, unless it belongs to another index or there is no room.

        A corrupt entry does not fail the compaction: a lookup will report it.
        """
        held = sum(table.nbytes for table in [*self._made.values()])
        if stat.partition != RECORD_INDEX or held + slot_bytes(len(merged.keys)) > _BASE_BYTES_MAX:
            return
        values = merged.values
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        with suppress(CorruptTableError):
            entries = Entries(merged.keys, encoded, pa.array([], pa.string()))
            self.add(stat, self._build(entries, has_ordering=merged.has_ordering))

    def keep(self, storage: Storage, completed_at: InstantTime) -> None:
        """Stores the tables in the cache, now that their instant has completed."""
        for (path, size), table in self._made.items():
            identity = file_identity(storage, path, size, completed_at)
            if identity is not None:
                self._cache.keep_soon(identity, table)


def build_plain_table(keys: ArrowArray, values: ArrowArray, schema: str, seed: bytes) -> KeyTable:
    """The table of entries without ordering values and deletes, in one pass; values are a dictionary of that schema."""
    numbers = np.zeros(len(values.dictionary), np.uint32)
    slots = np.zeros(slot_bytes(len(keys)) // 4, np.uint32)
    enter_keys(*binary_buffers(keys), values.indices.to_numpy(), seed, numbers, slots)
    used = np.flatnonzero(numbers)
    stored = values.dictionary if len(used) == len(numbers) else values.dictionary.take(pa.array(used))
    locations = [decode_record_index_value(value, schema, path="<new entries>") for value in stored.to_pylist()]
    places: dict[FileGroupId, int] = {}
    of_entry = [places.setdefault(FileGroupId(each.partition, each.file_id), len(places)) for each in locations]
    instants = np.array([each.instant_ms for each in locations], np.int64)
    return KeyTable(slots, np.array(of_entry, np.int32), instants, tuple(places), np.empty(0, np.int64))
