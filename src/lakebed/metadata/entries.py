"""Entries of a metadata-table partition, and how they are split over its shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, number_array, texts_between
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.java import shards_of
from lakebed.kernels.ordering import group_rows
from lakebed.kernels.sharding import split_keys

_TEXT_BYTES_MAX = 2**31 - 1
"""Maximum size in bytes of an array with 32-bit offsets."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries that one instant adds, and keys that it deletes. A key occurs only once.

    `keys` and `deletes` are texts, `values` the stored bytes, as a dictionary if many are equal. With `in_order`, keys
    are in ascending order.
    """

    keys: pa.Array
    values: pa.Array
    deletes: pa.Array
    in_order: bool = False

    @classmethod
    def of(cls, records: Mapping[str, bytes], deletes: Iterable[str] = ()) -> Entries:
        """The entries of a few records."""
        keys, values = pa.array(list(records), pa.string()), pa.array(list(records.values()), pa.binary())
        return cls(keys, values, pa.array(list(deletes), pa.string()))

    def __len__(self) -> int:
        return len(self.keys) + len(self.deletes)


def split_entries(
    entries: Entries,
    file_ids: Sequence[str],
    *,
    hashed: tuple[ArrowArray, ArrowArray] | None = None,
    wanted: Collection[str] | None = None,
) -> dict[str, Entries]:
    """The entries of each shard that has any, by file id; `file_ids` are those of all shards, in shard order.

    `hashed` has the texts to hash instead of keys and deletes, for indexes that hash a part of the key. If `wanted` is
    given, only those shards are returned.
    """
    puts, takes = hashed or (entries.keys, entries.deletes)
    records = dict(_by_shard(puts, len(file_ids)))
    deletes = dict(_by_shard(takes, len(file_ids)))
    nothing = np.empty(0, np.int64)
    found = {}
    for shard in sorted(records.keys() | deletes.keys()):
        if wanted is not None and file_ids[shard] not in wanted:
            continue
        rows, gone = pa.array(records.get(shard, nothing)), pa.array(deletes.get(shard, nothing))
        found[file_ids[shard]] = Entries(entries.keys.take(rows), entries.values.take(rows), entries.deletes.take(gone))
    return found


def split_in_order(entries: Entries, file_ids: Sequence[str]) -> dict[str, Entries] | None:
    """Like `split_entries`, but sorts keys, and is faster for many; None if a key occurs twice.

    The values must be a dictionary.
    """
    split = split_keys(*binary_buffers(entries.keys), entries.values.indices.to_numpy(), len(file_ids))
    if split is None:
        return None
    keys = texts_between(split.data, split.offsets, entries.keys.type)
    values = pa.DictionaryArray.from_arrays(number_array(split.numbers, pa.int32()), entries.values.dictionary)
    deletes = dict(_by_shard(entries.deletes, len(file_ids)))
    found = {}
    for shard, (start, end) in enumerate(pairwise(split.bounds.tolist())):
        if start == end and shard not in deletes:
            continue
        gone = entries.deletes.take(pa.array(deletes[shard])) if shard in deletes else entries.deletes.slice(0, 0)
        length = end - start
        found[file_ids[shard]] = Entries(keys.slice(start, length), values.slice(start, length), gone, True)
    return found


def concat_entries(parts: Sequence[Entries]) -> Entries:
    """Joins entries whose keys are distinct."""
    if len(parts) == 1:
        return parts[0]
    return Entries(
        concat_texts([part.keys for part in parts]),
        concat_values([part.values for part in parts]),
        concat_texts([part.deletes for part in parts]),
    )


def concat_texts(arrays: Sequence[ArrowArray]) -> ArrowArray:
    """Joins arrays of texts; offsets get 64 bits if needed."""
    if not arrays:
        return pa.array([], pa.string())
    is_large = sum(array.nbytes for array in arrays) > _TEXT_BYTES_MAX
    kind = pa.large_string() if is_large or any(a.type == pa.large_string() for a in arrays) else pa.string()
    return pa.concat_arrays([array if array.type == kind else array.cast(kind) for array in arrays])


def concat_values(arrays: Sequence[ArrowArray]) -> ArrowArray:
    """Joins arrays of values, plain or dictionaries, into one dictionary array."""
    encoded = [array if pa.types.is_dictionary(array.type) else _as_dictionary(array) for array in arrays]
    offsets = np.cumsum([0, *(len(array.dictionary) for array in encoded)])
    ids = [array.indices.to_numpy() + offset for array, offset in zip(encoded, offsets, strict=False)]
    distinct = pa.concat_arrays([array.dictionary.cast(pa.large_binary()) for array in encoded])
    return pa.DictionaryArray.from_arrays(pa.array(np.concatenate(ids).astype(np.int32)), distinct)


def _as_dictionary(values: ArrowArray) -> ArrowArray:
    """A dictionary array with one dictionary entry per value: finding equal ones costs more than it saves."""
    return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(values), dtype=np.int32)), values)


def _by_shard(hashed: ArrowArray, shards: int) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """The positions of the keys of each shard that has any."""
    if len(hashed) == 0:
        return
    order, bounds = group_rows(shards_of(hashed, shards), shards)
    for shard in np.flatnonzero(np.diff(bounds)).tolist():
        yield shard, order[bounds[shard] : bounds[shard + 1]]
