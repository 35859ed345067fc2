from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.kernels.ordering import group_rows
from lakebed.write.rows import columns
from lakebed.write.rows.columns import identity, joined, take_rows


@pytest.mark.parametrize("few", [0, 100])
def test_rows_are_taken_in_any_order(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(columns, "_FEW_ROWS", few)
    texts = pa.chunked_array([pa.array(["a", None, "c"]), pa.array(["", "e"])])
    nested = pa.array([{"x": 1}, None, {"x": 3}, {"x": 4}, {"x": None}])
    table = pa.table({"t": texts, "same": texts, "d": texts.dictionary_encode(), "s": nested, "again": nested})
    rows = np.array([4, 0, 0, 2])
    taken = take_rows(table, rows)
    assert taken.equals(table.take(pa.array(rows)))
    assert identity(taken["t"]) == identity(taken["same"])
    assert take_rows(table, np.empty(0, np.int64)).equals(table.slice(0, 0))


def test_columns_are_the_same_if_their_memory_is() -> None:
    whole = pa.array(["a", "b", "a", "b"])
    first, second, copy = (pa.chunked_array([part]) for part in (whole[:2], whole[2:], pa.array(["a", "b"])))
    assert identity(first) == identity(pa.chunked_array([whole[:2]]))
    assert len({identity(first), identity(second), identity(copy), identity(first.cast(pa.binary()))}) == 4
    codes = pa.array([0, 1])
    one, other = (pa.DictionaryArray.from_arrays(codes, pa.array(words)) for words in (["a", "b"], ["b", "a"]))
    assert identity(pa.chunked_array([one])) != identity(pa.chunked_array([other]))


def test_a_column_in_one_piece_is_not_copied() -> None:
    piece = pa.array(["a", "b"])
    assert joined(pa.chunked_array([piece])).buffers()[2].address == piece.buffers()[2].address
    assert joined(pa.chunked_array([piece, piece])).to_pylist() == ["a", "b", "a", "b"]
    assert joined(pa.chunked_array([], pa.string())).to_pylist() == []


@pytest.mark.usefixtures("either_implementation")
@given(groups=st.lists(st.integers(0, 5), min_size=1), count=st.sampled_from([6, 2**15 + 7]))
def test_rows_by_group(groups: list[int], count: int) -> None:
    order, bounds = group_rows(np.array(groups, np.int64), count)
    for group in range(6):
        here = [row for row, of_row in enumerate(groups) if of_row == group]
        assert order[bounds[group] : bounds[group + 1]].tolist() == here
    assert bounds[-1] == len(groups)
