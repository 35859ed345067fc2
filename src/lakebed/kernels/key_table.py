"""Hash tables of record keys: 128-bit fingerprints, open addressing, linear probing.

The fingerprint is SipHash-2-4 with 128 bits of output and a secret 128-bit seed, a pseudorandom function: whatever keys
are given, two of them share a fingerprint with odds of 2**-128. So a table needs no keys, and a match is a match.

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
"""The entry of a key that was deleted."""
MARK_BITS = 3
"""Bits of a mark, all in one word: of a thousand keys without one, a few look as if they had one."""
SEED_BYTES = 16
TABLE_FIELDS, MARK_FIELDS = 6, 5
"""Numbers of a table in `tables_at`, and of a shard in `marks_at`."""


class Table(Protocol):
    """A table whose slots lead to entries, and entries to places, that are there, and that has an empty slot."""

    @property
    def slots(self) -> UInt32s: ...  # noqa: D102
    @property
    def place_of(self) -> Int32s: ...  # noqa: D102
    @property
    def instants_ms(self) -> Int64s: ...  # noqa: D102
    @property
    def ordering(self) -> Int64s: ...  # noqa: D102


class Tables(Protocol):
    """The tables of a shard, the newest one first; for each, the number of each of its places.

    `tables_at` has for each table where its slots lie and how many there are, and where place_of, instants_ms, ordering
    (0: it has none) and its numbers do; `marks_at` where both kinds of marks lie, how many words they are, and the
    number of the largest table.
    """

    @property
    def tables(self) -> Sequence[Table]: ...  # noqa: D102
    @property
    def numbers(self) -> Sequence[Int32s]: ...  # noqa: D102
    @property
    def tables_at(self) -> Int64s: ...  # noqa: D102
    @property
    def marks_at(self) -> tuple[int, int, int, int, int]: ...  # noqa: D102


def fingerprint_keys(data: Bytes, offsets: Int64s, seed: bytes, found: UInt32s) -> None:
    """Fill `found`, four words per key, with the fingerprints of keys that lie in `data` between `offsets`."""
    count = check_offsets(data, offsets)
    check_length(found, 4 * count, "fingerprints")
    choose("key_table", count).fingerprint_keys(data, offsets, *_halves(seed), found)


def insert_entries(slots: UInt32s, prints: UInt32s, entries: UInt32s) -> None:
    """Enter keys by their fingerprints, each over what it had before."""
    check_length(prints, 4 * len(entries), "fingerprints")
    _check_room(slots, len(entries))
    choose("key_table", len(entries)).insert_entries(slots, prints, entries)


def enter_keys(data: Bytes, offsets: Int64s, ids: Int32s, seed: bytes, numbers: UInt32s, slots: UInt32s) -> None:
    """Number the values that keys have, from 1 in the order of the dictionary, and enter the keys with these numbers.

    `numbers`, all zeros, has an element for every value of the dictionary; `slots`, too, are zeros.
    """
    count = check_offsets(data, offsets)
    check_length(ids, count, "values")
    check_numbers(ids, len(numbers), "value")
    _check_room(slots, count)
    choose("key_table", count).enter_keys(data, offsets, ids, *_halves(seed), numbers, slots)


def mark_keys(slots: UInt32s, marks: Words) -> None:
    """Mark every key that a table has. `marks` are as many words as a power of two."""
    require(len(slots) % SLOT_WORDS == 0, "slots are not whole")
    require(len(marks) > 0 and not len(marks) & (len(marks) - 1), f"{len(marks)} words of marks")
    choose("key_table", len(slots) // SLOT_WORDS).mark_keys(slots, marks)


def find_entries(
    shards: Sequence[Tables],
    numbers: Int32s,
    numbers_of: Int64s,
    prints: UInt32s,
    order: Int64s,
    bounds: Int64s,
    span: tuple[int, int],
    found: tuple[Int32s, Int64s, Int64s],
) -> int:
    """Fill in where keys live, by the newest table of their shard that has them, and say how many are somewhere.

    The keys of shard s are `order[bounds[s] : bounds[s + 1]]`; only those from the first to before the last place
    of `span` in that order are looked for. The number of place p of shard s is `numbers[numbers_of[s] + p]`. What is
    `found` of a key: that number, the instant in milliseconds, and the ordering value if the entry has one.
    """
    codes, instants_ms, ordering = found
    check_length(prints, 4 * len(codes), "fingerprints")
    check_length(instants_ms, len(codes), "instants")
    check_length(ordering, len(codes), "ordering values")
    check_numbers(order, len(codes), "key")
    check_length(bounds, len(shards) + 1, "bounds")
    check_length(numbers_of, len(shards) + 1, "numbers of shards")
    require(0 <= span[0] <= span[1] <= len(order), "the span leaves the keys")
    require(bounds[0] >= 0 and bounds[-1] <= len(order) and (np.diff(bounds) >= 0).all(), "bounds of shards")
    module = choose("key_table", span[1] - span[0])
    return int(module.find_entries(shards, numbers, numbers_of, prints, order, bounds, span, found))


def _halves(seed: bytes) -> tuple[np.uint64, np.uint64]:
    require(len(seed) == SEED_BYTES, f"a seed of {len(seed)} bytes")
    low, high = np.frombuffer(seed, "<u8")
    return low, high


def _check_room(slots: UInt32s, count: int) -> None:
    """BadBufferError unless a slot stays empty, without which a search would not end."""
    require(len(slots) % SLOT_WORDS == 0, "slots are not whole")
    slot_count = len(slots) // SLOT_WORDS
    if 2 * count >= slot_count or slots[SLOT_ENTRY]:
        count += int(np.count_nonzero(slots[SLOT_ENTRY::SLOT_WORDS]))
    require(count < slot_count, f"{count} keys do not fit into {slot_count} slots")
