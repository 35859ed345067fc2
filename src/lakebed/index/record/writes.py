"""Shard writes of the record index: those of a change, and those prepared while its files are still being written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from lakebed.engine.engines import start
from lakebed.errors import WriteConflictError
from lakebed.format.hfile import best_packing
from lakebed.format.hfile.arrow import SMALL_COUNT
from lakebed.format.hfile.layout import Packing
from lakebed.index.change import MetadataChange
from lakebed.index.kind import Update
from lakebed.index.record.entries import KeyChanges, is_same_keys, record_index_shards
from lakebed.index.record.new_tables import NewTables
from lakebed.index.record.probe import RECORD_INDEX
from lakebed.index.record.stored_keys import KeyFiles, ShardSets, StoredKeyEntries, shard_sets
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import EncodedShard, ShardWrite, encode_shard


def plan_record_index(change: MetadataChange, update: Update) -> list[ShardWrite]:
    """The writes of a change, one per shard."""
    definition = update.definitions.get(RECORD_INDEX)
    is_partitioned = definition is not None and definition.is_partitioned
    sets = shard_sets(
        update.groups[RECORD_INDEX],
        is_partitioned=is_partitioned,
        shards_of_new=update.groups_per_partition,
        window=definition.window if definition is not None else None,
    )
    has_ordering = definition is not None and definition.ordering is not None
    keys = [each for each in change.keys if sets(each.partition)]
    entries: Mapping[str, Entries | StoredKeyEntries]
    if change.key_files is None:
        entries = record_index_shards(keys, sets, instant_ms=update.instant_ms, has_ordering=has_ordering)
    else:
        _check_shards(change.key_files, sets)
        entries = change.key_files.by_shard(instant_ms=update.instant_ms, has_ordering=has_ordering)
    created = _new_shards(change, sets) if is_partitioned else ()
    packing = None if is_partitioned else _packing(entries.values())
    nothing = Entries.of({})
    return [
        ShardWrite(RECORD_INDEX, file_id, entries.get(file_id, nothing), file_id in created, has_ordering, packing)
        for file_id in sorted({*entries, *created})
    ]


def _packing(shards: Iterable[Entries | StoredKeyEntries]) -> Packing | None:
    """The best compression, found on one shard: entries are hashed over shards, so all shards are alike.

    None if no shard has many entries in order.
    """
    at_hand = (entries for entries in shards if isinstance(entries, Entries) and entries.in_order)
    many = next((entries for entries in at_hand if len(entries.keys) > SMALL_COUNT), None)
    return None if many is None else best_packing(many.keys, many.values)


def _new_shards(change: MetadataChange, sets: ShardSets) -> tuple[str, ...]:
    """New shards, for data partitions that have none yet."""
    stored = (group.partition for group in (change.key_files.groups if change.key_files else ()))
    touched = dict.fromkeys((*change.added, *(keys.partition for keys in change.keys), *stored))
    return tuple(id_ for partition in touched if partition not in sets.by_partition for id_ in sets(partition))


def _check_shards(keys: KeyFiles, sets: ShardSets) -> None:
    """Raises if the keys of a large write were split over shards that have changed since."""
    if any(group.shards != sets(group.partition) for group in keys.groups):
        raise WriteConflictError(
            "the shards of the record index changed while this write ran",
            hint="run the write again: it will use the new shards",
        )


@dataclass(frozen=True, slots=True)
class PreparedKeys:
    """Log files of the record index, encoded ahead of the commit section.

    The keys of new rows are known as soon as a write is planned. In its commit section, in which other writers wait, it
    only checks that nothing they depend on has changed.
    """

    keys: tuple[KeyChanges, ...]
    update: Update
    shards: tuple[Future[EncodedShard], ...]

    def ready_for(self, change: MetadataChange, update: Update) -> dict[str, tuple[Future[EncodedShard], ...]]:
        """The log files by partition, if keys, shards and definition match those of the change; else none."""
        is_same = _circumstances(self.update) == _circumstances(update) and change.key_files is None
        is_same = is_same and len(self.keys) == len(change.keys) and all(map(is_same_keys, self.keys, change.keys))
        return {RECORD_INDEX: self.shards} if is_same and self.shards else {}


def prepare_keys(
    keys: Sequence[KeyChanges], update: Update, *, created_ms: int, tables: NewTables | None = None
) -> PreparedKeys:
    """Starts to encode the index entries of keys, on threads."""
    writes = plan_record_index(MetadataChange(keys=tuple(keys)), update)
    encode = partial(encode_shard, instant=update.instant, created_ms=created_ms, beside=tables)
    return PreparedKeys(tuple(keys), update, tuple(start(writes, encode)))


def _circumstances(update: Update) -> tuple[object, ...]:
    """Everything that the entries of keys depend on."""
    groups, definition = update.groups.get(RECORD_INDEX), update.definitions.get(RECORD_INDEX)
    return update.instant, update.instant_ms, update.groups_per_partition, groups, definition
