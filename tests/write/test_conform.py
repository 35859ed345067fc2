from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.write.rows.conform import conform_batch

UTC = pa.timestamp("us", "UTC")
NESTED = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.struct([("y", pa.int16())])))])
NESTED_WIDER = pa.struct(
    [("n", pa.string()), ("x", pa.int64()), ("l", pa.list_(pa.struct([("y", pa.int32()), ("z", pa.date32())])))]
)


def conform(values: pa.Array, wanted: pa.DataType, *, nullable: bool = True) -> list[object]:
    schema = pa.schema([pa.field("c", wanted, nullable=nullable)])
    batch = conform_batch(pa.RecordBatch.from_arrays([values], names=["c"]), schema, first_row=10)
    batch.validate(full=True)
    assert batch.schema == schema
    # A slice must give the same rows: nested arrays carry offsets.
    part = conform_batch(pa.RecordBatch.from_arrays([values.slice(1)], names=["c"]), schema)
    part.validate(full=True)
    assert part.column(0).to_pylist() == batch.column(0).to_pylist()[1:]
    return batch.column(0).to_pylist()


@pytest.mark.parametrize(
    ("values", "wanted", "expected"),
    [
        (pa.array([1, None], pa.uint8()), pa.int32(), [1, None]),
        (pa.array([2**53, -1]), pa.float64(), [2.0**53, -1.0]),
        # Apache Hudi takes the number that a float is spelled with.
        (pa.array([1.1, None, float("inf")], pa.float32()), pa.float64(), [1.1, None, float("inf")]),
        (pa.array([1.5], pa.float16()), pa.float32(), [1.5]),
        (pa.nulls(2), pa.list_(pa.int32()), [None, None]),
        (pa.array(["a", None, "a"], pa.large_string()).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.array(["a", None], pa.string_view()), pa.string(), ["a", None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8]), pa.int32(), [7, 7, 8]),
        (pa.array([b"abcd"], pa.binary()), pa.binary(4), [b"abcd"]),
        (pa.array([Decimal("1.25")], pa.decimal256(40, 2)), pa.decimal128(12, 4), [Decimal("1.2500")]),
        (pa.array([date(2024, 1, 2)], pa.date64()), pa.date32(), [date(2024, 1, 2)]),
        (pa.array([1_000], pa.timestamp("ns")), pa.timestamp("us"), [datetime(1970, 1, 1, 0, 0, 0, 1)]),
        (
            pa.array([datetime(2024, 1, 2, 3)], pa.timestamp("s", "Asia/Tokyo")),
            UTC,
            [datetime(2024, 1, 2, 3, tzinfo=timezone.utc)],
        ),
        (pa.array([[1, None], None, []], pa.large_list(pa.int8())), pa.list_(pa.int64()), [[1, None], None, []]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), pa.list_(pa.int32()), [[1, 2], None]),
        (
            pa.array([[("a", 1)], None, []], pa.map_(pa.large_string(), pa.int32())),
            pa.map_(pa.string(), pa.float64()),
            [[("a", 1.0)], None, []],
        ),
        (
            pa.array([{"x": 1, "l": [{"y": 2}, None]}, None, {"x": None, "l": None}], NESTED),
            NESTED_WIDER,
            [
                {"n": None, "x": 1, "l": [{"y": 2, "z": None}, None]},
                None,
                {"n": None, "x": None, "l": None},
            ],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_values_stay_what_they_are(values: pa.Array, wanted: pa.DataType, expected: list[object]) -> None:
    assert conform(values, wanted) == expected


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([1_001], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([1_001], pa.timestamp("us", "UTC")), pa.timestamp("ms", "UTC")),
        (pa.array([2**60], pa.timestamp("s")), pa.timestamp("us")),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([2**24 + 1], pa.int32()), pa.float32()),
        (pa.array([86_400_001], pa.date64()), pa.date32()),
        (pa.array([b"abc"], pa.binary()), pa.binary(4)),
        (pa.array([[1_001]], pa.list_(pa.timestamp("ns"))), pa.list_(pa.timestamp("us"))),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_a_value_that_would_lose_digits_is_refused(values: pa.Array, wanted: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"column 'c(\[\])?'"):
        conform(values, wanted)


REQUIRED = pa.field("x", pa.int32(), nullable=False)


@pytest.mark.parametrize(
    ("values", "wanted", "nullable", "message"),
    [
        (pa.array([1, None], pa.int32()), pa.int32(), False, "'c' must not be null, and is in row 11"),
        (
            pa.array([None, {"x": 1}, {"x": None}], pa.struct([("x", pa.int32())])),
            pa.struct([REQUIRED]),
            True,
            r"'c\.x' must not be null, and is in row 12",
        ),
        (pa.array([[1], [None]], pa.list_(pa.int32())), pa.list_(REQUIRED), True, r"'c\[\]' must not be null"),
        (
            pa.array([None, [("a", 1)], [("a", None)]], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
            True,
            r"'c\{\}' must not be null",
        ),
        (
            pa.array([[{"y": 1}]], pa.list_(pa.struct([("y", pa.int32())]))),
            pa.list_(pa.struct([pa.field("y", pa.int32()), REQUIRED])),
            True,
            r"'c\[\]\.x' must not be null",
        ),
    ],
)
def test_a_null_where_none_may_be_is_refused(
    values: pa.Array, wanted: pa.DataType, nullable: bool, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        conform(values, wanted, nullable=nullable)


def test_nulls_around_required_values_are_fine() -> None:
    kind = pa.struct([REQUIRED, pa.field("l", pa.list_(REQUIRED))])
    given_type = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int32()))])
    rows = [None, {"x": 1, "l": None}, {"x": 2, "l": [3]}]
    assert conform(pa.array(rows, given_type), kind) == rows


def test_columns_come_in_the_order_of_the_schema_and_missing_ones_are_null() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.list_(pa.string())), ("c", pa.string())])
    batch = pa.RecordBatch.from_pydict({"c": ["x"], "other": [1], "a": pa.array([5], pa.int32())})
    assert conform_batch(batch, schema).to_pylist() == [{"a": 5, "b": None, "c": "x"}]
    with pytest.raises(InvalidInputError, match="'b' must not be null"):
        conform_batch(batch, pa.schema([pa.field("b", pa.int32(), nullable=False)]))


@given(
    st.lists(
        st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(-100, 100),
                "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"y": st.none() | st.integers(0, 9)})),
            }
        ),
        min_size=1,
    )
)
def test_nested_rows_gain_nulls_and_lose_nothing(rows: list[dict[str, object] | None]) -> None:
    def wider(row: dict | None) -> dict | None:
        if row is None:
            return None
        items = row["l"]
        items = None if items is None else [None if item is None else {**item, "z": None} for item in items]
        return {"n": None, "x": row["x"], "l": items}

    assert conform(pa.array(rows, NESTED), NESTED_WIDER) == [wider(row) for row in rows]
