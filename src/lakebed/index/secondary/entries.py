"""Entries of secondary indexes: pairs of a column's value and a record key.

New pairs are added and outdated ones deleted; a row that keeps its value adds no entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.metadata.records import encode_secondary_record
from lakebed.format.metadata.secondary_keys import secondary_keys, secondary_value_texts
from lakebed.metadata.entries import Entries, split_entries


@dataclass(frozen=True, slots=True)
class ValueChanges:
    """The rows that an instant changed: record keys and values of the indexed column, after and before it.

    An inserted row has no old value, a deleted row no new one. Unchanged rows may be in both.
    """

    new_keys: pa.Array
    new_values: pa.Array
    old_keys: pa.Array
    old_values: pa.Array


def secondary_index_shards(changes: ValueChanges, file_ids: Sequence[str], *, version: str) -> dict[str, Entries]:
    """The entries of each shard that has any, by file id; `version` is the version of the index."""
    puts, put_prefixes = _pairs(changes.new_values, changes.new_keys, version)
    takes, take_prefixes = _pairs(changes.old_values, changes.old_keys, version)
    fresh, stale = pc.invert(pc.is_in(puts, takes)), pc.invert(pc.is_in(takes, puts))
    keys, deletes = puts.filter(fresh), takes.filter(stale)
    value = pa.array([encode_secondary_record()], pa.binary())
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(keys), np.int32)), value)
    entries = Entries(keys, values, deletes)
    if version == "V1":
        return split_entries(entries, file_ids)
    return split_entries(entries, file_ids, hashed=(put_prefixes.filter(fresh), take_prefixes.filter(stale)))


def _pairs(values: ArrowArray, record_keys: ArrowArray, version: str) -> tuple[ArrowArray, ArrowArray]:
    """The stored keys of pairs, and their prefixes, which all pairs of a value share."""
    texts = secondary_value_texts(values)
    if version == "V1":  # Knows no nulls.
        known = pc.is_valid(texts)
        texts, record_keys = texts.filter(known), record_keys.filter(known)
    stored = secondary_keys(texts, record_keys, version=version)
    return stored, secondary_keys(texts, pa.repeat("", len(texts)), version=version)
