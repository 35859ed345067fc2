from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import CorruptTableError
from lakebed.read.columns import conform_table


def test_missing_columns_are_null_and_extra_ones_go() -> None:
    table = pa.table({"a": [1, 2], "old": ["x", "y"]})
    wanted = pa.schema([("new", pa.string()), ("a", pa.int64())])
    assert conform_table(table, wanted, path="f").to_pylist() == [{"new": None, "a": 1}, {"new": None, "a": 2}]


def test_rows_without_columns_still_count() -> None:
    assert conform_table(pa.table({"a": [1, 2]}), pa.schema([]), path="f").num_rows == 2


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1, None], pa.int32()), pa.int64()),
        (pa.array([1, None], pa.int32()), pa.float64()),
        (pa.array([1.5, None], pa.float32()), pa.float64()),
        (pa.array(["a", None]).dictionary_encode(), pa.string()),
    ],
)
def test_types_widen(values: pa.Array, wanted: pa.DataType) -> None:
    found = conform_table(pa.table({"c": values}), pa.schema([("c", wanted)]), path="f")
    assert found.schema.field("c").type == wanted
    assert found["c"].to_pylist() == values.to_pylist()


def test_nested_types_gain_fields_and_widen() -> None:
    old = pa.struct([("x", pa.int32())])
    new = pa.struct([("x", pa.int64()), ("y", pa.string())])
    table = pa.table(
        {
            "s": pa.array([None, {"x": 1}, {"x": None}], old),
            "l": pa.array([None, [], [{"x": 1}, None]], pa.list_(pa.field("array", old))),
            "m": pa.array([None, [], [("k", {"x": 1})]], pa.map_(pa.string(), old)),
        }
    )
    wanted = pa.schema([("s", new), ("l", pa.list_(new)), ("m", pa.map_(pa.string(), new))])
    for part in (table, table.slice(1)):
        found = conform_table(part, wanted, path="f")
        found.validate(full=True)
        full = [
            {"s": None, "l": None, "m": None},
            {"s": {"x": 1, "y": None}, "l": [], "m": []},
            {"s": {"x": None, "y": None}, "l": [{"x": 1, "y": None}, None], "m": [("k", {"x": 1, "y": None})]},
        ]
        assert found.to_pylist() == full[-part.num_rows :]


def test_nanoseconds_become_microseconds() -> None:
    table = pa.table({"t": pa.array([1_000_000_001], pa.timestamp("ns"))})
    found = conform_table(table, pa.schema([("t", pa.timestamp("us"))]), path="f")
    assert found["t"].cast(pa.int64()).to_pylist() == [1_000_000]


def test_types_that_do_not_fit_name_the_file() -> None:
    with pytest.raises(CorruptTableError, match=r"part-1.*column c"):
        conform_table(pa.table({"c": ["x"]}), pa.schema([("c", pa.int64())]), path="part-1")
