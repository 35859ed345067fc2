"""Hash tables of keys in compiled code.

Inner functions take addresses: passing arrays costs reference counting, which adds half to the run time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lakebed.kernels.buffers import Bytes, Int32s, Int64s, UInt32s, Words
from lakebed.kernels.compiled.jit import (
    BYTES,
    INT,
    INT32S,
    INT64S,
    OUT_INT32S,
    OUT_INT64S,
    OUT_UINT32S,
    OUT_WORDS,
    PAIR,
    UINT32S,
    WORD,
    Entry,
    kernel,
)
from lakebed.kernels.compiled.memory import load_byte, load_int, load_long, prefetch, prefetch_at, store
from lakebed.kernels.compiled.siphash_lanes import LANES, VECTORS, finish, take_words
from lakebed.kernels.key_table import GONE, MARK_BITS, MARK_FIELDS, SLOT_BYTES, SLOT_WORDS, TABLE_FIELDS, ShardTables

_PRINT_BYTES, _ENTRY = 16, 16
_LANE_BYTES, _NEXT_WORDS = 8 * LANES, 8 * LANES * (VECTORS - 1)
"""Size in bytes of a vector of the SipHash state, and offset in bytes of its last vector."""
_AHEAD = 16
"""Prefetch distance in keys; a cache miss costs about as much as probing ten keys."""
_NEXT = 40
"""Distance in bytes of a second prefetch, for searches that go beyond the first slot."""


@kernel
def _rotate(word: np.uint64, by: int) -> np.uint64:
    return word << np.uint64(by) | word >> np.uint64(64 - by)


@kernel
def _rounds(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64, count: int
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    for _ in range(count):
        a, c = a + b, c + d
        b, d = _rotate(b, 13) ^ a, _rotate(d, 16) ^ c
        a = _rotate(a, 32)
        c, a = c + b, a + d
        b, d = _rotate(b, 17) ^ c, _rotate(d, 21) ^ a
        c = _rotate(c, 32)
    return a, b, c, d


@kernel
def _rest(at: int, end: int, length: int) -> np.uint64:
    """The last word of a message: the bytes left between two addresses, and the length of the message."""
    last, left = np.uint64(length) << np.uint64(56), end - at
    if left > 0 and length >= 8:
        return last | np.uint64(load_long(end - 8)) >> np.uint64(64 - 8 * left)
    for place in range(left):
        last |= np.uint64(load_byte(at + place)) << np.uint64(8 * place)
    return last


@kernel
def _fingerprint(at: int, end: int, low_seed: np.uint64, high_seed: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The two halves of the fingerprint of the key between two addresses."""
    length = end - at
    a = low_seed ^ np.uint64(0x736F6D6570736575)
    b = high_seed ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    c = low_seed ^ np.uint64(0x6C7967656E657261)
    d = high_seed ^ np.uint64(0x7465646279746573)
    while end - at >= 8:
        word = np.uint64(load_long(at))
        a, b, c, d = _rounds(a, b, c, d ^ word, 2)
        a ^= word
        at += 8
    last = _rest(at, end, length)
    a, b, c, d = _rounds(a, b, c, d ^ last, 2)
    a, b, c, d = _rounds(a ^ last, b, c ^ np.uint64(0xEE), d, 4)
    low = a ^ b ^ c ^ d
    a, b, c, d = _rounds(a, b ^ np.uint64(0xDD), c, d, 4)
    return low, a ^ b ^ c ^ d


@kernel
def _fingerprint_lanes(data: int, offsets: int, low_seed: np.uint64, high_seed: np.uint64, state: int) -> bool:
    """Fingerprint the next `LANES` keys together, into the first two vectors of the state.

    Returns False if they do not have equally many whole words. `offsets` is the address of their offsets into `data`.
    """
    at = load_long(offsets)
    count = (load_long(offsets + 8) - at) >> 3
    for lane in range(1, LANES):
        if (load_long(offsets + 8 * lane + 8) - load_long(offsets + 8 * lane)) >> 3 != count:
            return False
    for lane in range(LANES):
        store(state + 8 * lane, low_seed ^ np.uint64(0x736F6D6570736575))
        store(state + _LANE_BYTES + 8 * lane, high_seed ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE))
        store(state + 2 * _LANE_BYTES + 8 * lane, low_seed ^ np.uint64(0x6C7967656E657261))
        store(state + 3 * _LANE_BYTES + 8 * lane, high_seed ^ np.uint64(0x7465646279746573))
    for word in range(count):
        for lane in range(LANES):
            store(state + _NEXT_WORDS + 8 * lane, load_long(data + load_long(offsets + 8 * lane) + 8 * word))
        take_words(state)
    for lane in range(LANES):
        at, end = data + load_long(offsets + 8 * lane), data + load_long(offsets + 8 * lane + 8)
        store(state + _NEXT_WORDS + 8 * lane, _rest(at + 8 * count, end, end - at))
    take_words(state)
    finish(state)
    return True


@kernel
def _fingerprint_keys(data: Bytes, offsets: Int64s, low_seed: np.uint64, high_seed: np.uint64, found: UInt32s) -> None:
    """Fill `found` with the fingerprint of each key, four words per key."""
    keys, key, count = data.ctypes.data, 0, len(offsets) - 1
    state = np.empty(VECTORS * LANES, np.uint64)
    lanes, prints, bounds = state.ctypes.data, found.ctypes.data, offsets.ctypes.data
    while key < count:
        at = prints + _PRINT_BYTES * key
        if key + LANES <= count and _fingerprint_lanes(keys, bounds + 8 * key, low_seed, high_seed, lanes):
            for lane in range(LANES):
                store(at + _PRINT_BYTES * lane, load_long(lanes + 8 * lane))
                store(at + _PRINT_BYTES * lane + 8, load_long(lanes + _LANE_BYTES + 8 * lane))
            key += LANES
            continue
        low, high = _fingerprint(keys + offsets[key], keys + offsets[key + 1], low_seed, high_seed)
        store(at, low)
        store(at + 8, high)
        key += 1


@kernel
def _home(print_at: int, slot_count: int) -> int:
    """The slot in which the search for a key begins; `print_at` is the address of its fingerprint."""
    return np.int64(np.uint64(np.uint32(load_int(print_at))) * np.uint64(slot_count) >> np.uint64(32))


@kernel
def _find_slot(slots: int, slot_count: int, print_at: int) -> int:
    """The address of the slot that has a key, or of the empty one where it would go."""
    low, high = load_long(print_at), load_long(print_at + 8)
    slot = _home(print_at, slot_count)
    while True:
        at = slots + SLOT_BYTES * slot
        if load_int(at + _ENTRY) == 0 or (load_long(at) == low and load_long(at + 8) == high):
            return at
        slot = slot + 1 if slot + 1 < slot_count else 0


@kernel
def _insert_entries(slots: UInt32s, prints: UInt32s, entries: UInt32s) -> None:
    """Insert keys; a key that is there gets the new entry. There are more slots than keys."""
    slot_count = len(slots) // SLOT_WORDS
    table, first = slots.ctypes.data, prints.ctypes.data
    for key in range(len(entries)):
        if key + _AHEAD < len(entries):
            prefetch(slots, SLOT_WORDS * _home(first + _PRINT_BYTES * (key + _AHEAD), slot_count))
        print_at = first + _PRINT_BYTES * key
        at = _find_slot(table, slot_count, print_at)
        store(at, load_long(print_at))
        store(at + 8, load_long(print_at + 8))
        store(at + _ENTRY, entries[key])


@kernel
def _mark(print_at: int) -> tuple[np.uint64, int]:
    """The bits of a key's mark, and a number that selects their word; `print_at` is the address of its fingerprint."""
    bits = np.uint64(load_long(print_at + 8))
    mark = np.uint64(0)
    for _ in range(MARK_BITS):
        mark |= np.uint64(1) << (bits & np.uint64(63))
        bits >>= np.uint64(6)
    return mark, np.int64(bits)


@kernel
def _mark_keys(slots: int, slot_count: int, marks: Words) -> None:
    """Set the mark of every key of the table at an address. The number of words in `marks` is a power of two."""
    for slot in range(slot_count):
        at = slots + SLOT_BYTES * slot
        if load_int(at + _ENTRY) != 0:
            mark, number = _mark(at)
            marks[number & (len(marks) - 1)] |= mark


@kernel
def _has_mark(marks: int, word: int, mark: np.uint64) -> bool:
    """Whether all bits of a mark are set in its word; `marks` is an address."""
    return np.uint64(load_long(marks + 8 * word)) & mark == mark


@kernel
def _find_entries(
    tables: Int64s,
    tables_of: Int64s,
    marks: Int64s,
    numbers: Int32s,
    numbers_of: Int64s,
    prints: UInt32s,
    order: Int64s,
    bounds: Int64s,
    span: tuple[int, int],
    codes: Int32s,
    instants_ms: Int64s,
    ordering: Int64s,
) -> int:
    """Look up keys, each in the newest table of its shard that has it; returns how many were found.

    The keys of shard s are `order[bounds[s] : bounds[s + 1]]`; only positions in `span` of that order are looked up.
    The tables of shard s, newest first, are the rows `tables_of[s] : tables_of[s + 1]` of `tables`, and its marks the
    row s of `marks` (see `kernels.key_table.Tables`): they reject most keys that are absent from the largest table, or
    from all others. The number of place p of the shard is `numbers[numbers_of[s] + p]`.
    """
    hits, first_print = 0, prints.ctypes.data
    for shard in range(len(bounds) - 1):
        start, end = max(span[0], bounds[shard]), min(span[1], bounds[shard + 1])
        newest, last = tables_of[shard], tables_of[shard + 1]
        largest = newest + marks[MARK_FIELDS * shard + 4]
        large, large_count = tables[TABLE_FIELDS * largest], tables[TABLE_FIELDS * largest + 1]
        others, others_mask = marks[MARK_FIELDS * shard], marks[MARK_FIELDS * shard + 1] - 1
        large_marks, large_mask = marks[MARK_FIELDS * shard + 2], marks[MARK_FIELDS * shard + 3] - 1
        for place in range(start, end):
            if place + _AHEAD < end:
                at = large + SLOT_BYTES * _home(first_print + _PRINT_BYTES * order[place + _AHEAD], large_count)
                prefetch_at(at)
                prefetch_at(at + _NEXT)
            key = order[place]
            print_at = first_print + _PRINT_BYTES * key
            mark, number = _mark(print_at)
            is_other = _has_mark(others, number & others_mask, mark)
            if not is_other and not _has_mark(large_marks, number & large_mask, mark):
                continue
            entry, table = np.int64(0), largest
            for table in range(newest if is_other else largest, last if is_other else largest + 1):
                slot = _find_slot(tables[TABLE_FIELDS * table], tables[TABLE_FIELDS * table + 1], print_at)
                entry = np.int64(np.uint32(load_int(slot + _ENTRY)))
                if entry != 0:
                    break
            if entry == 0 or entry == GONE:
                continue
            hits += 1
            at = TABLE_FIELDS * table
            of_table = load_int(tables[at + 2] + 4 * (entry - 1))
            codes[key] = numbers[numbers_of[shard] + load_int(tables[at + 5] + 4 * of_table)]
            instants_ms[key] = load_long(tables[at + 3] + 8 * (entry - 1))
            if tables[at + 4] != 0:
                ordering[key] = load_long(tables[at + 4] + 8 * (entry - 1))
    return hits


@kernel
def _enter_keys(
    data: Bytes, offsets: Int64s, ids: Int32s, low: np.uint64, high: np.uint64, numbers: UInt32s, slots: UInt32s
) -> None:
    """Number the values that occur, and insert the keys with these numbers."""
    for key in range(len(ids)):
        numbers[ids[key]] = 1
    count = 0
    for value in range(len(numbers)):
        count += numbers[value]
        numbers[value] *= count
    prints, entries = np.empty(4 * len(ids), np.uint32), np.empty(len(ids), np.uint32)
    for key in range(len(ids)):
        entries[key] = numbers[ids[key]]
    _fingerprint_keys(data, offsets, low, high, prints)
    _insert_entries(slots, prints, entries)


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
    """Look up the keys of each shard in its tables, by the addresses of these."""
    tables = np.concatenate([np.empty(0, np.int64), *(shard.tables_at for shard in shards)])
    tables_of = np.cumsum([0, *(len(shard.tables) for shard in shards)])
    marks = np.array([shard.marks_at for shard in shards], np.int64).reshape(-1)
    hits: int = fill_locations(tables, tables_of, marks, numbers, numbers_of, prints, order, bounds, span, *found)
    return hits


def mark_keys(slots: UInt32s, marks: Words) -> None:
    """Set some bits of a word for every key."""
    fill_marks(slots.ctypes.data, len(slots) // SLOT_WORDS, marks)


fingerprint_keys = Entry(_fingerprint_keys, BYTES, INT64S, WORD, WORD, OUT_UINT32S)
insert_entries = Entry(_insert_entries, OUT_UINT32S, UINT32S, UINT32S)
enter_keys = Entry(_enter_keys, BYTES, INT64S, INT32S, WORD, WORD, OUT_UINT32S, OUT_UINT32S)
fill_marks = Entry(_mark_keys, INT, INT, OUT_WORDS)
fill_locations = Entry(
    _find_entries,
    *(INT64S, INT64S, INT64S, INT32S, INT64S, UINT32S, INT64S, INT64S, PAIR),
    *(OUT_INT32S, OUT_INT64S, OUT_INT64S),
)
