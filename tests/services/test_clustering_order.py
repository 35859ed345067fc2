"""Orders of rows: curves against slow references, and what a filter gains by them."""

from __future__ import annotations

import itertools
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.services.clustering.order import check_order, hilbert_codes, row_order, z_order_codes


def interleaved(numbers: tuple[int, ...], bits: int) -> int:
    """The slow way to a Z-order code: by the digits."""
    texts = [f"{number:0{bits}b}" for number in numbers]
    return int("".join(text[place] for place in range(bits) for text in texts), 2)


def curve(bits: int) -> list[tuple[int, int]]:
    """The slow way to the Hilbert curve of a square: four smaller curves, the first and the last of them turned."""
    if bits == 0:
        return [(0, 0)]
    half, smaller = 1 << (bits - 1), curve(bits - 1)
    return [
        *((y, x) for x, y in smaller),
        *((x, y + half) for x, y in smaller),
        *((x + half, y + half) for x, y in smaller),
        *((2 * half - 1 - y, half - 1 - x) for x, y in smaller),
    ]


def grid(axes: int, bits: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(1 << bits), repeat=axes))


def columns(cells: list[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.array(axis, np.uint64) for axis in zip(*cells, strict=True)]


@given(
    st.integers(1, 5).flatmap(
        lambda axes: st.tuples(
            st.integers(1, 64 // axes),
            st.lists(st.tuples(*[st.integers(0, 2**64 - 1)] * axes), min_size=1, max_size=20),
        )
    )
)
def test_z_order_codes_are_the_bits_in_turn(case: tuple[int, list[tuple[int, ...]]]) -> None:
    bits, wide = case
    cells = [tuple(number & ((1 << bits) - 1) for number in cell) for cell in wide]
    assert z_order_codes(columns(cells), bits).tolist() == [interleaved(cell, bits) for cell in cells]


@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_hilbert_codes_of_a_square(bits: int) -> None:
    cells = curve(bits)
    forwards, sideways = hilbert_codes(columns(cells), bits), hilbert_codes(columns([c[::-1] for c in cells]), bits)
    expected = list(range(len(cells)))
    assert expected in (forwards.tolist(), sideways.tolist())


@pytest.mark.parametrize(("axes", "bits"), [(2, 4), (3, 1), (3, 2), (3, 3), (4, 2), (5, 2), (2, 1)])
def test_hilbert_codes_visit_every_cell_from_neighbour_to_neighbour(axes: int, bits: int) -> None:
    cells = grid(axes, bits)
    codes = hilbert_codes(columns(cells), bits)
    assert sorted(codes.tolist()) == list(range(len(cells)))
    path = [cells[place] for place in np.argsort(codes)]
    for cell, following in itertools.pairwise(path):
        assert sum(abs(a - b) for a, b in zip(cell, following, strict=True)) == 1
    for start in range(0, len(path), 1 << axes):
        assert len({tuple(number >> 1 for number in cell) for cell in path[start : start + (1 << axes)]}) == 1


def test_hilbert_codes_do_not_overflow() -> None:
    top = np.array([0, 2**32 - 1, 2**31], np.uint64)
    assert len({*hilbert_codes([top, top[::-1].copy()], 32).tolist()}) == 3


def test_linear_order_is_that_of_the_columns_one_after_the_other() -> None:
    table = pa.table({"a": [2, None, 1, 2, 1], "b": ["x", "y", None, "a", "b"]})
    ordered = table.take(row_order(table, ["a", "b"], "linear")).to_pylist()
    assert [(row["a"], row["b"]) for row in ordered] == [(1, "b"), (1, None), (2, "a"), (2, "x"), (None, "y")]


@pytest.mark.parametrize("layout", ["z-order", "hilbert"])
def test_every_column_is_clustered_along_a_curve(layout: str) -> None:
    dice = np.random.default_rng(1)
    table = pa.table(
        {"a": np.exp(dice.normal(size=4096) * 5), "b": [f"{n:08x}" for n in dice.integers(0, 2**31, 4096)]}
    )
    ordered = table.take(row_order(table, ["a", "b"], layout))
    files = [ordered.slice(start, 256) for start in range(0, 4096, 256)]
    for name in ("a", "b"):
        values = sorted(table[name].to_pylist())
        hits = [sum(min(f[name].to_pylist()) <= value <= max(f[name].to_pylist()) for f in files) for value in values]
        assert np.mean(hits) <= 1.5 * math.sqrt(len(files)), "a value of either column is in few files"


@pytest.mark.parametrize("layout", ["linear", "z-order", "hilbert"])
@given(rows=st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.text(max_size=2)), max_size=12))
def test_any_order_has_every_row_once(layout: str, rows: list[tuple[int | None, str | None]]) -> None:
    table = pa.table(
        {"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    assert sorted(row_order(table, ["a", "b"], layout).to_pylist()) == list(range(len(rows)))


@pytest.mark.parametrize("layout", ["linear", "z-order"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([Decimal("1.2"), None, Decimal("0.1")], pa.decimal128(9, 2)),
        ([date(2026, 1, 2), None, date(1969, 1, 1)], pa.date32()),
        ([5, None, -5], pa.timestamp("us", "UTC")),
        ([b"b", None, b"a"], pa.binary()),
        ([float("nan"), None, 0.5], pa.float32()),
        (["b", None, "a"], pa.large_string()),
    ],
)
def test_columns_of_all_kinds_have_an_order(values: list[object], kind: pa.DataType, layout: str) -> None:
    table = pa.table({"a": pa.array(values, kind), "b": [0, 0, 0]})
    assert row_order(table, ["a", "b"], layout).to_pylist() == [2, 0, 1], "null is last"


def test_rows_of_chunked_columns_are_ordered_as_a_whole() -> None:
    parts = [pa.table({"a": [5, 1], "b": [1, 2]}), pa.table({"a": [3, 0], "b": [0, 9]})]
    table = pa.concat_tables(parts)
    assert row_order(table, ["a"], "hilbert").to_pylist() == [3, 1, 2, 0]
    assert sorted(row_order(table, ["a", "b"], "hilbert").to_pylist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("names", "layout", "what"),
    [(("a",), "zigzag", "no layout"), ((), "hilbert", "0 columns"), (("s",), "linear", "no order")],
)
def test_an_order_that_cannot_be_is_refused(names: tuple[str, ...], layout: str, what: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("s", pa.list_(pa.int64()))])
    with pytest.raises(InvalidInputError, match=what):
        check_order(schema, names, layout)
