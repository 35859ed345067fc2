from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.words import PARTITION_PATH, RECORD_KEY, MergeMode
from lakebed.write.rows.arrange import combine_duplicates

EVENT, COMMIT = MergeMode.EVENT_TIME_ORDERING, MergeMode.COMMIT_TIME_ORDERING


pytestmark = pytest.mark.usefixtures("either_implementation")


def rows_of(rows: list[tuple[Any, ...]], chunks: int = 1) -> pa.Table:
    names = [RECORD_KEY, PARTITION_PATH, "a", "b", "row"]
    columns = [[row[at] for row in rows] for at in range(4)]
    kinds = [pa.string(), pa.string(), pa.int64(), pa.string()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    table = pa.table([*arrays, pa.array(range(len(rows)))], names=names)
    pieces = [table.slice(at, -(-len(rows) // chunks)) for at in range(0, len(rows), max(-(-len(rows) // chunks), 1))]
    encoded = [
        piece.set_column(
            1, PARTITION_PATH, piece[PARTITION_PATH].dictionary_encode().cast(pa.dictionary(pa.int32(), pa.string()))
        )
        for piece in pieces or [table]
    ]
    return pa.concat_tables(encoded)


def kept(rows: list[tuple[Any, ...]], mode: MergeMode, *ordering: str, by_partition: bool = False) -> list[int]:
    return combine_duplicates(rows_of(rows), ordering, mode, by_partition=by_partition)["row"].to_pylist()


@pytest.mark.parametrize(
    ("rows", "mode", "ordering", "expected"),
    [
        ([], EVENT, ["a"], []),
        ([("k", "p", 5, ""), ("l", "p", 5, "")], EVENT, ["a"], [0, 1]),
        # Apache Hudi 1.2.0: of equal ordering values the later row stays, under commit-time ordering always.
        ([("k", "p", 5, ""), ("k", "p", 5, "")], EVENT, ["a"], [1]),
        ([("k", "p", 7, ""), ("k", "p", 3, "")], EVENT, ["a"], [0]),
        ([("k", "p", 7, ""), ("k", "p", 3, "")], COMMIT, ["a"], [1]),
        ([("k", "p", 7, ""), ("k", "p", 3, "")], EVENT, [], [1]),
        ([("k", "p", -5, ""), ("k", "p", None, "")], EVENT, ["a"], [0]),
        ([("k", "p", None, ""), ("k", "p", -5, "")], EVENT, ["a"], [1]),
        ([("k", "p", 1, "x"), ("k", "p", 1, "y"), ("k", "p", 0, "z")], EVENT, ["a", "b"], [1]),
        ([("k", "p", 1, "x"), ("k", "p", 1, None), ("k", "p", 1, "")], EVENT, ["a", "b"], [0]),
        ([("k", "p", 1, ""), ("l", "p", 1, ""), ("k", "p", 0, ""), ("m", "p", 1, "")], EVENT, ["a"], [0, 1, 3]),
    ],
)
def test_which_row_stays(
    rows: list[tuple[Any, ...]], mode: MergeMode, ordering: list[str], expected: list[int]
) -> None:
    assert kept(rows, mode, *ordering) == expected


def test_a_key_in_two_partitions() -> None:
    rows = [("k", "p", 1, ""), ("k", "q", 2, ""), ("k", "p", 3, "")]
    assert kept(rows, EVENT, "a", by_partition=True) == [1, 2]
    assert kept(rows, EVENT, "a", by_partition=False) == [2]


def test_rows_that_are_all_different_are_handed_back() -> None:
    rows = rows_of([("k", "p", 1, ""), ("l", "p", 1, "")])
    assert combine_duplicates(rows, ["a"], EVENT, by_partition=True) is rows


def test_deletes_by_key_have_no_ordering_columns() -> None:
    rows = rows_of([("k", "p", 1, ""), ("k", "p", 2, "")]).select([RECORD_KEY, PARTITION_PATH])
    assert combine_duplicates(rows, ["a"], EVENT, by_partition=True).num_rows == 1


KEYS = st.text("ab", max_size=3) | st.text(max_size=20) | st.sampled_from(["x" * 8, "x" * 16, "x" * 17, "x" * 7 + "y"])


@given(
    rows=st.lists(
        st.tuples(KEYS, st.sampled_from("pq"), st.none() | st.integers(0, 3), st.none() | st.sampled_from("xy"))
    ),
    chunks=st.integers(1, 3),
    by_partition=st.booleans(),
    mode=st.sampled_from([EVENT, COMMIT]),
    ordering=st.sampled_from([["a"], ["b", "a"]]),
)
def test_any_batch(
    rows: list[tuple[Any, ...]],
    chunks: int,
    by_partition: bool,
    mode: MergeMode,
    ordering: list[str],
) -> None:
    best: dict[tuple[str, str], tuple[Any, int]] = {}
    for number, (key, path, a, b) in enumerate(rows):
        values = {"a": (a is not None, a or 0), "b": (b is not None, b or "")}
        rank = tuple(values[name] for name in ordering) if mode is EVENT else ()
        place = (key, path if by_partition else "")
        if place not in best or rank >= best[place][0]:
            best[place] = (rank, number)
    found = combine_duplicates(rows_of(rows, chunks), ordering, mode, by_partition=by_partition)
    assert found["row"].to_pylist() == sorted(number for _, number in best.values())
