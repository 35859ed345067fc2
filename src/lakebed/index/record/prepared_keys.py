"""Entries of a record index that are encoded while the files that hold their keys are still being written.

Where new keys go is known as soon as a write is planned. Its commit section, in which all others wait, then only has to
see that nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from lakebed.engine.engines import start
from lakebed.index.change import MetadataChange
from lakebed.index.kind import Update
from lakebed.index.record.entries import KeyChanges, is_same_keys
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.index.record.writes import plan_record_index
from lakebed.metadata.shard_writes import EncodedShard, encode_shard


@dataclass(frozen=True, slots=True)
class PreparedKeys:
    """The log files of a record index for some keys, as they become ready."""

    keys: tuple[KeyChanges, ...]
    update: Update
    shards: tuple[Future[EncodedShard], ...]

    def ready_for(self, change: MetadataChange, update: Update) -> dict[str, tuple[Future[EncodedShard], ...]]:
        """The log files by partition, if they are those of the change, with the same keys and shards; else none."""
        is_same = _circumstances(self.update) == _circumstances(update) and change.key_files is None
        is_same = is_same and len(self.keys) == len(change.keys) and all(map(is_same_keys, self.keys, change.keys))
        return {RECORD_INDEX: self.shards} if is_same and self.shards else {}


def prepare_keys(
    keys: Sequence[KeyChanges], update: Update, *, created_ms: int, tables: NewTables | None = None
) -> PreparedKeys:
    """Begins to encode the entries that a record index gets for keys, on threads."""
    writes = plan_record_index(MetadataChange(keys=tuple(keys)), update)
    encode = partial(encode_shard, instant=update.instant, created_ms=created_ms, beside=tables)
    return PreparedKeys(tuple(keys), update, tuple(start(writes, encode)))


def _circumstances(update: Update) -> tuple[object, ...]:
    """What the entries of keys depend on."""
    groups, definition = update.groups.get(RECORD_INDEX), update.definitions.get(RECORD_INDEX)
    return update.instant, update.instant_ms, update.groups_per_partition, groups, definition
