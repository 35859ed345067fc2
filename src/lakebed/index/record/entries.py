"""Entries of the record index: the file group of each record key.

Only added, removed and moved keys are written: a key that stays in its file group keeps its entry, unless entries carry
ordering values and are kept current. A key that moves is both inserted and deleted. A global index has one set of
shards, where the insert wins; a partitioned one has a set per data partition, where both apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, number_array, pc
from lakebed.format.hfile.arrow import SMALL_COUNT, binary_buffers
from lakebed.format.metadata.record_index import RecordLocation, encode_ordered_entries, encode_record_index_value
from lakebed.kernels.key_numbers import number_keys
from lakebed.metadata.entries import Entries, concat_texts, concat_values, split_entries, split_in_order

AVERAGE_ENTRY_BYTES = 48
"""Size of an entry in bytes that Hudi assumes when it sizes the index."""


@dataclass(frozen=True, slots=True)
class ShardSizing:
    """How many shards an index gets: enough for its keys times `growth`, each up to `shard_bytes_max` bytes."""

    least: int = 10
    most: int = 10_000
    growth: float = 2.0
    shard_bytes_max: int = 1 << 30


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Record keys that an instant inserted into a file group, and those that it deleted from it.

    `ordering` has the ordering values of inserted keys as numbers, null for none; it is None if no key has one.
    """

    partition: str
    file_id: str
    inserted: pa.Array | None = None
    deleted: pa.Array | None = None
    ordering: pa.Array | None = None


def is_same_keys(one: KeyChanges, other: KeyChanges) -> bool:
    """Whether two changes are equal."""
    is_same = (one.partition, one.file_id) == (other.partition, other.file_id)
    return is_same and all(
        a is b or (a is not None and b is not None and a.equals(b))
        for a, b in ((one.inserted, other.inserted), (one.deleted, other.deleted), (one.ordering, other.ordering))
    )


def record_index_shards(
    changes: Iterable[KeyChanges],
    shards_for: Callable[[str], Sequence[str]],
    *,
    instant_ms: int,
    has_ordering: bool = False,
) -> dict[str, Entries]:
    """The entries of each shard that has any, by file id. `instant_ms` is the instant in milliseconds since 1970.

    `shards_for` returns the shards of a data partition, in shard order; for a global index always the same. If a key is
    inserted several times, the last one wins.
    """
    parts: dict[tuple[str, ...], list[KeyChanges]] = {}
    for change in changes:
        parts.setdefault(tuple(shards_for(change.partition)), []).append(change)
    found: dict[str, Entries] = {}
    for shards, every in parts.items():
        found.update(_split(_join(every, instant_ms=instant_ms, has_ordering=has_ordering), shards))
    return dict(sorted(found.items()))


def key_entries(change: KeyChanges, *, instant_ms: int, has_ordering: bool = False) -> Entries:
    """The entries for the keys of one file group, not split by shard; `has_ordering` selects the schema."""
    location = RecordLocation(change.partition, change.file_id, instant_ms)
    keys, deletes = key_texts(change.inserted), key_texts(change.deleted)
    if has_ordering and change.ordering is not None:
        return Entries(keys, encode_ordered_entries(location, change.ordering), deletes)
    value = encode_record_index_value(location, has_ordering=has_ordering)
    ids = pa.array(np.zeros(len(keys), np.int32))
    return Entries(keys, pa.DictionaryArray.from_arrays(ids, pa.array([value], pa.binary())), deletes)


def shard_count(rows: int, sizing: ShardSizing) -> int:
    """Number of shards for so many rows."""
    keys_max = max(1, sizing.shard_bytes_max // AVERAGE_ENTRY_BYTES)
    return min(max(sizing.least, int(rows * sizing.growth) // keys_max, 1), sizing.most)


def key_texts(keys: ArrowArray | None) -> ArrowArray:
    """Keys as one array; an empty one for None."""
    if keys is None:
        return pa.array([], pa.string())
    return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys


def _join(changes: list[KeyChanges], *, instant_ms: int, has_ordering: bool) -> Entries:
    """All entries for a set of shards; repeated inserts are kept, and an insert wins over a delete."""
    keys = concat_texts([key_texts(change.inserted) for change in changes])
    deletes = concat_texts([key_texts(change.deleted) for change in changes if change.deleted is not None])
    if len(keys) and len(deletes):
        deletes = deletes.filter(pc.invert(pc.is_in(deletes, keys.cast(deletes.type))))
    if has_ordering and any(change.ordering is not None for change in changes):
        entries = [key_entries(change, instant_ms=instant_ms, has_ordering=True) for change in changes]
        return Entries(keys, concat_values([each.values for each in entries]), deletes)
    locations = [RecordLocation(change.partition, change.file_id, instant_ms) for change in changes]
    values = [encode_record_index_value(location, has_ordering=has_ordering) for location in locations]
    counts = [0 if change.inserted is None else len(change.inserted) for change in changes]
    ids = number_array(np.repeat(np.arange(len(changes), dtype=np.int32), counts), pa.int32())
    return Entries(keys, pa.DictionaryArray.from_arrays(ids, pa.array(values, pa.large_binary())), deletes)


def _split(entries: Entries, shards: Sequence[str]) -> dict[str, Entries]:
    """The entries of each shard that has any; of repeated inserts the last."""
    if len(entries.keys) > SMALL_COUNT:
        found = split_in_order(entries, shards)
        if found is not None:
            return found
    return split_entries(_last_of_each(entries), shards)


def _last_of_each(entries: Entries) -> Entries:
    """One entry per key, the last: rows added without a lookup of their keys may repeat some."""
    numbers, count = _number_keys(entries.keys)
    if count == len(entries.keys):
        return entries
    last = np.empty(count, np.int64)
    last[numbers] = np.arange(len(entries.keys))
    rows = pa.array(np.sort(last))
    return Entries(entries.keys.take(rows), entries.values.take(rows), entries.deletes)


def _number_keys(keys: ArrowArray) -> tuple[npt.NDArray[np.int64], int]:
    """The number of each key among the distinct ones, and how many these are."""
    return number_keys(*binary_buffers(keys), np.empty(0, np.int64))
