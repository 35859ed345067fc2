"""Hash tables of keys with numpy: all keys take each step of their search together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, UInt32s, Words
from lakebed.kernels.key_table import GONE, MARK_BITS, SLOT_ENTRY, SLOT_WORDS, ShardTables, SlotTable
from lakebed.kernels.plain.strings import Strings

_SIPHASH = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_FREE = np.iinfo(np.int64).max


def fingerprint_keys(data: Bytes, offsets: Int64s, low: np.uint64, high: np.uint64, found: UInt32s) -> None:
    """SipHash-2-4-128 of all keys, word by word."""
    keys = Strings(data, offsets, width=8)
    count = len(offsets) - 1
    seeds = (low, high ^ np.uint64(0xEE), low, high)
    a, b, c, d = (np.full(count, seed ^ np.uint64(start)) for seed, start in zip(seeds, _SIPHASH, strict=True))
    for some, words in keys.words():
        state = _rounds(a[some], b[some], c[some], d[some] ^ words, 2)
        a[some], b[some], c[some], d[some] = state[0] ^ words, *state[1:]
    last = keys.rest() | keys.lengths.astype(np.uint64) << np.uint64(56)
    a, b, c, d = _rounds(a, b, c, d ^ last, 2)
    a, b, c, d = _rounds(a ^ last, b, c ^ np.uint64(0xEE), d, 4)
    prints = np.empty((count, 2), np.uint64)
    prints[keys.order, 0] = a ^ b ^ c ^ d
    a, b, c, d = _rounds(a, b ^ np.uint64(0xDD), c, d, 4)
    prints[keys.order, 1] = a ^ b ^ c ^ d
    found[:] = prints.reshape(-1).view(np.uint32)


def _rotate(words: Words, by: int) -> Words:
    return words << np.uint64(by) | words >> np.uint64(64 - by)


def _rounds(a: Words, b: Words, c: Words, d: Words, count: int) -> tuple[Words, Words, Words, Words]:
    for _ in range(count):
        a, c = a + b, c + d
        b, d = _rotate(b, 13) ^ a, _rotate(d, 16) ^ c
        a = _rotate(a, 32)
        c, a = c + b, a + d
        b, d = _rotate(b, 17) ^ c, _rotate(d, 21) ^ a
        c = _rotate(c, 32)
    return a, b, c, d


def insert_entries(slots: UInt32s, prints: UInt32s, entries: UInt32s) -> None:
    """Insert keys as if one after the other: if two want a slot, the earlier gets it and the later moves on."""
    table, words = slots.reshape(-1, SLOT_WORDS), prints.reshape(-1, 4)
    keys, entries = _distinct(words, entries)
    words = words[keys]
    holder = np.where(table[:, SLOT_ENTRY] != 0, -1, _FREE)  # Per slot: the key that takes it; -1: taken before.
    waiting, slot = np.arange(len(keys)), _homes(words, len(table))
    while len(waiting):
        at = slot[waiting]
        is_own = (holder[at] == -1) & (table[at, :4] == words[waiting]).all(axis=1)
        table[at[is_own], SLOT_ENTRY] = entries[waiting[is_own]]
        waiting, at = waiting[~is_own], at[~is_own]
        held = holder[at]
        np.minimum.at(holder, at, waiting)
        lost = waiting[holder[at] != waiting]
        won = holder[at] == waiting
        moved = held[won & (held != _FREE)]  # Later keys that were there.
        waiting = np.concatenate((lost, moved))
        slot[waiting] = (slot[waiting] + 1) % len(table)
    taken = np.flatnonzero((holder >= 0) & (holder != _FREE))
    table[taken, :4], table[taken, SLOT_ENTRY] = words[holder[taken]], entries[holder[taken]]


def _distinct(words: UInt32s, entries: UInt32s) -> tuple[Int64s, UInt32s]:
    """The first position of each distinct key, and its last entry."""
    prints = pa.Array.from_buffers(pa.binary(16), len(words), [None, pa.py_buffer(np.ascontiguousarray(words))])
    encoded = prints.dictionary_encode()
    if len(encoded.dictionary) == len(words):
        return np.arange(len(words)), entries
    numbers = encoded.indices.to_numpy()
    firsts, lasts = np.empty(len(encoded.dictionary), np.int64), np.empty(len(encoded.dictionary), np.int64)
    lasts[numbers] = np.arange(len(words))  # Of repeated indices, the last assignment wins.
    firsts[numbers[::-1]] = np.arange(len(words) - 1, -1, -1)
    return firsts, entries[lasts]


def _homes(words: UInt32s, slot_count: int) -> Int64s:
    """The slot in which the search for each key begins."""
    return (words[:, 0].astype(np.uint64) * np.uint64(slot_count) >> np.uint64(32)).astype(np.int64)


def enter_keys(
    data: Bytes, offsets: Int64s, ids: Int32s, low: np.uint64, high: np.uint64, numbers: UInt32s, slots: UInt32s
) -> None:
    """Number the values that occur, and insert the keys with these numbers."""
    numbers[ids] = 1
    numbers *= np.cumsum(numbers, dtype=np.uint32)
    prints = np.empty(4 * len(ids), np.uint32)
    fingerprint_keys(data, offsets, low, high, prints)
    insert_entries(slots, prints, numbers[ids])


def mark_keys(slots: UInt32s, marks: Words) -> None:
    """Set some bits of a word for every key."""
    table = slots.reshape(-1, SLOT_WORDS)
    table = table[table[:, SLOT_ENTRY] != 0]
    bits = table[:, 2].astype(np.uint64) | table[:, 3].astype(np.uint64) << np.uint64(32)
    mark = np.zeros(len(bits), np.uint64)
    for _ in range(MARK_BITS):
        mark |= np.uint64(1) << (bits & np.uint64(63))
        bits >>= np.uint64(6)
    np.bitwise_or.at(marks, (bits & np.uint64(len(marks) - 1)).astype(np.int64), mark)


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
    """Look for the keys of each shard in its tables, from the newest on."""
    codes, instants_ms, ordering = found
    words, hits = prints.reshape(-1, 4), 0
    for shard, tables in enumerate(shards):
        keys = order[max(span[0], int(bounds[shard])) : max(0, min(span[1], int(bounds[shard + 1])))]
        for table, of_places in zip(tables.tables, tables.numbers, strict=True):
            entries = _look(table, words[keys])
            is_live = (entries != 0) & (entries != GONE)
            live, at = keys[is_live], entries[is_live].astype(np.int64) - 1
            codes[live] = numbers[numbers_of[shard] + of_places[table.place_of[at]]]
            instants_ms[live] = table.instants_ms[at]
            if len(table.ordering):
                ordering[live] = table.ordering[at]
            hits += len(live)
            keys = keys[entries == 0]
    return hits


def _look(table: SlotTable, words: UInt32s) -> UInt32s:
    """The entry of each key, 0 if the table does not have it."""
    slots = table.slots.reshape(-1, SLOT_WORDS)
    entries, slot = np.zeros(len(words), np.uint32), _homes(words, len(slots))
    waiting = np.arange(len(words))
    while len(waiting):
        at = slots[slot[waiting]]
        is_there = (at[:, :4] == words[waiting]).all(axis=1) & (at[:, SLOT_ENTRY] != 0)
        entries[waiting[is_there]] = at[is_there, SLOT_ENTRY]
        waiting = waiting[~is_there & (at[:, SLOT_ENTRY] != 0)]
        slot[waiting] = (slot[waiting] + 1) % len(slots)
    return entries
