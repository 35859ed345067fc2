"""Key tables of the files that a commit or a compaction adds to the record index, made from what it writes there.

The next write then need not decode them. A table is named by when its instant completed, so they wait for that; if that
fails, they go with it.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.format.metadata.schema import stored_schema
from lakebed.index.entries import Entries
from lakebed.metadata.key_table import KeyTable, build_entries_table, slot_bytes
from lakebed.metadata.shard_cache import ShardCache, file_identity
from lakebed.model.commit import WriteStat
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage

_BASE_BYTES_MAX = 128 << 20
"""What tables of base files may take in memory until their compaction has completed. Others are built when needed."""


class NewTables:
    """Tables for a cache."""

    def __init__(self, cache: ShardCache) -> None:
        self._cache = cache
        self._made: dict[tuple[str, int], KeyTable] = {}

    def build(self, entries: Entries, *, has_ordering: bool) -> KeyTable:
        """The table of a file with these entries."""
        schema = stored_schema(has_ordering=has_ordering)
        if entries.in_order and not has_ordering and not len(entries.deletes):
            from lakebed.metadata.entries_table import build_plain_table

            return build_plain_table(entries.keys, entries.values, schema, self._cache.seed)
        return build_entries_table(entries.keys, entries.values, entries.deletes, schema, self._cache.seed)

    def add(self, stat: WriteStat, table: KeyTable) -> None:
        """Takes the table of a file."""
        self._made[stat.path, stat.file_size] = table

    def add_base(self, stat: WriteStat, keys: pa.Array, values: pa.Array, *, has_ordering: bool) -> None:
        """Makes the table of a base file with these entries, unless there is no room for it.

        Entries that cannot be decoded are none of a compaction's business: whoever looks for a key says so.
        """
        held = sum(table.nbytes for table in [*self._made.values()])
        if held + slot_bytes(len(keys)) > _BASE_BYTES_MAX:
            return
        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        with suppress(CorruptTableError):
            entries = Entries(keys, encoded, pa.array([], pa.string()))
            self.add(stat, self.build(entries, has_ordering=has_ordering))

    def keep(self, storage: Storage, completed_at: InstantTime) -> None:
        """Puts the tables into the cache: their files were stored, and their instant has completed."""
        for (path, size), table in self._made.items():
            identity = file_identity(storage, path, size, completed_at)
            if identity is not None:
                self._cache.keep_soon(identity, table)
