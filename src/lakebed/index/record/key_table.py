"""Key tables: hash tables over the entries of one base or log file of a record index shard, for probing many keys.

File layout: header; slots of the hash table (see `kernels.key_table`); place, instant and (if some have one) ordering
value of each distinct entry; places as JSON. All numbers are little-endian. The file is mapped into memory, and read as
a whole only once, to verify it.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from lakebed.format.arrow import ArrowArray, without_unused
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.format.metadata.ordering_values import NO_ORDERING
from lakebed.format.metadata.record_index import (
    DecodedEntries,
    RecordLocation,
    decode_entries,
    decode_entry_values,
)
from lakebed.kernels.buffers import Int32s, Int64s, UInt32s, Words
from lakebed.kernels.key_table import (
    GONE,
    SLOT_BYTES,
    SLOT_ENTRY,
    SLOT_WORDS,
    fingerprint_keys,
    insert_entries,
    mark_keys,
)
from lakebed.kernels.sharding import find_shards
from lakebed.metadata.shard import DeleteLayer, Layer
from lakebed.model.files import FileGroupId
from lakebed.private_folder import open_private

_MAGIC = b"lakekey3"
_HEADER = struct.Struct("<8s16s6Q")
"""Magic, seed, number of slots, of distinct entries, and of ordering values (all or none), size of the places in bytes,
whether a block replaces others, checksum of the rest and of the file name."""
_SLOTS_MAX = 1 << 32
"""Limit of slots: the slot of a key is computed from a 32-bit number."""
_LOAD_MAX = 0.6
"""Maximum share of used slots; an absent key is rejected after about one slot on average."""
_NO_MARKS, _ALL_MARKS = np.zeros(1, np.uint64), ~np.zeros(1, np.uint64)
"""Marks that reject every key, and no key. Marks are a Bloom-style bitmap that rejects most absent keys."""
_MARK_WORDS = 1 << 13
"""Words of the marks of all tables but the largest: 64 KiB, which stay in the processor's cache."""
_MARKED_SLOTS_MAX = 16 * _MARK_WORDS
"""Maximum number of slots to mark; with more, marks would reject too few keys."""
_LARGEST_SLOTS_MAX, _LARGEST_SLOTS_PER_WORD = 1 << 20, 8
"""Slots of the largest table: maximum to mark (marking more costs more than most probes), and per word of marks."""


@dataclass(frozen=True, slots=True)
class KeyTable:
    """Keys and their newest entries: entry e > 0 is in file group `places[place_of[e - 1]]` since `instants_ms[e - 1]`.

    `ordering` has the ordering values of entries, `NO_ORDERING` for none; it is empty if no entry has one.
    `replaces_others`: a block of the file replaces blocks of other files, so the table cannot be used by itself.
    """

    slots: UInt32s = field(repr=False)
    place_of: Int32s = field(repr=False)
    instants_ms: Int64s = field(repr=False)
    places: tuple[FileGroupId, ...] = field(repr=False)
    ordering: Int64s = field(repr=False)
    replaces_others: bool = False

    @property
    def slot_count(self) -> int:
        """Number of slots, empty ones included."""
        return self.slots.nbytes // SLOT_BYTES

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes of what it holds or maps."""
        return self.slots.nbytes + self.place_of.nbytes + self.instants_ms.nbytes + self.ordering.nbytes


def fingerprints(keys: ArrowArray, seed: bytes) -> UInt32s:
    """The fingerprints of keys (strings without nulls), four words each."""
    found = np.empty(4 * len(keys), np.uint32)
    fingerprint_keys(*binary_buffers(keys), seed, found)
    return found


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Shards and fingerprints of keys (strings without nulls), computed part by part."""

    data: npt.NDArray[np.uint8] = field(repr=False)
    offsets: Int64s = field(repr=False)
    shard_count: int
    seed: bytes = field(repr=False)
    shards: Int32s = field(repr=False)
    prints: UInt32s = field(repr=False)

    @classmethod
    def of(cls, keys: ArrowArray, shard_count: int, seed: bytes) -> HashedKeys:
        """Not computed yet."""
        data, offsets = binary_buffers(keys)
        shards, prints = np.empty(len(keys), np.int32), np.empty(4 * len(keys), np.uint32)
        return cls(data, offsets, shard_count, seed, shards, prints)

    def fill(self, span: tuple[int, int]) -> None:
        """Hashes the keys of a half-open range."""
        first, last = span
        offsets = self.offsets[first : last + 1]
        find_shards(self.data, offsets, self.shard_count, self.shards[first:last])
        fingerprint_keys(self.data, offsets, self.seed, self.prints[4 * first : 4 * last])


def build_key_table(layers: Iterable[Layer], seed: bytes, *, replaces_others: bool = False) -> KeyTable:
    """The table of layers, oldest first: the newest entry or delete of a key counts."""
    parts: list[tuple[ArrowArray, UInt32s]] = []
    known = _Entries()
    for layer in layers:
        if isinstance(layer, DeleteLayer):
            parts.append(_deleted(pa.array(sorted(layer.keys), pa.string())))
        else:
            keys, decoded = decode_entries(layer.source)
            parts.append((keys, known.add(decoded)))
    return known.table(_slots(parts, seed), replaces_others=replaces_others)


def build_entries_table(
    keys: ArrowArray, values: ArrowArray, deletes: ArrowArray, schema: str, seed: bytes
) -> KeyTable:
    """The table of a file with these entries (values are a dictionary) and deletes of other keys."""
    known = _Entries()
    # The dictionary may be shared, or contain deleted values: drop those that are not used.
    entries = known.add(decode_entry_values(without_unused(values), schema, path="<new entries>"))
    return known.table(_slots([(keys, entries), _deleted(deletes)], seed), replaces_others=False)


def _deleted(keys: ArrowArray) -> tuple[ArrowArray, UInt32s]:
    return keys, np.full(len(keys), GONE, np.uint32)


def _slots(parts: Sequence[tuple[ArrowArray, UInt32s]], seed: bytes) -> UInt32s:
    """Slots with keys and their entries; later entries replace earlier ones."""
    count = sum(len(keys) for keys, _ in parts)
    slots = np.zeros(SLOT_WORDS * _slot_count(count), np.uint32)
    for keys, entries in parts:
        insert_entries(slots, fingerprints(keys, seed), entries)
    return slots


def slot_bytes(keys: int) -> int:
    """Size in bytes of the slots of a table of so many keys."""
    return SLOT_BYTES * _slot_count(keys)


def _slot_count(keys: int) -> int:
    return 1 + int(keys / _LOAD_MAX)


@dataclass(frozen=True, slots=True)
class KeyTables:
    """The tables of a shard's files, newest first, in the form that `find_entries` of `kernels.key_table` takes.

    Most keys are in the largest one, that of the base file or of the log file of a first load. `largest_marks` are the
    marks of its keys, `marks` those of all others. `places` are the places of all tables; `numbers` has, per table, the
    numbers of its places among them.
    """

    tables: tuple[KeyTable, ...]
    largest: int
    """Position of the largest table."""
    marks: Words = field(repr=False)
    largest_marks: Words = field(repr=False)
    places: tuple[FileGroupId, ...] = field(repr=False)
    numbers: tuple[Int32s, ...] = field(repr=False)
    tables_at: Int64s = field(repr=False)
    """Per table: address and number of slots; addresses of place_of, instants_ms, ordering (0: none) and numbers."""

    @classmethod
    def of(cls, tables: Sequence[KeyTable], older: KeyTables | None = None) -> KeyTables:
        """Joins tables, newest first, with the `older` ones that are joined already."""
        places = {place: number for number, place in enumerate(older.places if older is not None else ())}
        numbers = [
            np.array([places.setdefault(place, len(places)) for place in table.places], np.int32) for table in tables
        ]
        layout = [_layout(*pair) for pair in zip(tables, numbers, strict=True)]
        every = (*tables, *(older.tables if older is not None else ()))
        largest = max(range(len(every)), key=lambda number: (every[number].slot_count, number))
        marked = older if older is not None and largest == len(tables) + older.largest else None
        return cls(
            every,
            largest,
            _marks(tables, every, largest, marked),
            _largest_marks(every[largest]) if marked is None else marked.largest_marks,
            tuple(places),
            (*numbers, *(older.numbers if older is not None else ())),
            np.concatenate([*layout, older.tables_at if older is not None else np.empty(0, np.int64)]),
        )

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes, without the tables."""
        marks = self.marks.nbytes + self.largest_marks.nbytes
        return marks + self.tables_at.nbytes + sum(numbers.nbytes for numbers in self.numbers)

    @property
    def marks_at(self) -> tuple[int, int, int, int, int]:
        """Address and number of words of both kinds of marks, then the position of the largest table."""
        marks, largest = self.marks, self.largest_marks
        return marks.ctypes.data, len(marks), largest.ctypes.data, len(largest), self.largest


def _layout(table: KeyTable, numbers: Int32s) -> Int64s:
    arrays = (table.slots, table.place_of, table.instants_ms, table.ordering, numbers)
    slots, place_of, instants_ms, ordering, of_places = (array.ctypes.data for array in arrays)
    has_ordering = len(table.ordering) > 0
    at = (slots, table.slot_count, place_of, instants_ms, ordering if has_ordering else 0, of_places)
    return np.array(at, np.int64)


def _marks(newer: Sequence[KeyTable], every: Sequence[KeyTable], largest: int, older: KeyTables | None) -> Words:
    """The marks of all tables but the largest; starts from those of `older` if the largest table is among these."""
    if len(every) == 1:
        return _NO_MARKS
    if sum(table.slot_count for table in every) - every[largest].slot_count > _MARKED_SLOTS_MAX:
        return _ALL_MARKS
    marks = np.zeros(_MARK_WORDS, np.uint64)
    if older is not None:
        marks |= older.marks
    for table in newer if older is not None else (*every[:largest], *every[largest + 1 :]):
        mark_keys(table.slots, marks)
    return marks


def _largest_marks(table: KeyTable) -> Words:
    """The marks of the largest table; they reject no key if it is very large."""
    if table.slot_count > _LARGEST_SLOTS_MAX:
        return _ALL_MARKS
    marks = np.zeros(1 << (1 + table.slot_count // _LARGEST_SLOTS_PER_WORD).bit_length() - 1, np.uint64)
    mark_keys(table.slots, marks)
    return marks


def encode_key_table(table: KeyTable, seed: bytes, name: str) -> list[bytes | memoryview]:
    """The parts of the table's file, valid only under that name."""
    places = json.dumps([[place.partition, place.file_id] for place in table.places]).encode()
    arrays = (table.slots, table.place_of, table.instants_ms, table.ordering)
    parts: list[bytes | memoryview] = [*(array.view(np.uint8).data for array in arrays), places]
    counts = (table.slot_count, len(table.place_of), len(table.ordering))
    numbers = (*counts, len(places), int(table.replaces_others))
    checksum = _checksum(seed, name, numbers, parts)
    return [_HEADER.pack(_MAGIC, seed, *numbers, checksum), *parts]


def load_key_table(path: str, seed: bytes) -> KeyTable | None:
    """The table in a file of this user, mapped; None if it is missing, damaged, or was made with another seed.

    The whole file is read once. The checksum detects damage. Bounds are checked besides, because compiled code relies
    on them.
    """
    try:
        with open(open_private(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size < _HEADER.size:
                return None
            # Files are renamed or removed, never changed in place, so the mapped content does not change.
            data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except OSError:
        return None
    try:
        return _decode(memoryview(data), seed, os.path.basename(path))
    except (RecursionError, TypeError, ValueError):  # The JSON of the places is malformed.
        return None


def _decode(data: memoryview, seed: bytes, name: str) -> KeyTable | None:
    magic, made_with, *numbers, checksum = _HEADER.unpack_from(data)
    slots, entries, ordered, places_bytes, replaces = numbers
    lengths = (slots * SLOT_BYTES, 4 * entries, 8 * entries, 8 * ordered, places_bytes)
    is_whole = 0 < slots < _SLOTS_MAX and ordered in (0, entries) and _HEADER.size + sum(lengths) == len(data)
    if magic != _MAGIC or made_with != seed or not is_whole:
        return None
    parts, at = [], _HEADER.size
    for length in lengths:
        parts.append(data[at : at + length])
        at += length
    if checksum != _checksum(seed, name, numbers, parts):
        return None
    table = KeyTable(
        np.frombuffer(parts[0], "<u4"),
        np.frombuffer(parts[1], "<i4"),
        np.frombuffer(bytes(parts[2]), "<i8"),  # A copy, because the map is not aligned.
        _decode_places(bytes(parts[4])),
        np.frombuffer(bytes(parts[3]), "<i8"),
        bool(replaces),
    )
    return table if _is_in_bounds(table) else None


def _decode_places(data: bytes) -> tuple[FileGroupId, ...]:
    pairs = json.loads(data)
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise TypeError("partition and file id must be text")
    return tuple(FileGroupId(partition, file_id) for partition, file_id in pairs)


def _is_in_bounds(table: KeyTable) -> bool:
    """Whether slots refer to existing entries, entries to existing places, and every search ends."""
    places, entries = table.place_of, table.slots.view(np.int32)[SLOT_ENTRY::SLOT_WORDS]
    if len(places) and not 0 <= places.min() <= places.max() < len(table.places):
        return False
    # As signed numbers: -1 is a deleted key, 0 an empty slot.
    least, most = entries.min(), entries.max()
    return bool(-1 <= least <= 0 and most <= len(places) and (least == 0 or not entries.all()))


def _checksum(seed: bytes, name: str, numbers: Sequence[int], parts: Iterable[bytes | memoryview]) -> int:
    digest = xxhash.xxh3_64(seed)
    digest.update(name.encode())
    digest.update(struct.pack("<5Q", *numbers))
    for part in parts:
        digest.update(part)
    value: int = digest.intdigest()
    return value


class _Entries:
    """Entries of several layers, numbered from 1: one per location, or one per key if they have ordering values."""

    def __init__(self) -> None:
        self._count = 0
        self._places: dict[FileGroupId, int] = {}
        self._place_of: list[Int32s] = [np.empty(0, np.int32)]
        self._instants_ms: list[Int64s] = [np.empty(0, np.int64)]
        self._ordering: list[Int64s] = [np.empty(0, np.int64)]
        self._has_ordering = False

    def add(self, decoded: DecodedEntries) -> UInt32s:
        """The numbers of the entries of one layer."""
        ordering, count = decoded.ordering_numbers, len(decoded.locations)
        locations = np.arange(count) if ordering is None else decoded.ids
        self._has_ordering |= ordering is not None
        self._ordering.append(np.full(count, NO_ORDERING) if ordering is None else ordering)
        self._place_of.append(self._numbers(decoded.locations)[locations])
        instants = np.array([location.instant_ms for location in decoded.locations], np.int64)
        self._instants_ms.append(instants[locations])
        first, self._count = self._count + 1, self._count + len(locations)
        numbers = decoded.ids if ordering is None else np.arange(len(locations))
        return (first + numbers).astype(np.uint32)

    def table(self, slots: UInt32s, *, replaces_others: bool) -> KeyTable:
        """The table that refers to these entries."""
        ordering = np.concatenate(self._ordering) if self._has_ordering else np.empty(0, np.int64)
        place_of, instants = np.concatenate(self._place_of), np.concatenate(self._instants_ms)
        return KeyTable(slots, place_of, instants, tuple(self._places), ordering, replaces_others)

    def _numbers(self, locations: Sequence[RecordLocation]) -> Int32s:
        places = (FileGroupId(location.partition, location.file_id) for location in locations)
        return np.array([self._places.setdefault(place, len(self._places)) for place in places], np.int32)
