"""Hash tables of record keys: 128-bit fingerprints, open addressing, linear probing.

The fingerprint is SipHash-2-4 with 128 bits of output and a secret 128-bit seed, a pseudorandom function: two keys,
even chosen by an attacker, share a fingerprint with a probability of 2**-128. So a table stores no keys.

A slot is five 32-bit words: four of the fingerprint, and an entry; entry 0 is an empty slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lakebed.kernels.buffers import (
    Bytes,
    Int32s,
    Int64s,
    UInt32s,
    Words,
    check_length,
    check_numbers,
    check_offsets,
    require,
)
from lakebed.kernels.choice import choose

SLOT_WORDS, SLOT_BYTES, SLOT_ENTRY = 5, 20, 4
GONE = 0xFFFFFFFF
"""The entry of a deleted key."""
MARK_BITS = 3
"""Number of bits of a mark, all in one word; a few of a thousand absent keys pass as present."""
SEED_BYTES = 16
TABLE_FIELDS, MARK_FIELDS = 6, 5
"""Number of fields of a table in `tables_at`, and of a shard in `marks_at`."""


class SlotTable(Protocol):
    """A validated table: slots refer to existing entries, entries to existing places, and some slot is empty."""

    @property
    def slots(self) -> UInt32s: ...  # noqa: D102
    @property
    def place_of(self) -> Int32s: ...  # noqa: D102
    @property
    def instants_ms(self) -> Int64s: ...  # noqa: D102
    @property
    def ordering(self) -> Int64s: ...  # noqa: D102


class ShardTables(Protocol):
    """The tables of a shard, newest first, and the number of each place of each table.

    `tables_at` has per table: address and number of slots; addresses of place_of, instants_ms, ordering (0: none) and
    numbers. `marks_at` has address and size in words of both bitmaps of marks, and the number of the largest table.
    """

    @property
    def tables(self) -> Sequence[SlotTable]: ...  # noqa: D102
    @property
    def numbers(self) -> Sequence[Int32s]: ...  # noqa: D102
    @property
    def tables_at(self) -> Int64s: ...  # noqa: D102
    @property
    def marks_at(self) -> tuple[int, int, int, int, int]: ...  # noqa: D102


def fingerprint_keys(data: Bytes, offsets: Int64s, seed: bytes, found: UInt32s) -> None:
    """Fill `found` with the fingerprint of each key, four words per key."""
    count = check_offsets(data, offsets)
    check_length(found, 4 * count, "fingerprints")
    choose("key_table", count).fingerprint_keys(data, offsets, *_halves(seed), found)


def insert_entries(slots: UInt32s, prints: UInt32s, entries: UInt32s) -> None:
    """Insert keys by their fingerprints; a key that is there gets the new entry."""
    check_length(prints, 4 * len(entries), "fingerprints")
    _check_room(slots, len(entries))
    choose("key_table", len(entries)).insert_entries(slots, prints, entries)


def enter_keys(data: Bytes, offsets: Int64s, ids: Int32s, seed: bytes, numbers: UInt32s, slots: UInt32s) -> None:
    """Number the dictionary values that occur, from 1 in dictionary order, and insert keys with the number as entry.

    `ids` has the dictionary index of each key. `numbers`, one element per dictionary value, and `slots` are all zeros.
    """
    count = check_offsets(data, offsets)
    check_length(ids, count, "values")
    check_numbers(ids, len(numbers), "value")
    _check_room(slots, count)
    choose("key_table", count).enter_keys(data, offsets, ids, *_halves(seed), numbers, slots)


def mark_keys(slots: UInt32s, marks: Words) -> None:
    """Set the mark of every key of a table. The number of words in `marks` is a power of two."""
    require(len(slots) % SLOT_WORDS == 0, "slots are not whole")
    require(len(marks) > 0 and not len(marks) & (len(marks) - 1), f"{len(marks)} words of marks")
    choose("key_table", len(slots) // SLOT_WORDS).mark_keys(slots, marks)


def find_entries(
    shards: Sequence[ShardTables],
    numbers: Int32s,
    numbers_of: Int64s,
    prints: UInt32s,
    order: Int64s,
    bounds: Int64s,
    span: tuple[int, int],
    found: tuple[Int32s, Int64s, Int64s],
) -> int:
    """Look up keys, each in the newest table of its shard that has it, and return how many were found.

    The keys of shard s are `order[bounds[s] : bounds[s + 1]]`; only positions in `span` of that order are looked up.
    The number of place p of shard s is `numbers[numbers_of[s] + p]`. `found` receives per key: that number, the instant
    in milliseconds, and the ordering value if the entry has one.
    """
    codes, instants_ms, ordering = found
    check_length(prints, 4 * len(codes), "fingerprints")
    check_length(instants_ms, len(codes), "instants")
    check_length(ordering, len(codes), "ordering values")
    check_numbers(order, len(codes), "key")
    check_length(bounds, len(shards) + 1, "bounds")
    check_length(numbers_of, len(shards) + 1, "numbers of shards")
    require(0 <= span[0] <= span[1] <= len(order), "the span is out of range")
    require(bounds[0] >= 0 and bounds[-1] <= len(order) and (np.diff(bounds) >= 0).all(), "bounds of shards")
    module = choose("key_table", span[1] - span[0])
    return int(module.find_entries(shards, numbers, numbers_of, prints, order, bounds, span, found))


def _halves(seed: bytes) -> tuple[np.uint64, np.uint64]:
    require(len(seed) == SEED_BYTES, f"a seed of {len(seed)} bytes")
    low, high = np.frombuffer(seed, "<u8")
    return low, high


def _check_room(slots: UInt32s, count: int) -> None:
    """BadBufferError unless at least one slot stays empty; otherwise a search would not end."""
    require(len(slots) % SLOT_WORDS == 0, "slots are not whole")
    slot_count = len(slots) // SLOT_WORDS
    if 2 * count >= slot_count or slots[SLOT_ENTRY]:
        count += int(np.count_nonzero(slots[SLOT_ENTRY::SLOT_WORDS]))
    require(count < slot_count, f"{count} keys do not fit into {slot_count} slots")
