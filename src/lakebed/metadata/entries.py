"""Writing what an instant means into the metadata table: one log file per shard that it touches.

Planning is pure and gives one task per shard, so that tasks can run wherever there is room. Nothing written counts
before the metadata table's own instant is published, which is not done here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from lakebed.engine.threads import map_large
from lakebed.errors import UnsupportedTableError, WriteConflictError
from lakebed.format.file_names import encode_log_file_name
from lakebed.format.hfile import best_packing
from lakebed.format.hfile.layout import Packing
from lakebed.format.hfile.order import SMALL_COUNT
from lakebed.format.metadata.schema import stored_schema
from lakebed.format.metadata.shard_files import encode_placeholder_log, encode_shard_log
from lakebed.index.bloom_filters import bloom_entries
from lakebed.index.column_stats import column_stats_entries
from lakebed.index.entries import Entries, split_entries
from lakebed.index.files import file_entries
from lakebed.index.partition_stats import partition_stats_entries, stats_of_files, widened_stats
from lakebed.index.record_index import record_index_shards
from lakebed.index.secondary_index import secondary_index_shards
from lakebed.metadata.changes import MetadataChange
from lakebed.metadata.current_stats import StatsReader
from lakebed.metadata.key_table import KeyTable
from lakebed.metadata.new_tables import NewTables
from lakebed.metadata.record_index import RECORD_INDEX
from lakebed.metadata.stored_keys import KeyFiles, ShardSets, StoredEntries, shard_sets
from lakebed.metadata.table import ROOT
from lakebed.model.commit import NO_LOGS, WriteStat
from lakebed.model.files import FileGroupId
from lakebed.model.index import IndexDefinition
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats
from lakebed.storage import Storage
from lakebed.storage.confirm import create_files

FIRST_TOKEN = "0-0-0"
"""The write token of placeholders, which no task has."""

_FEW_ENTRIES = 1000
"""Of a shard. Up to so many, threads take longer to start than to encode them."""
_KEY_BYTES = 96 << 20
"""Keys of a large write whose entries are made at once, unless one shard has more: that takes six times as much."""

Groups = Mapping[str, Sequence[str]]
"""File ids of the file groups of metadata-table partitions, in shard order."""


@dataclass(frozen=True, slots=True)
class ShardWrite:
    """The entries that an instant has for one shard; of a shard that `is_new`, also none. Some are yet to be loaded.

    `has_ordering`: they are entries of a record index, of the schema with ordering values. `packing`: how many of them
    are compressed, if that is known already.
    """

    mdt_partition: str
    file_id: str
    entries: Entries | StoredEntries
    is_new: bool = False
    has_ordering: bool = False
    packing: Packing | None = None

    @property
    def at_hand(self) -> Entries:
        """The entries, which must have been loaded."""
        assert isinstance(self.entries, Entries), self.file_id
        return self.entries

    def loaded(self, *, instant_ms: int) -> ShardWrite:
        """The same, with the entries at hand."""
        if isinstance(self.entries, Entries):
            return self
        return replace(self, entries=self.entries.load(instant_ms=instant_ms, has_ordering=self.has_ordering))


@dataclass(frozen=True, slots=True)
class Update:
    """The circumstances of a change: the instant, which indexes there are, and what they know so far.

    `partitions` are the metadata-table partitions to bring up to date, `groups` their file groups, `instant_ms` the
    instant in milliseconds since 1970. A partitioned record index gives new data partitions `groups_per_partition`.
    With `others_write`, another engine has a write under way, whose statistics may come to stand below these. Of
    partitions that are still `building`, nobody can read what they know.
    """

    instant: InstantTime
    instant_ms: int
    partitions: Sequence[str]
    groups: Groups
    definitions: Mapping[str, IndexDefinition]
    stats: StatsReader
    groups_per_partition: int = 1
    others_write: bool = False
    building: frozenset[str] = frozenset()


def plan_change(change: MetadataChange, update: Update) -> tuple[ShardWrite, ...]:
    """One write per shard that the change touches."""
    return tuple(_planned(dict.fromkeys(update.partitions), change, update))


def _planned(partitions: Iterable[str], change: MetadataChange, update: Update) -> Iterator[ShardWrite]:
    for partition in partitions:
        yield from _plan_partition(partition, change, update)


@dataclass(frozen=True, slots=True)
class EncodedShard:
    """A write to a shard as the bytes of its log file, none without entries; and the key table of these, if wanted."""

    write: ShardWrite
    data: bytes
    table: KeyTable | None = None


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The new files of a shard, by path, and what the delta commit says of them; None if there are no entries."""

    files: Mapping[str, bytes]
    stat: WriteStat | None = None


def encode_shard(
    write: ShardWrite, *, instant: InstantTime, created_ms: int, tables: NewTables | None = None
) -> EncodedShard:
    """The log file of a shard. `created_ms` is the time of day; `tables` are to get the table of a record index."""
    entries = write.at_hand
    if not len(entries):
        return EncodedShard(write, b"")
    data = encode_shard_log(
        instant,
        entries.keys,
        entries.values,
        entries.deletes,
        mdt_partition=write.mdt_partition,
        schema=stored_schema(has_ordering=write.has_ordering),
        created_ms=created_ms,
        in_order=entries.in_order,
        packing=write.packing,
    )
    if tables is None or write.mdt_partition != RECORD_INDEX:
        return EncodedShard(write, data)
    return EncodedShard(write, data, tables.build(entries, has_ordering=write.has_ordering))


def name_files(shard: EncodedShard, *, instant: InstantTime, token: str) -> NewFiles:
    """The log file of a shard, if it has entries, and its placeholder, if it is new.

    `token` is unique per attempt of an instant.
    """
    assert token != FIRST_TOKEN, token
    write, data = shard.write, shard.data
    folder = f"{ROOT}{write.mdt_partition}"
    placeholder = {}
    if write.is_new:
        placeholder = {f"{folder}/{_placeholder(write.file_id, instant)}": encode_placeholder_log(instant)}
    if not data:
        return NewFiles(placeholder)
    name = encode_log_file_name(write.file_id, instant, 1, token)
    group, entries = FileGroupId(write.mdt_partition, write.file_id), write.at_hand
    count, gone = len(entries.keys), len(entries.deletes)
    stat = log_stat(group, name, prev_commit=instant, entries=count, deletes=gone, size=len(data))
    return NewFiles({**placeholder, f"{folder}/{name}": data}, stat)


def write_shards(
    storage: Storage,
    writes: Iterable[ShardWrite],
    *,
    instant: InstantTime,
    token: str,
    created_ms: int,
    tables: NewTables | None = None,
    ready: Iterable[Future[EncodedShard]] = (),
) -> tuple[WriteStat, ...]:
    """Stores the log files of shards; the write stats of those that have entries. `tables` gets theirs.

    Those with many entries are encoded on threads, while `writes` that come after them are still being planned; some
    may be `ready`, or are about to be.
    """
    encode = partial(encode_shard, instant=instant, created_ms=created_ms, tables=tables)
    encoded = map_large(writes, encode, lambda write: len(write.at_hand) > _FEW_ENTRIES)
    shards = [*(future.result() for future in ready), *encoded]
    named = [name_files(shard, instant=instant, token=token) for shard in shards]
    store_files(storage, {path: data for each in named for path, data in each.files.items()})
    for shard, each in zip(shards, named, strict=True):
        if tables is not None and shard.table is not None and each.stat is not None:
            tables.add(each.stat, shard.table)
    return tuple(each.stat for each in named if each.stat is not None)


def write_change(
    storage: Storage,
    change: MetadataChange,
    update: Update,
    *,
    token: str,
    created_ms: int,
    tables: NewTables | None = None,
    ready: Sequence[Future[EncodedShard]] = (),
) -> tuple[WriteStat, ...]:
    """Plans a change and stores its log files; the write stats are those of the metadata table's delta commit.

    All that it has for the record index may be `ready`, or about to be.
    """
    store = partial(write_shards, storage, instant=update.instant, token=token, created_ms=created_ms, tables=tables)
    partitions = [*dict.fromkeys(update.partitions)]
    open_ones = [name for name in partitions if not ready or name != RECORD_INDEX]
    writes = _planned(sorted(open_ones, key=_has_few), change, update)
    if change.key_files is None:
        stats = [*store(writes, ready=ready)]
    else:
        stats = [stat for some in _loaded([*writes], change.key_files, update) for stat in store(some)]
    return tuple(sorted(stats, key=lambda stat: partitions.index(stat.partition)))


def _has_few(partition: str) -> bool:
    """Whether a metadata-table partition has a few entries per file, not one per row."""
    return partition in ("files", "bloom_filters", "column_stats", "partition_stats")


def _loaded(writes: Sequence[ShardWrite], keys: KeyFiles, update: Update) -> Iterator[Sequence[ShardWrite]]:
    """The writes of a large change with their entries, as many as there is room for."""
    yield [write for write in writes if isinstance(write.entries, Entries)]
    stored = [write for write in writes if isinstance(write.entries, StoredEntries)]
    count = max(1, _KEY_BYTES // max(keys.largest_bytes, 1))
    for first in range(0, len(stored), count):
        yield [write.loaded(instant_ms=update.instant_ms) for write in stored[first : first + count]]


def store_placeholder(storage: Storage, mdt_partition: str, file_id: str, instant: InstantTime) -> None:
    """Brings a shard into being."""
    path = f"{ROOT}{mdt_partition}/{_placeholder(file_id, instant)}"
    store_file(storage, path, encode_placeholder_log(instant))


def store_file(storage: Storage, path: str, data: bytes) -> None:
    """Creates a data file whose name is its writer's alone."""
    store_files(storage, {path: data})


def store_files(storage: Storage, files: Mapping[str, bytes]) -> None:
    """Creates data files whose names are their writer's alone."""
    if not create_files(storage, files):
        raise WriteConflictError(
            f"{storage.url}: one of {', '.join(sorted(files)[:3])} already exists with different content",
            hint="run the write again as a new attempt",
        )


def _placeholder(file_id: str, instant: InstantTime) -> str:
    return encode_log_file_name(file_id, instant, 1, FIRST_TOKEN)


def log_stat(
    group: FileGroupId, name: str, *, prev_commit: InstantTime, entries: int, deletes: int, size: int
) -> WriteStat:
    """What a delta commit says of the one log file that it adds to a shard."""
    return WriteStat(
        file_id=group.file_id,
        path=f"{group.partition}/{name}",
        partition=group.partition,
        prev_commit=prev_commit,
        num_writes=entries,
        num_updates=entries,  # Hudi counts all entries of a log file so, new keys or not.
        num_deletes=deletes,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(name,),
        log_version=1,
        log_offset=0,
        extra=NO_LOGS,
    )


def _plan_partition(partition: str, change: MetadataChange, update: Update) -> list[ShardWrite]:
    if partition == RECORD_INDEX:
        return plan_record_index(change, update)
    if partition.startswith("secondary_index_"):
        shards = _secondary_index(partition, change, update)
    else:
        shards = split_entries(_small_entries(partition, change, update), update.groups[partition])
    return [ShardWrite(partition, file_id, entries) for file_id, entries in shards.items()]


def _small_entries(partition: str, change: MetadataChange, update: Update) -> Entries:
    """Entries of the partitions that have a few per file."""
    if partition == "files":
        return file_entries(change.added, change.deleted, change.removed_partitions)
    if partition == "bloom_filters":
        return bloom_entries(change.blooms, change.deleted, instant=update.instant)
    definition = update.definitions.get("column_stats")
    if definition is None or partition not in ("column_stats", "partition_stats"):
        raise _unsupported(partition)
    columns, version = definition.source_fields, definition.version
    if partition == "column_stats":
        return column_stats_entries(change.column_stats, change.deleted, columns=columns, version=version)
    if partition in update.building:
        return _stats_while_building(change, columns, version)
    stats, emptied = _partition_stats(change, columns, update.stats)
    return partition_stats_entries(
        stats, emptied, columns=columns, version=version, stand_alone=not update.others_write
    )


def _stats_while_building(change: MetadataChange, columns: Sequence[str], version: str) -> Entries:
    """Entries that widen what is being built: one that stands alone would hide it once the index is ready."""
    found = {partition: stats_of_files(partition, added) for partition, added in change.column_stats.items()}
    return partition_stats_entries(found, columns=columns, version=version, stand_alone=False)


def _partition_stats(
    change: MetadataChange, columns: Sequence[str], reader: StatsReader
) -> tuple[dict[str, tuple[ColumnStats, ...]], tuple[str, ...]]:
    """New statistics of the partitions that a change touches, and the partitions that have none any more."""
    touched = sorted(change.column_stats.keys() | change.rewritten)
    found = {partition: _stats_after(partition, change, columns, reader) for partition in touched}
    reader.learn({**found, **dict.fromkeys(change.removed_partitions, ())}, columns)
    emptied = (*change.removed_partitions, *(partition for partition, stats in found.items() if not stats))
    return {partition: stats for partition, stats in found.items() if stats}, emptied


def _stats_after(
    partition: str, change: MetadataChange, columns: Sequence[str], reader: StatsReader
) -> tuple[ColumnStats, ...]:
    """The statistics of a partition after a change: what is known widened if that is sure to be right, else anew.

    Where a current file has none, what is known must do: another engine's log file of deletes has no values.
    """
    added = change.column_stats.get(partition, ())
    known = None if partition in change.rewritten else reader.of_partition(partition, columns)
    if known is not None and known.is_whole and _has_columns(known.stats, added, columns):
        return widened_stats(partition, known.stats, added)
    anew = _stats_anew(partition, added, columns, reader)
    if anew is not None:
        return anew
    stats = (known or reader.of_partition(partition, columns)).stats
    known_columns = {each.column for each in stats}
    return widened_stats(partition, stats, [each for each in added if each.column in known_columns])


def _has_columns(known: Iterable[ColumnStats], added: Iterable[ColumnStats], columns: Collection[str]) -> bool:
    """Whether a partition has statistics of every column that new files have some of.

    Of a column that it has none of, its older files may have values: the index may know the column since today. And
    one that has no statistics at all may be new, or have a file of which nothing is known.
    """
    return {each.column for each in added if each.column in columns} <= {each.column for each in known}


def _stats_anew(
    partition: str, added: tuple[ColumnStats, ...], columns: Sequence[str], reader: StatsReader
) -> tuple[ColumnStats, ...] | None:
    """The statistics over all files that are current after a change; None if of one of them none are known."""
    own = {each.file_name for each in added}
    names = set(reader.current_files(partition)) - own
    known = reader.of_files(partition, names, columns)
    if names - {each.file_name for each in known}:
        return None
    return stats_of_files(partition, (*known, *added))


def plan_record_index(change: MetadataChange, update: Update) -> list[ShardWrite]:
    """What a change writes to the shards of the record index."""
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
    entries: Mapping[str, Entries | StoredEntries]
    if change.key_files is None:
        entries = record_index_shards(keys, sets, instant_ms=update.instant_ms, has_ordering=has_ordering)
    else:
        _check_shards(change.key_files, sets)
        entries = change.key_files.by_shard()
    created = _new_shards(change, sets) if is_partitioned else ()
    packing = None if is_partitioned else _packing(entries.values())
    nothing = Entries.of({})
    return [
        ShardWrite(RECORD_INDEX, file_id, entries.get(file_id, nothing), file_id in created, has_ordering, packing)
        for file_id in sorted({*entries, *created})
    ]


def _packing(shards: Iterable[Entries | StoredEntries]) -> Packing | None:
    """How entries that were spread over shards by the hashes of their keys, and so are alike, are best compressed.

    None if no shard has many that are in order.
    """
    at_hand = (entries for entries in shards if isinstance(entries, Entries) and entries.in_order)
    many = next((entries for entries in at_hand if len(entries.keys) > SMALL_COUNT), None)
    return None if many is None else best_packing(many.keys, many.values)


def _new_shards(change: MetadataChange, sets: ShardSets) -> tuple[str, ...]:
    """The shards of data partitions that have none yet."""
    stored = (group.partition for group in (change.key_files.groups if change.key_files else ()))
    touched = dict.fromkeys((*change.added, *(keys.partition for keys in change.keys), *stored))
    return tuple(id_ for partition in touched if partition not in sets.by_partition for id_ in sets(partition))


def _check_shards(keys: KeyFiles, sets: ShardSets) -> None:
    """Raises if the keys of a large write were split over other shards than there are now."""
    if any(group.shards != sets(group.partition) for group in keys.groups):
        raise WriteConflictError(
            "the shards of the record index changed while this write ran",
            hint="run the write again: it will use the new shards",
        )


def _secondary_index(partition: str, change: MetadataChange, update: Update) -> dict[str, Entries]:
    definition = update.definitions.get(partition)
    if definition is None or (change.added and partition not in change.values):
        raise _unsupported(partition)
    if partition not in change.values:
        return {}  # A clean: rows stay as they are.
    return secondary_index_shards(change.values[partition], update.groups[partition], version=definition.version)


def _unsupported(partition: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"this write cannot update the index {partition}",
        hint="drop the index before the write and create it again afterwards",
    )
