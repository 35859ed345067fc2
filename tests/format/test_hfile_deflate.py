from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import isal_zlib

from lakebed.kernels.compiled.deflate import _distance_symbol, _length_symbol
from lakebed.kernels.compiled.huffman import BITS_SHIFT, CODE_BITS_MAX, build_code
from lakebed.kernels.hfile_records import FramedBlocks, Records, deflate_blocks, frame_blocks, measure_records

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def framed(rows: list[bytes], values: list[bytes], ids: list[int], block_bytes_max: int = 1 << 30) -> FramedBlocks:
    def joined(items: list[bytes]):
        offsets = np.cumsum([0, *map(len, items)]).astype(np.int64)
        return np.frombuffer(b"".join(items) or b"\0", np.uint8), offsets

    order, rows_of, values_of = np.arange(len(rows)), joined(rows), joined(values)
    value_ids = np.array(ids, np.int32)
    records = measure_records(Records(*rows_of, *values_of, value_ids, order))
    return next(frame_blocks(records, block_bytes_max=block_bytes_max))[1]


def check(blocks: FramedBlocks) -> int:
    sizes = []
    for search_keys in (False, True):
        deflated = deflate_blocks(blocks, 1, search_keys=search_keys)
        for stream, content in zip(deflated, blocks.contents(), strict=True):
            assert zlib.decompress(stream, -15) == content
            assert isal_zlib.decompress(stream, -15) == content
        sizes.append(sum(map(len, deflated)))
    return min(sizes)


TEXT = st.binary(max_size=30) | st.text("ab-/:0123", max_size=40).map(str.encode)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_records_inflate_to_themselves(data: st.DataObject):
    rows = sorted(data.draw(st.sets(TEXT, min_size=1, max_size=40)))
    values = data.draw(st.lists(TEXT | st.integers(0, 900).map(bytes), min_size=1, max_size=5))
    ids = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=len(rows), max_size=len(rows)))
    check(framed(rows, values, ids))
    check(framed(rows, values, ids, block_bytes_max=300))


@pytest.mark.parametrize("length", [0, 1, 2, 3, 200, 246, 247, 248, 249, 250, 258, 259, 260, 261, 516, 517, 518, 519])
def test_matches_around_the_longest_of_deflate(length: int):
    check(framed([b"a", b"b", b"c"], [np.random.default_rng(length).bytes(length)], [0, 0, 0]))


@pytest.mark.parametrize("gap", [32_000, 32_700, 32_768, 32_800, 40_000])
def test_matches_around_the_farthest_of_deflate(gap: int):
    noise = np.random.default_rng(gap).bytes(gap)
    check(framed([b"k1", b"k2", b"k3", b"k4"], [b"a value to repeat", noise], [0, 1, 0, 1]))


def test_records_longer_than_the_window():
    rng = np.random.default_rng(1)
    rows = sorted(rng.bytes(20_000) for _ in range(6))
    check(framed(rows, [rng.bytes(50_000), b""], [0, 1, 0, 1, 0, 1]))


def test_random_bytes_do_not_outgrow_the_buffer():
    rng = np.random.default_rng(2)
    rows = sorted(rng.bytes(30) for _ in range(500))
    values = [rng.bytes(400) for _ in range(500)]
    assert check(framed(rows, values, list(range(500)))) < 500 * 500


def test_uuid_keys_take_less_than_zlib_needs():
    rng = np.random.default_rng(3)
    rows = sorted(rng.bytes(16).hex().encode() for _ in range(2000))
    block = framed(rows, [rng.bytes(60) for _ in range(20)], rng.integers(0, 20, 2000).tolist())
    assert check(block) < 0.95 * len(zlib.compress(block.data.tobytes(), 6))


def counts_of(kind: str) -> list[int]:
    fibonacci = [1, 1]
    while len(fibonacci) < 40:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    return {
        "none": [0] * 30,
        "one": [0, 0, 0, 9],
        "first alone": [5, 0, 0],
        "second alone": [0, 5, 0],
        "two": [3, 0, 3],
        "even": [4] * 286,
        "deep": fibonacci,
        "deep, shuffled": fibonacci[::3] + fibonacci[1::3] + fibonacci[2::3],
        "very uneven": [1] * 200 + [10**9],
    }[kind]


@pytest.mark.parametrize(
    "kind", ["none", "one", "first alone", "second alone", "two", "even", "deep", "deep, shuffled", "very uneven"]
)
@pytest.mark.parametrize("bits_max", [CODE_BITS_MAX, 9])
def test_codes_are_complete_and_short_enough(kind: str, bits_max: int):
    counts = np.array(counts_of(kind), np.int64)
    code = build_code(counts.copy(), bits_max)
    lengths = (code >> BITS_SHIFT).astype(int)
    used = lengths[lengths > 0]
    assert used.max() <= bits_max
    assert sum(2.0**-length for length in used) == 1
    assert all(lengths[counts > 0] > 0)
    assert len({int(word) for word in code if word}) == len(used)


@pytest.mark.parametrize(
    ("length", "symbol"),
    [(3, (257, 0)), (10, (264, 0)), (11, (265, 1)), (130, (280, 4)), (257, (284, 5)), (258, (285, 0))],
)
def test_length_symbols(length: int, symbol: tuple[int, int]):
    assert _length_symbol(length) == symbol


@pytest.mark.parametrize(
    ("distance", "symbol"),
    [(1, (0, 0)), (4, (3, 0)), (5, (4, 1)), (25, (9, 3)), (24_577, (29, 13)), (32_768, (29, 13))],
)
def test_distance_symbols(distance: int, symbol: tuple[int, int]):
    assert _distance_symbol(distance) == symbol
