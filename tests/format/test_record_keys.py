"""The texts here were written by Apache Hudi 1.2.0, as record keys and as partition paths of an upsert."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.format.record_keys import composite_keys, has_value_text, value_texts

MOMENTS = [
    datetime(2024, 1, 2, 3, 4, 5, 123456),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime(2024, 1, 2, 3, 4, 5),
    datetime(2024, 1, 2, 3, 4, 5, 100000),
    datetime(1970, 1, 1),
]
MICROS = ["1704164645123456", "-1", "1704164645000000", "1704164645100000", "0"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, -7, 2147483647, 0], pa.int32()), ["1", "-7", "2147483647", "0"]),
        (pa.array([1, -7000000000, 9223372036854775807]), ["1", "-7000000000", "9223372036854775807"]),
        (pa.array([32767, -7], pa.int16()), ["32767", "-7"]),
        (pa.array([True, False, None]), ["true", "false", None]),
        (
            pa.array([1.5, 0.1, 1e10, -0.0, float("nan"), 3.4028235e38], pa.float32()),
            ["1.5", "0.1", "1.0E10", "-0.0", "NaN", "3.4028235E38"],
        ),
        (pa.array([1.5, 0.1, 1e10, 1e-5, 123456789.125]), ["1.5", "0.1", "1.0E10", "1.0E-5", "1.23456789125E8"]),
        (
            pa.array([Decimal(d) for d in ("1.50", "-0.05", "12345678.90", "0", "99999999.99")], pa.decimal128(10, 2)),
            ["1.50", "-0.05", "12345678.90", "0.00", "99999999.99"],
        ),
        (
            pa.array(
                [Decimal(d) for d in ("1.5", "1E-10", "1234567890123456789012345678.0123456789", "0", "100", "0.1")],
                pa.decimal128(38, 10),
            ),
            [
                "1.5000000000",
                "1E-10",
                "1234567890123456789012345678.0123456789",
                "0E-10",
                "100.0000000000",
                "0.1000000000",
            ],
        ),
        (pa.array([Decimal("1E-8")], pa.decimal128(20, 10)), ["1.00E-8"]),
        (
            pa.array([Decimal("7"), Decimal("-12345678901234567890")], pa.decimal128(20, 0)),
            ["7", "-12345678901234567890"],
        ),
        (
            pa.array([date(2024, 1, 2), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4)]),
            ["2024-01-02", "1969-12-31", "0001-01-01", "9999-12-31", "1582-10-04"],
        ),
        (pa.array([m.replace(tzinfo=timezone.utc) for m in MOMENTS], pa.timestamp("us", "UTC")), MICROS),
        (pa.array(MOMENTS, pa.timestamp("us")), MICROS),
        (pa.array([datetime(2024, 1, 2, 3, 4, 5, 123000)], pa.timestamp("ms")), ["1704164645123"]),
        (pa.array([b"b1", b"\x00\xab\xff", b"", None]), ["6231", "00abff", "", None]),
        (pa.array([b"\x01\xfe"], pa.binary(2)), ["01fe"]),
        (pa.array(["a/b", "ü中😀", "", None]), ["a/b", "ü中😀", "", None]),
        (pa.array(["x", None, "x"]).dictionary_encode(), ["x", None, "x"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_texts_are_those_of_apache_hudi(values: pa.Array, expected: list[str | None]) -> None:
    assert value_texts(values).to_pylist() == expected
    # A slice of a longer array gives the same: kernels look at offsets.
    longer = pa.concat_arrays([values, values, values])
    assert value_texts(longer.slice(len(values), len(values))).to_pylist() == expected


def test_doubles_have_the_shortest_text_which_java_17_does_not_give_for_all() -> None:
    assert value_texts(pa.array([2e23])).to_pylist() == ["2.0E23"]  # 1.9999999999999998E23 before Java 19.


@pytest.mark.parametrize("day", [-719163, 2932897])
def test_dates_that_java_spells_with_a_sign_are_refused(day: int) -> None:
    with pytest.raises(InvalidInputError, match="9999"):
        value_texts(pa.array([0, day], pa.date32()))


@given(st.lists(st.binary(max_size=9) | st.none()), st.integers(0, 3))
def test_hexadecimal_of_any_bytes(values: list[bytes | None], skipped: int) -> None:
    expected = [None if value is None else value.hex() for value in values[skipped:]]
    assert value_texts(pa.array(values, pa.binary()).slice(skipped)).to_pylist() == expected


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32()), pa.null()]
)
def test_nested_values_have_no_text(kind: pa.DataType) -> None:
    assert not has_value_text(kind)


def test_composite_keys_name_their_fields() -> None:
    a, b = pa.array(["a", None, "", "a", "a"]), pa.array(["x", "x", "x", None, ""])
    assert composite_keys(("a", "b"), (a, b)).to_pylist() == [
        "a:a,b:x",
        "a:__null__,b:x",
        "a:__empty__,b:x",
        "a:a,b:__null__",
        "a:a,b:__empty__",
    ]
    assert composite_keys(("n", "st"), (pa.array(["6"]), pa.array(["a:b?c#d"]))).to_pylist() == ["n:6,st:a:b?c#d"]
    assert composite_keys(("n",), (pa.array(["2"]),)).to_pylist() == ["n:2"]
