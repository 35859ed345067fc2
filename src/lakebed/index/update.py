"""Writing what an instant means into the metadata table: each index of the table gets the entries of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from lakebed.index.change import MetadataChange
from lakebed.index.kind import Update
from lakebed.index.kinds import kind_of
from lakebed.index.partition_stats.current import CurrentStats
from lakebed.metadata.entries import Entries
from lakebed.metadata.shard_writes import (
    Companion,
    EncodedShard,
    EncodeShard,
    ShardWrite,
    encode_shard,
    write_shards,
)
from lakebed.model.commit import WriteStat
from lakebed.storage import Storage

__all__ = ["CurrentStats", "Ready", "plan_change", "write_change"]

_STORED_BYTES = 96 << 20
"""Bytes of stored entries that are loaded at once, unless one shard has more: in memory they take six times as much."""

Ready = Mapping[str, Sequence[Future[EncodedShard]]]
"""Log files that were encoded ahead, or are about to be, by metadata-table partition."""


def plan_change(change: MetadataChange, update: Update) -> tuple[ShardWrite, ...]:
    """One write per shard that the change touches."""
    return tuple(_planned(dict.fromkeys(update.partitions), change, update))


def write_change(
    storage: Storage,
    change: MetadataChange,
    update: Update,
    *,
    token: str,
    created_ms: int,
    beside: Companion | None = None,
    ready: Ready | None = None,
    encode: EncodeShard = encode_shard,
) -> tuple[WriteStat, ...]:
    """Plans a change and stores its log files; the write stats are those of the metadata table's delta commit.

    For partitions that are among the `ready`, all that the change has for them is there.
    """
    store = partial(
        write_shards,
        storage,
        instant=update.instant,
        token=token,
        created_ms=created_ms,
        beside=beside,
        encode=encode,
    )
    partitions = [*dict.fromkeys(update.partitions)]
    known = ready or {}
    writes = _planned(sorted((p for p in partitions if p not in known), key=_has_few), change, update)
    if change.key_files is None:
        stats = [*store(writes, ready=[future for futures in known.values() for future in futures])]
    else:
        stats = [stat for some in _loaded([*writes]) for stat in store(some)]
    return tuple(sorted(stats, key=lambda stat: partitions.index(stat.partition)))


def _planned(partitions: Iterable[str], change: MetadataChange, update: Update) -> Iterator[ShardWrite]:
    for partition in partitions:
        yield from kind_of(partition).writes(partition, change, update)


def _has_few(partition: str) -> bool:
    return kind_of(partition).has_few


def _loaded(writes: Sequence[ShardWrite]) -> Iterator[Sequence[ShardWrite]]:
    """The writes of a large change with their entries, as many as there is room for."""
    yield [write for write in writes if isinstance(write.entries, Entries)]
    stored = [write for write in writes if not isinstance(write.entries, Entries)]
    largest = max((write.entries.bytes for write in stored if not isinstance(write.entries, Entries)), default=0)
    count = max(1, _STORED_BYTES // max(largest, 1))
    for first in range(0, len(stored), count):
        yield [write.loaded() for write in stored[first : first + count]]
