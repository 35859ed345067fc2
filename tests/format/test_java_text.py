from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.format.java import java_float_text

# What `Double.toString` of a Java 25 prints.
DOUBLES = {
    2.0: "2.0",
    0.0: "0.0",
    100.0: "100.0",
    0.001: "0.001",
    0.00099: "9.9E-4",
    9999999.0: "9999999.0",
    1e7: "1.0E7",
    9999999.999999998: "9999999.999999998",
    12345678.9: "1.23456789E7",
    123456.789: "123456.789",
    1e10: "1.0E10",
    1e-5: "1.0E-5",
    -3.5e-4: "-3.5E-4",
    0.1 + 0.2: "0.30000000000000004",
    1e21: "1.0E21",
    2e23: "2.0E23",
    8.41e21: "8.41E21",
    5.684341886080802e-14: "5.684341886080802E-14",
    -3.2148553208128307e-24: "-3.2148553208128307E-24",
    3.4633604772920904e121: "3.4633604772920904E121",
    1.7976931348623157e308: "1.7976931348623157E308",
    5e-324: "4.9E-324",
    1e-323: "9.9E-324",
    6.77e-322: "6.77E-322",
    math.inf: "Infinity",
    -math.inf: "-Infinity",
}
FLOATS = {
    2.0: "2.0",
    0.1: "0.1",
    1e10: "1.0E10",
    1e-5: "1.0E-5",
    16777216.0: "1.6777216E7",
    3.4e38: "3.4E38",
    1.1754944e-38: "1.1754944E-38",
    1e-45: "1.4E-45",
    9999999.0: "9999999.0",
}


@pytest.mark.parametrize(("number", "text"), DOUBLES.items())
def test_doubles(number: float, text: str) -> None:
    assert java_float_text(pa.array([number])).to_pylist() == [text]


@pytest.mark.parametrize(("number", "text"), FLOATS.items())
def test_floats(number: float, text: str) -> None:
    assert java_float_text(pa.array([number], pa.float32())).to_pylist() == [text]


def test_nan_null_minus_zero_and_nothing() -> None:
    assert java_float_text(pa.array([math.nan, None, 1.5, -0.0])).to_pylist() == ["NaN", None, "1.5", "-0.0"]
    assert java_float_text(pa.array([], pa.float64())).to_pylist() == []
    assert java_float_text(pa.nulls(2, pa.float32())).to_pylist() == [None, None]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_text_reads_back_as_the_same_double(numbers: list[float]) -> None:
    texts = java_float_text(pa.array(numbers, pa.float64())).to_pylist()
    assert [struct.pack("d", float(text)) for text in texts] == [struct.pack("d", number) for number in numbers]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_notation(number: float) -> None:
    mantissa, letter, exponent = java_float_text(pa.array([number]))[0].as_py().partition("E")
    whole, point, fraction = mantissa.lstrip("-").partition(".")
    assert point == "."
    assert fraction == "0" or not fraction.endswith("0")
    assert bool(letter) == (number != 0 and not 1e-3 <= abs(number) < 1e7)
    if letter:
        assert len(whole) == 1
        assert whole != "0"
        assert str(int(exponent)) == exponent
