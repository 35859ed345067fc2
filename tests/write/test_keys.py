"""Expected keys were written by Apache Hudi 1.2.0."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError, UnsupportedTableError
from lakebed.filter.keys import record_keys as keys_of_reader
from lakebed.model.config import TableConfig
from lakebed.write.rows.keys import generate_keys, make_keys, plan_keys
from write.configs import table_config

ODD = ["a/b", "a b", "a=b", "a%2Fb", "ü中😀", "a:b?c#d", "it's", "a\\b", 'q"x*[y]{z}^', "a\tb", "x.y"]


def keys_of(config: TableConfig, columns: dict[str, Any], first_row: int = 0) -> list[str]:
    batch = pa.RecordBatch.from_pydict(columns)
    keys = make_keys(batch, plan_keys(config, batch.schema), first_row=first_row)
    assert keys.type == pa.string()
    return keys.to_pylist()


@pytest.mark.parametrize(
    ("config", "columns", "expected"),
    [
        (table_config("st"), {"st": ODD}, ODD),
        (table_config("n", "p"), {"n": [1, 2], "p": ["a", "b"]}, ["1", "2"]),
        (table_config("n", "a,b"), {"n": [2, 3], "a": ["a", "a"], "b": ["x", "y"]}, ["n:2", "n:3"]),
        (
            table_config("n,st"),
            {"n": list(range(1, 12)), "st": ODD},
            [f"n:{n},st:{text}" for n, text in enumerate(ODD, 1)],
        ),
        (
            table_config("a,b"),
            {"a": ["a", None, "", "a", "a"], "b": ["x", "x", "x", None, ""]},
            ["a:a,b:x", "a:__null__,b:x", "a:__empty__,b:x", "a:a,b:__null__", "a:a,b:__empty__"],
        ),
        (table_config("s.x"), {"s": [{"x": 5, "y": {"z": "q"}}]}, ["5"]),
        (table_config("n,s.y.z", "s.x"), {"n": [1], "s": [{"x": 5, "y": {"z": "q"}}]}, ["n:1,s.y.z:q"]),
    ],
)
def test_keys_are_those_of_apache_hudi(config: TableConfig, columns: dict[str, Any], expected: list[str]) -> None:
    assert keys_of(config, columns) == expected


@pytest.mark.parametrize(
    ("config", "columns", "message"),
    [
        (table_config("a"), {"a": ["x", None]}, "row 101 has no key: column 'a' is null or empty"),
        (table_config("a"), {"a": ["x", "y", ""]}, "row 102 has no key: column 'a'"),
        (table_config("a,b"), {"a": ["x", "", None], "b": [None, "", None]}, "row 101 has no key: columns 'a', 'b'"),
        (table_config("s.x"), {"s": [{"x": 1}, None]}, r"row 101 has no key: column 's\.x'"),
        (table_config("a"), {"b": ["x"]}, "lack the key column 'a'"),
        (table_config("s.x"), {"s": [{"y": 1}]}, r"lack the key column 's\.x'"),
        (table_config("a"), {"a": [[1]]}, "key column 'a' is of type list"),
    ],
)
def test_rows_without_a_key_are_refused(config: TableConfig, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        keys_of(config, columns, first_row=100)


@pytest.mark.parametrize("generator", ["CUSTOM", "GLOBAL_DELETE", "USER_PROVIDED"])
def test_other_key_generators_are_refused(generator: str) -> None:
    with pytest.raises(UnsupportedTableError, match=generator) as error:
        keys_of(table_config("a", "p", generator), {"a": ["x"], "p": ["y"]})
    assert "SIMPLE" in error.value.hint


def test_composite_keys_of_one_field_are_ambiguous_before_version_9() -> None:
    # Apache Hudi 1.2.0 refuses them as well, unless it is told which release made the table.
    with pytest.raises(UnsupportedTableError, match="differently"):
        keys_of(table_config("a", "p,q", **{"hoodie.table.version": "8"}), {"a": ["x"], "p": ["y"], "q": ["z"]})


def test_generated_keys_count_the_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"v": [7, 8, 9]})
    keys = make_keys(batch, plan_keys(table_config(""), batch.schema))
    rows = pa.table([keys, batch.column(0)], names=["_hoodie_record_key", "v"])
    named = generate_keys(rows, "20261116053446064", 1)["_hoodie_record_key"]
    assert named.to_pylist() == [f"20261116053446064_1_{row}" for row in range(3)]


VALUES = {
    pa.string(): st.text(min_size=1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.binary(): st.binary(min_size=1),
    pa.timestamp("us"): st.datetimes(),
}


@given(st.data(), st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
def test_reader_and_writer_spell_keys_alike(data: st.DataObject, kinds: list[pa.DataType]) -> None:
    rows = data.draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), min_size=1, max_size=5))
    names = [f"c{number}" for number in range(len(kinds))]
    columns = {name: pa.array([row[at] for row in rows], kinds[at]) for at, name in enumerate(names)}
    config = table_config(",".join(names), **{"hoodie.populate.meta.fields": "false"})
    assert keys_of(config, columns) == keys_of_reader(pa.table(columns), config).to_pylist()
