"""Every function of the door gives the same in both implementations, and refuses buffers that do not hold together."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implementations import using
from lakebed.format.avro.columns import decode_datums, encode_datums
from lakebed.format.hfile.arrow import binary_buffers
from lakebed.kernels import (
    bloom,
    events,
    hfile_records,
    key_numbers,
    key_table,
    log_records,
    ordering,
    sharding,
)
from lakebed.kernels.buffers import BadBufferError

SEED = bytes(range(16))
TEXTS = st.lists(st.text(max_size=12) | st.text("ab", max_size=40) | st.just("x" * 300), max_size=60)
NOTHING = np.empty(0, np.int64)


def buffers_of(texts: Sequence[str | bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Texts that begin in the middle of a buffer."""
    rows = [text.encode() if isinstance(text, str) else text for text in texts]
    return binary_buffers(pa.array([b"before", *rows], pa.binary())[1:])


def both(call: Callable[[], Any]) -> list[Any]:
    """What both implementations give, errors included."""
    found = []
    for implementation in ("plain", "compiled"):
        with using(implementation):
            try:
                found.append(plain_values(call()))
            except ValueError as error:
                found.append(type(error))
    return found


def plain_values(value: Any) -> Any:
    """Arrays as lists, so that results can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain_values(each) for each in value] if isinstance(value, (tuple, list)) else value


def same(call: Callable[[], Any]) -> Any:
    plain, compiled = both(call)
    assert plain == compiled
    return plain


def filled(call: Callable[[np.ndarray], None], array: np.ndarray) -> np.ndarray:
    call(array)
    return array


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, shards=st.integers(1, 2**31 - 1))
def test_shards(texts: list[str], shards: int) -> None:
    keys = buffers_of(texts)
    same(lambda: filled(lambda found: sharding.find_shards(*keys, shards, found), np.empty(len(texts), np.int32)))


@settings(max_examples=60, deadline=None)
@given(groups=st.lists(st.integers(-1, 7)), count=st.sampled_from([1, 7, 8, 2**15 + 1]))
def test_groups(groups: list[int], count: int) -> None:
    same(lambda: ordering.group_rows(np.array(groups, np.int64), count))


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, wanted=TEXTS, by_path=st.booleans(), few=st.sampled_from([0, 3, 100]))
def test_equal_keys(texts: list[str], wanted: list[str], by_path: bool, few: int) -> None:
    keys, others = buffers_of(texts * 2), buffers_of(wanted + texts[::2])
    paths = np.arange(len(texts) * 2) % 3 if by_path else NOTHING
    same(lambda: key_numbers.number_keys(*keys, paths))
    same(lambda: key_numbers.number_few(*keys, few))
    same(lambda: key_numbers.place_keys(*keys, *others))


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS.filter(bool), count=st.integers(1, 9))
def test_order(texts: list[str], count: int) -> None:
    keys, groups = buffers_of(texts), np.array([len(text) % count for text in texts], np.int32)

    def in_order() -> list[tuple[int, str]]:
        return [(int(groups[at]), texts[at]) for at in ordering.sort_groups(*keys, groups, count)]

    assert same(in_order) == sorted(map(list, in_order()), key=lambda pair: (pair[0], pair[1].encode()))
    same(lambda: [texts[at] for at in ordering.find_bounds(*keys)])
    same(lambda: sharding.split_keys(*keys, np.arange(len(texts), dtype=np.int32), count))


@dataclass
class Table:
    slots: np.ndarray
    place_of: np.ndarray
    instants_ms: np.ndarray
    ordering: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass
class Tables:
    tables: list[Table]
    marks: np.ndarray
    largest: int
    numbers: tuple[np.ndarray, ...] = (np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32))

    @property
    def tables_at(self) -> np.ndarray:
        rows = []
        for table, numbers in zip(self.tables, self.numbers, strict=True):
            ordering_at = table.ordering.ctypes.data if len(table.ordering) else 0
            at = table.slots.ctypes.data, len(table.slots) // 5, table.place_of.ctypes.data
            rows += [*at, table.instants_ms.ctypes.data, ordering_at, numbers.ctypes.data]
        return np.array(rows, np.int64)

    @property
    def marks_at(self) -> tuple[int, int, int, int, int]:
        marks = self.marks.ctypes.data, len(self.marks)
        return (*marks, *marks, self.largest)


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, more=TEXTS, has_ordering=st.booleans())
def test_tables_of_keys(texts: list[str], more: list[str], has_ordering: bool) -> None:
    keys, others = buffers_of(texts), buffers_of(more + texts[::3])
    prints = [np.empty(4 * (len(each[1]) - 1), np.uint32) for each in (keys, others)]
    for each, into in zip((keys, others), prints, strict=True):
        same(lambda each=each, into=into: filled(lambda p: key_table.fingerprint_keys(*each, SEED, p), into.copy()))
        key_table.fingerprint_keys(*each, SEED, into)
    counts = [len(each) // 4 for each in prints]
    entries = [np.arange(1, count + 1, dtype=np.uint32) for count in counts]
    slots = np.zeros(5 * (1 + 2 * sum(counts)), np.uint32)

    def insert(slots: np.ndarray) -> None:
        key_table.insert_entries(slots, prints[0], entries[0])
        key_table.insert_entries(slots, prints[1], entries[1])

    same(lambda: filled(insert, slots.copy()))
    insert(slots)
    same(lambda: filled(lambda marks: key_table.mark_keys(slots, marks), np.zeros(16, np.uint64)))
    ids = np.arange(counts[0], dtype=np.int32) % 5

    def enter() -> list[Any]:
        numbers, taken = np.zeros(7, np.uint32), np.zeros(5 * (1 + 2 * counts[0]), np.uint32)
        key_table.enter_keys(*keys, ids, SEED, numbers, taken)
        return [numbers.tolist(), taken.tolist()]

    same(enter)
    size = max(counts) + 1
    table = Table(slots, np.arange(size, dtype=np.int32) % 3, np.arange(size), np.arange(size * has_ordering) * 7)
    shard = Tables([table, table], ~np.zeros(1, np.uint64), 0)

    def find() -> list[Any]:
        found = np.full(counts[1], -1, np.int32), np.full(counts[1], -1), np.full(counts[1], -1)
        numbers, bounds = np.arange(3, dtype=np.int32), np.array([0, counts[1]])
        order = np.arange(counts[1])[::-1].copy()
        hits = key_table.find_entries([shard], numbers, bounds * 0, prints[1], order, bounds, (0, counts[1]), found)
        return [hits, *(each.tolist() for each in found)]

    hits, *_ = same(find)
    assert hits == counts[1]


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, wanted=TEXTS, bits=st.integers(1, 4000), rows=st.integers(1, 3))
def test_bloom_filters(texts: list[str], wanted: list[str], bits: int, rows: int) -> None:
    keys, row_of = buffers_of(texts), np.arange(len(texts)) % rows
    empty = np.zeros((rows, -(-bits // 8)), np.uint8)
    inserted = same(lambda: filled(lambda to: bloom.insert(*keys, row_of, to, 5, bits), empty.copy()))
    probed = np.array(inserted, np.uint8)
    assert all(same(lambda: bloom.probe(*keys, probed, 5, bits)))
    same(lambda: bloom.probe(*buffers_of(wanted), probed, 5, bits))


@settings(max_examples=60, deadline=None)
@given(rows=st.sets(st.binary(max_size=30), min_size=1, max_size=40), block_bytes=st.sampled_from([1, 100, 1 << 20]))
def test_records(rows: set[bytes], block_bytes: int) -> None:
    keys, ids = buffers_of(sorted(rows)), np.arange(len(rows), dtype=np.int32) % 3
    content = hfile_records.Records(*keys, *buffers_of([b"", b"one", b"two" * 90]), ids, np.arange(len(rows)))

    def frame() -> list[bytes]:
        measured = hfile_records.measure_records(content)
        blocks = []
        for _, framed in hfile_records.frame_blocks(measured, block_bytes_max=block_bytes):
            contents = [bytes(each) for each in framed.contents()]
            for search in (False, True):
                streams = hfile_records.deflate_blocks(framed, 1, search_keys=search)
                assert [zlib.decompress(stream, -15) for stream in streams] == contents
            blocks += contents
        return blocks

    blocks = [np.frombuffer(block, np.uint8) for block in same(frame)]
    same(lambda: list(hfile_records.decode_records(blocks, len(rows))))


@settings(max_examples=150, deadline=None)
@given(block=st.binary(max_size=80))
def test_records_of_any_bytes(block: bytes) -> None:
    same(lambda: list(hfile_records.decode_records([np.frombuffer(block, np.uint8)], 1)))


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60), start=st.integers(-1, 70), count=st.integers(-1, 16))
def test_lengths_of_any_bytes(data: bytes, start: int, count: int) -> None:
    same(lambda: log_records.walk_lengths(np.frombuffer(data, np.uint8), start, count))


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, room=st.integers(-9, 9))
def test_log_records(texts: list[str], room: int) -> None:
    records = buffers_of(texts)
    size = max(0, int(records[1][-1] - records[1][0]) + 4 * len(texts) + room)
    found = same(lambda: filled(lambda out: log_records.put_records(*records, out, 0), np.zeros(size, np.uint8)))
    if room == 0 and texts:
        starts, _ = same(lambda: log_records.walk_lengths(np.array(found, np.uint8), 0, len(texts)))
        assert len(starts) == len(texts)


@settings(max_examples=80, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=50),
    rules=st.integers(1, 3),
)
def test_events_of_keys(rows: list[tuple[int, int, int, bool]], rules: int) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    starts = np.array([at for at in range(len(rows)) if at == 0 or rows[at][0] != rows[at - 1][0]], np.int64)
    kinds, ranks = np.array([row[1] for row in rows], np.int8), np.array([row[2] for row in rows], np.int64)
    is_base = np.array([row[3] for row in rows], np.bool_)
    same(lambda: events.accept_events(starts, kinds, ranks, is_base, rules))


AVRO = """{"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]},
{"name": "b", "type": "long"}, {"name": "c", "type": {"type": "array", "items": ["null", "int"]}},
{"name": "d", "type": {"type": "map", "values": "double"}}, {"name": "e", "type": "boolean"},
{"name": "f", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}]}]}"""
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.text(max_size=5),
            "b": st.integers(-(2**63), 2**63 - 1),
            "c": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
            "d": st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=2).map(
                lambda d: [*d.items()]
            ),
            "e": st.booleans(),
            "f": st.none() | st.decimals(-(10**18) + 1, 10**18 - 1, places=2),
        }
    ),
    min_size=1,
    max_size=8,
)
KINDS = pa.struct(
    [
        ("a", pa.string()),
        ("b", pa.int64()),
        ("c", pa.list_(pa.int32())),
        ("d", pa.map_(pa.string(), pa.float64())),
        ("e", pa.bool_()),
        ("f", pa.decimal128(20, 2)),
    ]
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, cut=st.integers(0, 3), damage=st.binary(min_size=1, max_size=2), at=st.integers(0, 200))
def test_avro_datums(rows: list[dict[str, Any]], cut: int, damage: bytes, at: int) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array(rows, KINDS)[cut:])
    data, offsets = (np.array(part) for part in same(lambda: encode_datums(batch, AVRO)))
    data = data.astype(np.uint8)

    def decode(data: bytes) -> str:
        try:
            return repr(decode_datums(data, offsets[:-1], offsets[1:], AVRO, path="p").to_pylist())
        except Exception as error:
            return repr(error)

    assert same(lambda: decode(data.tobytes())) == repr(batch.to_pylist())
    hurt = bytearray(data.tobytes())
    hurt[at : at + len(damage)] = damage[: max(0, len(hurt) - at)]
    same(lambda: decode(bytes(hurt)))


HOSTILE = {
    "no offsets": [],
    "negative": [-1, 2, 3, 4],
    "descending": [0, 3, 2, 4],
    "beyond the buffer": [0, 1, 2, 99],
    "far beyond": [0, 1, 2**62, 2**63 - 1],
}
CALLS: dict[str, Callable[[np.ndarray, np.ndarray], object]] = {
    "find_shards": lambda d, o: sharding.find_shards(d, o, 3, np.empty(3, np.int32)),
    "number_keys": lambda d, o: key_numbers.number_keys(d, o, NOTHING),
    "number_few": lambda d, o: key_numbers.number_few(d, o, 9),
    "place_keys": lambda d, o: key_numbers.place_keys(d, o, *buffers_of(["a"])),
    "wanted keys": lambda d, o: key_numbers.place_keys(*buffers_of(["a"]), d, o),
    "sort_groups": lambda d, o: ordering.sort_groups(d, o, np.empty(0, np.int32), 1),
    "find_bounds": ordering.find_bounds,
    "split_keys": lambda d, o: sharding.split_keys(d, o, np.zeros(3, np.int32), 2),
    "fingerprint_keys": lambda d, o: key_table.fingerprint_keys(d, o, SEED, np.empty(12, np.uint32)),
    "insert": lambda d, o: bloom.insert(d, o, np.zeros(3, np.int64), np.zeros((1, 9), np.uint8), 2, 70),
    "probe": lambda d, o: bloom.probe(d, o, np.zeros((1, 9), np.uint8), 2, 70),
    "put_records": lambda d, o: log_records.put_records(d, o, np.empty(99, np.uint8), 0),
    "rows": lambda d, o: hfile_records.measure_records(
        hfile_records.Records(d, o, *buffers_of(["v"]), np.zeros(3, np.int32), np.arange(3))
    ),
}


@pytest.mark.usefixtures("either_implementation")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("offsets", HOSTILE)
def test_offsets_that_leave_their_buffer(call: str, offsets: str) -> None:
    with pytest.raises(BadBufferError):
        CALLS[call](np.arange(4, dtype=np.uint8), np.array(HOSTILE[offsets], np.int64))


KEYS = buffers_of(["a", "b", "c"])
WRONG: dict[str, Callable[[], object]] = {
    "too few results": lambda: sharding.find_shards(*KEYS, 3, np.empty(2, np.int32)),
    "no shards": lambda: sharding.find_shards(*KEYS, 0, np.empty(3, np.int32)),
    "a group that is not there": lambda: ordering.group_rows(np.array([0, 3]), 3),
    "a group below all": lambda: ordering.group_rows(np.array([0, -1]), 3),
    "too few groups": lambda: ordering.sort_groups(*KEYS, np.zeros(2, np.int32), 2),
    "a negative path": lambda: key_numbers.number_keys(*KEYS, np.array([0, -1, 0])),
    "a full table": lambda: key_table.insert_entries(
        np.zeros(15, np.uint32), np.zeros(12, np.uint32), np.ones(3, np.uint32)
    ),
    "a table that is full": lambda: key_table.insert_entries(
        np.ones(15, np.uint32), np.zeros(4, np.uint32), np.ones(1, np.uint32)
    ),
    "part of a slot": lambda: key_table.mark_keys(np.zeros(7, np.uint32), np.zeros(1, np.uint64)),
    "marks of no power of two": lambda: key_table.mark_keys(np.zeros(5, np.uint32), np.zeros(3, np.uint64)),
    "a short seed": lambda: key_table.fingerprint_keys(*KEYS, b"seed", np.empty(12, np.uint32)),
    "a value that is not there": lambda: key_table.enter_keys(
        *KEYS, np.array([0, 1, 2], np.int32), SEED, np.zeros(2, np.uint32), np.zeros(50, np.uint32)
    ),
    "a row of a filter": lambda: bloom.insert(*KEYS, np.array([0, 0, 1]), np.zeros((1, 9), np.uint8), 2, 70),
    "bits beyond a row": lambda: bloom.probe(*KEYS, np.zeros((1, 9), np.uint8), 2, 73),
    "a row beyond all": lambda: hfile_records.measure_records(
        hfile_records.Records(*KEYS, *buffers_of(["v"]), np.zeros(3, np.int32), np.array([0, 3]))
    ),
    "a value beyond all": lambda: hfile_records.measure_records(
        hfile_records.Records(*KEYS, *buffers_of(["v"]), np.array([0, 1, 0], np.int32), np.arange(3))
    ),
    "rows that descend": lambda: next(
        hfile_records.frame_blocks(
            hfile_records.measure_records(
                hfile_records.Records(*KEYS, *buffers_of(["v"]), np.zeros(3, np.int32), np.array([1, 0]))
            ),
            block_bytes_max=99,
        )
    ),
    "events of no key": lambda: events.accept_events(
        np.array([1]), np.zeros(3, np.int8), np.zeros(3, np.int64), np.zeros(3, np.bool_), 1
    ),
    "keys beyond the events": lambda: events.accept_events(
        np.array([0, 3]), np.zeros(3, np.int8), np.zeros(3, np.int64), np.zeros(3, np.bool_), 1
    ),
}


@pytest.mark.usefixtures("either_implementation")
@pytest.mark.parametrize("what", WRONG)
def test_arguments_that_do_not_fit(what: str) -> None:
    with pytest.raises(BadBufferError):
        WRONG[what]()
