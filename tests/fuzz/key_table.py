"""Files of key tables whose checksum is right, whatever they say."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptTableError
from lakebed.index.record import key_table
from lakebed.index.record.key_table import KeyTable, KeyTables, fingerprints
from lakebed.kernels.key_table import GONE, SLOT_WORDS, find_entries, insert_entries
from lakebed.model.files import FileGroupId

from .codec import PATH, Codec
from .mutate import damaged, maybe, strange

_SEED, _NAME = bytes(range(16)), "name.keys"
_KEYS = pa.array([f"k{number}" for number in range(40)], pa.string())
_PRINTS = fingerprints(_KEYS, _SEED)
_NUMBERS_MAX = (1 << 64) - 1


def make(rng: random.Random) -> bytes:
    """The file of a table that is damaged within."""
    table = _table(rng)
    parts = [bytes(part) for part in key_table.encode_key_table(table, _SEED, _NAME)[1:]]
    numbers = [table.slot_count, len(table.place_of), len(table.ordering), len(parts[4]), int(table.replaces_others)]
    kind = rng.randrange(5)
    if kind == 0:
        at = rng.randrange(len(numbers))
        numbers[at] = strange(rng, numbers[at]) & _NUMBERS_MAX
    elif kind == 1:
        at = rng.randrange(len(parts))
        parts[at] = damaged(parts[at], rng)
        numbers = maybe(0.5, rng, lambda old: _counted(parts, old), numbers)
    elif kind < 4:
        _change_words(parts, rng)
    body = b"".join(parts)
    checksum = key_table._checksum(_SEED, _NAME, numbers, [body])
    data = key_table._HEADER.pack(key_table._MAGIC, _SEED, *numbers, checksum) + body
    return maybe(0.05, rng, lambda whole: damaged(whole, rng), data)


def decode(data: bytes) -> list[Any]:
    """Where keys are, by the table and a sound one below or above it. A bad table is built anew: nothing is raised."""
    if len(data) < key_table._HEADER.size:
        raise CorruptTableError("it is too short", path=PATH)
    try:
        table = key_table._decode(memoryview(data), _SEED, _NAME)
    except (RecursionError, TypeError, ValueError):  # As `load_key_table` does.
        table = None
    if table is None:
        raise CorruptTableError("the table does not hold together", path=PATH)
    found: list[Any] = [table.places, table.replaces_others]
    for tables in (KeyTables.of([table]), KeyTables.of([table], KeyTables.of([_BELOW])), KeyTables.of([_BELOW, table])):
        found += _find(tables)
    return found


def _find(tables: KeyTables) -> list[Any]:
    count = len(_KEYS)
    found = np.full(count, -1, np.int32), np.full(count, -1), np.full(count, -1)
    numbers, bounds = np.arange(len(tables.places), dtype=np.int32), np.array([0, count])
    order = np.arange(count)
    hits = find_entries([tables], numbers, np.zeros(2, np.int64), _PRINTS, order, bounds, (0, count), found)
    return [hits, *found, tables.marks, tables.largest_marks]


def _table(rng: random.Random) -> KeyTable:
    count, entry_count, place_count = rng.choice((0, 1, 5, 30)), rng.choice((1, 3, 30)), rng.choice((1, 2, 5))
    entries = np.array([rng.choice((GONE, rng.randint(1, entry_count))) for _ in range(count)], np.uint32)
    slots = np.zeros(SLOT_WORDS * (1 + int(count / rng.choice((0.6, 0.9, 1.0)))), np.uint32)
    first = rng.randrange(len(_KEYS) - count + 1)
    insert_entries(slots, _PRINTS[4 * first : 4 * (first + count)], entries)
    place_of = np.array([rng.randrange(place_count) for _ in range(entry_count)], np.int32)
    places = tuple(FileGroupId(f"p{at}", f"f{at}") for at in range(place_count))
    ordering = np.arange(entry_count * rng.choice((0, 1)), dtype=np.int64)
    return KeyTable(slots, place_of, np.arange(entry_count), places, ordering, rng.random() < 0.2)


_BELOW = _table(random.Random(1))


def _change_words(parts: list[bytes], rng: random.Random) -> None:
    """Put other entries into slots, other places into entries, or other names into places."""
    for _ in range(rng.choice((1, 1, 3, 30))):
        kind = rng.randrange(4)
        if kind == 0:
            at = 20 * rng.randrange(len(parts[0]) // 20) + 4 * rng.choice((0, 1, 2, 3, 4, 4, 4))
            word = rng.choice((0, 1, 2, GONE, GONE - 1, strange(rng) & 0xFFFFFFFF))
            parts[0] = parts[0][:at] + struct.pack("<I", word) + parts[0][at + 4 :]
        elif kind == 1:
            at = 4 * rng.randrange(len(parts[1]) // 4)
            word = rng.choice((0, 1, 4, 5, 0xFFFFFFFF, strange(rng) & 0xFFFFFFFF))
            parts[1] = parts[1][:at] + struct.pack("<I", word) + parts[1][at + 4 :]
        elif kind == 2 and rng.random() < 0.3:
            pairs = [["p0", "f0"], ["p1", "f1"]]
            pairs = rng.choice(
                (pairs[:-1], [*pairs, *pairs], [*pairs, ["a"]], [*pairs, [1, "b"]], {"a": "bc"}, pairs * 9)
            )
            text = json.dumps(pairs).encode()[: len(parts[4])]
            parts[4] = text.ljust(len(parts[4]))
        elif kind == 3:
            entry = rng.choice((1, GONE))  # Fill all slots but a few.
            words = np.frombuffer(parts[0], np.uint32).copy()
            words[4::5] = np.where(np.arange(len(words) // 5) % 7 < rng.choice((6, 7)), entry, words[4::5])
            parts[0] = words.tobytes()


def _counted(parts: list[bytes], numbers: list[int]) -> list[int]:
    """The numbers that the parts have by their lengths."""
    slots, place_of, _, ordering, places = map(len, parts)
    return [slots // 20, place_of // 4, ordering // 8, places, numbers[4]]


CODEC = Codec(make, decode)
