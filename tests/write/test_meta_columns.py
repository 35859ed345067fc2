from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.words import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.write.files.base import meta_columns
from lakebed.write.rows.columns import numbered_texts

INSTANT = "20261116060035665"


def prepared(keys: list[str], path: str) -> pa.Table:
    paths = pa.array([path] * len(keys), pa.string()).dictionary_encode()
    return pa.table({RECORD_KEY: pa.array(keys, pa.string()), PARTITION_PATH: paths, "v": range(len(keys))})


def test_columns_of_two_chunks() -> None:
    rows = pa.concat_tables([prepared(["a", "b"], "eu"), prepared(["c"], "eu")])
    columns = dict(zip(META_COLUMNS, meta_columns(rows, INSTANT, 3, "f.parquet"), strict=True))
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "_hoodie_commit_time": [INSTANT] * 3,
        "_hoodie_commit_seqno": [f"{INSTANT}_3_{row}" for row in range(3)],
        "_hoodie_record_key": ["a", "b", "c"],
        "_hoodie_partition_path": ["eu"] * 3,
        "_hoodie_file_name": ["f.parquet"] * 3,
    }
    for name in ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_file_name"):
        assert len(columns[name].dictionary) == 1


def test_no_rows() -> None:
    assert [len(column) for column in meta_columns(prepared([], ""), INSTANT, 0, "f")] == [0] * 5


@given(st.text(max_size=5), st.integers(0, 12_000), st.integers(0, 3_000))
def test_numbers_behind_a_prefix(prefix: str, first: int, count: int) -> None:
    texts = numbered_texts(prefix, first, count)
    texts.validate(full=True)
    assert texts.to_pylist() == [f"{prefix}{number}" for number in range(first, first + count)]


@pytest.mark.parametrize("first", [0, 998, 99_500, 10**12 - 3])
def test_numbers_across_a_digit_more(first: int) -> None:
    assert numbered_texts("x", first, 1200).to_pylist() == [f"x{number}" for number in range(first, first + 1200)]
