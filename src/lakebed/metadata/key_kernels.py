"""A hash table of record keys in compiled code: 128-bit fingerprints, open addressing, linear probing.

The fingerprint is SipHash-2-4 with 128 bits of output and a secret 128-bit seed, a pseudorandom function: whatever keys
are given, two of them share a fingerprint with odds of 2**-128. So a table needs no keys, and a match is a match.

A slot is five 32-bit words: four of the fingerprint, and an entry; entry 0 is an empty slot. Functions that look at one
are told where it lies in memory: those that are handed arrays count references to them, which takes half as long again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakebed.format.avro.memory import load_int, load_long, store
from lakebed.format.hfile.native import Bytes, Int32s, Int64s, Words, kernel, load_word, prefetch

UInt32s = npt.NDArray[np.uint32]

SLOT_WORDS = 5
_SLOT_BYTES, _PRINT_BYTES, _ENTRY = 20, 16, 16
_MARK_MASK = (1 << 19) - 1
"""See `key_table.MARKS`: compiled code goes by what its own file says."""
_AHEAD = 16
"""So many keys before a slot is looked at it is asked for: memory takes as long to answer as ten keys take."""


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
def fingerprint_keys(data: Bytes, offsets: Int64s, low_seed: np.uint64, high_seed: np.uint64, found: UInt32s) -> None:
    """Fill `found`, four words per key, with the fingerprints of keys that lie in `data` between `offsets`."""
    for key in range(len(offsets) - 1):
        at, end = offsets[key], offsets[key + 1]
        last = np.uint64(end - at) << np.uint64(56)
        a = low_seed ^ np.uint64(0x736F6D6570736575)
        b = high_seed ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
        c = low_seed ^ np.uint64(0x6C7967656E657261)
        d = high_seed ^ np.uint64(0x7465646279746573)
        while end - at >= 8:
            word = load_word(data, at)
            a, b, c, d = _rounds(a, b, c, d ^ word, 2)
            a ^= word
            at += 8
        for place in range(end - at):
            last |= np.uint64(data[at + place]) << np.uint64(8 * place)
        a, b, c, d = _rounds(a, b, c, d ^ last, 2)
        a, b, c, d = _rounds(a ^ last, b, c ^ np.uint64(0xEE), d, 4)
        low = a ^ b ^ c ^ d
        a, b, c, d = _rounds(a, b ^ np.uint64(0xDD), c, d, 4)
        high = a ^ b ^ c ^ d
        found[4 * key], found[4 * key + 1] = np.uint32(low), np.uint32(low >> np.uint64(32))
        found[4 * key + 2], found[4 * key + 3] = np.uint32(high), np.uint32(high >> np.uint64(32))


@kernel
def _home(print_at: int, slot_count: int) -> int:
    """The slot that a key is looked for first, by its fingerprint at an address."""
    return np.int64(np.uint64(np.uint32(load_int(print_at))) * np.uint64(slot_count) >> np.uint64(32))


@kernel
def _find_slot(slots: int, slot_count: int, print_at: int) -> int:
    """The address of a key's slot: the one that has it, or the empty one where it would go."""
    low, high = load_long(print_at), load_long(print_at + 8)
    slot = _home(print_at, slot_count)
    while True:
        at = slots + _SLOT_BYTES * slot
        if load_int(at + _ENTRY) == 0 or (load_long(at) == low and load_long(at + 8) == high):
            return at
        slot = slot + 1 if slot + 1 < slot_count else 0


@kernel
def insert_entries(slots: UInt32s, prints: UInt32s, entries: UInt32s) -> None:
    """Enter keys, each over what it had before. `slots` has more room than there are keys."""
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
def _mark(print_at: int) -> int:
    """The bit that stands for a key among the marks of a table, by its fingerprint at an address."""
    return np.int64(load_int(print_at + 4)) & _MARK_MASK


@kernel
def mark_keys(slots: UInt32s, marks: Words) -> None:
    """Set the bit of every key that a table has."""
    table = slots.ctypes.data
    for slot in range(len(slots) // SLOT_WORDS):
        at = table + _SLOT_BYTES * slot
        if load_int(at + _ENTRY) != 0:
            bit = _mark(at)
            marks[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)


@kernel
def find_newest(
    tables: Int64s,
    slot_counts: Int64s,
    marks: Words,
    oldest: UInt32s,
    prints: UInt32s,
    keys: Int64s,
    numbers: Int32s,
    entries: UInt32s,
) -> None:
    """For every number in `keys`, the number of the first of the `tables` that has the key, and what it has; 0: none.

    Tables are given by the addresses of their slots, the newest one first; the slots of the `oldest` are at hand, too.
    A key whose bit is not among the `marks` is in none of the others.
    """
    last, first_print, oldest_count = len(tables) - 1, prints.ctypes.data, len(oldest) // SLOT_WORDS
    for number in range(len(keys)):
        if number + _AHEAD < len(keys):
            prefetch(oldest, SLOT_WORDS * _home(first_print + _PRINT_BYTES * keys[number + _AHEAD], oldest_count))
        print_at = first_print + _PRINT_BYTES * keys[number]
        bit = _mark(print_at)
        is_marked = marks[bit >> 6] >> np.uint64(bit & 63) & np.uint64(1)
        entry, table = np.uint32(0), last
        for at in range(0 if is_marked else last, last + 1):
            entry = np.uint32(load_int(_find_slot(tables[at], slot_counts[at], print_at) + _ENTRY))
            if entry != 0:
                table = at
                break
        numbers[number], entries[number] = table, entry


@kernel
def take_entries(
    table: int,
    numbers: Int32s,
    entries: UInt32s,
    gone: int,
    rows: Int64s,
    codes: Int32s,
    place_of: Int32s,
    instants_ms: Int64s,
    ordering: Int64s,
    found_codes: Int32s,
    found_instants: Int64s,
    found_ordering: Int64s,
) -> int:
    """Fill in what one of several tables says of the keys that it was the first to have; how many it has.

    `codes` has a code per place. Key i is row `rows[i]` of what is found.
    """
    hits = 0
    for key in range(len(numbers)):
        if numbers[key] != table or entries[key] == 0 or entries[key] == gone:
            continue
        entry, row = np.int64(entries[key]) - 1, rows[key]
        found_codes[row] = codes[place_of[entry]]
        found_instants[row] = instants_ms[entry]
        if len(ordering):
            found_ordering[row] = ordering[entry]
        hits += 1
    return hits
