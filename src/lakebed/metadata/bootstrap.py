"""Bringing a metadata table, or a partition of it, into being.

A new partition is one delta commit of the metadata table. It gives every shard a placeholder, so that their number can
be told from a listing for ever, and a base file to those that have entries. Partitions built with the table have the
reserved instants 00000000000000000, 00000000000000001 and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakebed.format.file_names import encode_base_file_name
from lakebed.format.metadata.keys import group_file_id
from lakebed.format.properties import PARTITION_METAFILE, PartitionMetafile, encode_partition_metafile, table_checksum
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import SHARD_CODEC, ShardCodec, store_file, store_placeholder
from lakebed.metadata.table import ROOT
from lakebed.model.commit import NO_LOGS, WriteStat
from lakebed.model.instant import InstantTime
from lakebed.storage import Storage
from lakebed.storage.confirm import create_file

Shards = Iterable[tuple[str, Entries]]
"""Entries of shards, by file id."""


@dataclass(frozen=True, slots=True)
class EmptyPartition:
    """A partition of a table without data: its shards, and what they have all the same."""

    partition: str
    file_ids: tuple[str, ...]
    entries: Shards = ()


@dataclass(frozen=True, slots=True)
class BuiltPartition:
    """A partition whose files are stored, and the write stats of the delta commit that is to make it count."""

    instant: InstantTime
    partition: str
    stats: tuple[WriteStat, ...]


def metadata_properties(table_name: str) -> dict[str, str]:
    """The properties of the metadata table of a table, as table version 9 has them."""
    properties = {
        "hoodie.table.name": f"{table_name}_metadata",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.datasource.write.drop.partition.columns": "false",
    }
    return {**properties, "hoodie.table.checksum": str(table_checksum(properties))}


def reserved_instant(number: int) -> InstantTime:
    """The instant of the n-th partition that is built with its table."""
    return InstantTime(f"{number:017d}")


def group_ids(mdt_partition: str, count: int) -> tuple[str, ...]:
    """File ids of all shards of a partition, in shard order."""
    return tuple(group_file_id(mdt_partition, index) for index in range(count))


def bootstrap_empty(
    storage: Storage, partitions: Iterable[EmptyPartition], *, token: str, created_ms: int, date: str
) -> tuple[BuiltPartition, ...]:
    """Stores the partitions of a table without data, in the order in which they are to be published.

    `date` goes into comments.
    """
    return tuple(
        build_partition(
            storage,
            each.partition,
            each.file_ids,
            each.entries,
            instant=reserved_instant(number),
            token=token,
            created_ms=created_ms,
            date=date,
        )
        for number, each in enumerate(partitions)
    )


def build_partition(
    storage: Storage,
    mdt_partition: str,
    file_ids: Sequence[str],
    shards: Shards,
    *,
    instant: InstantTime,
    token: str,
    created_ms: int,
    date: str,
) -> BuiltPartition:
    """Stores a partition with all its shards; `shards` has the entries of those that are not empty, one at a time."""
    create_shards(storage, mdt_partition, file_ids, instant=instant, date=date)
    stats = [
        store_base(storage, mdt_partition, file_id, entries, instant=instant, token=token, created_ms=created_ms)
        for file_id, entries in shards
    ]
    return BuiltPartition(instant, mdt_partition, tuple(stats))


def create_shards(
    storage: Storage, mdt_partition: str, file_ids: Sequence[str], *, instant: InstantTime, date: str
) -> None:
    """Brings the shards of a new partition into being, without an entry."""
    metafile = encode_partition_metafile(PartitionMetafile(instant, 1), date=date)
    create_file(storage, f"{ROOT}{mdt_partition}/{PARTITION_METAFILE}", metafile)  # One that is there is as good.
    for file_id in file_ids:
        store_placeholder(storage, mdt_partition, file_id, instant)


def gather_shards(
    read: Callable[[Collection[str]], Iterable[Mapping[str, Entries]]], file_ids: Sequence[str], *, passes: int = 1
) -> Iterator[tuple[str, list[Entries]]]:
    """The entries of each shard that has any, in pieces, from all entries of a partition as `read` gives them.

    `read` is asked once per pass for the entries of some shards, by file id, and gives them piece by piece. Held are
    the entries of as many shards as come together in one of the `passes`.
    """
    per_pass = max(1, -(-len(file_ids) // passes))
    for start in range(0, len(file_ids), per_pass):
        wanted = file_ids[start : start + per_pass]
        parts: dict[str, list[Entries]] = {}
        for piece in read(frozenset(wanted)):
            for file_id, entries in piece.items():
                parts.setdefault(file_id, []).append(entries)
        for file_id in wanted:
            if file_id in parts:
                yield file_id, parts.pop(file_id)


def store_base(
    storage: Storage,
    mdt_partition: str,
    file_id: str,
    entries: Entries,
    *,
    instant: InstantTime,
    token: str,
    created_ms: int,
    in_order: bool = False,
    has_ordering: bool = False,
    codec: ShardCodec = SHARD_CODEC,
) -> WriteStat:
    """Stores the base file of a shard: all its entries; for their order and `has_ordering` see `encode_base`."""
    data = codec.encode_base(entries, created_ms=created_ms, in_order=in_order, has_ordering=has_ordering)
    return store_encoded(
        storage, mdt_partition, file_id, data, instant=instant, token=token, entry_count=len(entries.keys)
    )


def store_encoded(
    storage: Storage,
    mdt_partition: str,
    file_id: str,
    data: bytes,
    *,
    instant: InstantTime,
    token: str,
    entry_count: int,
) -> WriteStat:
    """Stores a base file that is encoded already: which instant it is of, its name alone says."""
    path = f"{mdt_partition}/{encode_base_file_name(file_id, token, instant, '.hfile')}"
    store_file(storage, f"{ROOT}{path}", data)
    return WriteStat(
        file_id=file_id,
        path=path,
        partition=mdt_partition,
        num_writes=entry_count,
        num_inserts=entry_count,
        total_write_bytes=len(data),
        file_size=len(data),
        extra=NO_LOGS,
    )
