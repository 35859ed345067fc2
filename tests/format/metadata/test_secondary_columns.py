from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.metadata.keys import has_certain_text, secondary_key, secondary_value_text, split_secondary_key
from lakebed.format.metadata.secondary_keys import secondary_keys, secondary_value_texts, split_secondary_keys

PATH = "secondary-index-idx-name-0000-0_1-2-3_00000000000000003.hfile"
TOKYO = timezone(timedelta(hours=9))
VALUES: list[tuple[Any, str | None]] = [
    (None, None),
    ("text", "text"),
    ("", ""),
    (5, "5"),
    (-(2**63), "-9223372036854775808"),
    (2.0, "2.0"),
    (1e10, "1.0E10"),
    (True, "true"),
    (False, "false"),
    (date(2024, 1, 5), "19727"),
    (date(1969, 12, 30), "-2"),
    (datetime(2024, 1, 5, 10, 20, 30, 123456), "1704450030123456"),
    (datetime(2024, 1, 5, 10, 20, 30, 123456, timezone.utc), "1704450030123456"),
    (datetime(2024, 1, 5, 19, 20, 30, 123456, TOKYO), "1704450030123456"),
    (time(0, 0, 1), "1000000"),
    (Decimal("12.50"), "12.50"),
    (pa.scalar(5, pa.int8()), "5"),
    (pa.scalar(0.1, pa.float32()), "0.1"),
    (pa.scalar(1704450030123, pa.timestamp("ms", "UTC")), "1704450030123000"),
    (pa.scalar(1704450030123456789, pa.timestamp("ns")), "1704450030123456"),
    (pa.scalar(1000, pa.time32("ms")), "1000"),
    (pa.scalar(Decimal("0.0000001234"), pa.decimal128(20, 10)), "1.234E-7"),
    (pa.scalar("x", pa.large_string()), "x"),
    (pa.scalar(None, pa.int32()), None),
]
texts = st.none() | st.text(st.sampled_from("a$\\\0é😀"), max_size=8)


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_value_text(value: Any, text: str | None) -> None:
    assert secondary_value_text(value) == text


@pytest.mark.parametrize(
    "value", [b"bytes", [1], {"a": 1}, 2**70, object(), pa.scalar(b"x"), pa.scalar(1, pa.duration("s"))]
)
def test_values_without_text(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        secondary_value_text(value)


@pytest.mark.parametrize(
    ("value", "certain"),
    [
        (None, True),
        ("2.0E23", True),
        (2**60, True),
        (date(2024, 1, 5), True),
        (2.0, True),
        (0.0, True),
        (-1234.56, True),
        (float("nan"), True),
        (2e23, False),
        (1e-5, False),
        (pa.scalar(0.1, pa.float32()), False),
        (pa.scalar(0.0, pa.float32()), True),
        (pa.scalar(None, pa.float64()), True),
    ],
)
def test_texts_that_depend_on_the_writer(value: Any, certain: bool) -> None:
    assert has_certain_text(value) == certain


def test_columns() -> None:
    column = pa.array(["b", None, "a", "b"]).dictionary_encode()
    assert secondary_value_texts(column).to_pylist() == ["b", None, "a", "b"]
    assert secondary_value_texts(pa.array([1, None], pa.int16())).to_pylist() == ["1", None]
    assert secondary_value_texts(pa.nulls(2)).to_pylist() == [None, None]


@settings(max_examples=40)
@given(st.lists(st.tuples(texts, texts.filter(lambda text: text is not None))), st.sampled_from(["V1", "V2"]))
def test_the_same_as_one_by_one(pairs: list[tuple[str | None, str]], version: str) -> None:
    values, record_keys = (pa.array([pair[index] for pair in pairs], pa.string()) for index in (0, 1))
    keys = secondary_keys(values, record_keys, version=version)
    assert keys.to_pylist() == [secondary_key(*pair, version=version) for pair in pairs]
    for stored in (keys, keys.cast(pa.binary())):
        split = split_secondary_keys(stored, path=PATH)
        assert list(zip(*(part.to_pylist() for part in split), strict=True)) == [
            split_secondary_key(key, path=PATH) for key in keys.to_pylist()
        ]


@pytest.mark.parametrize("stored", [b"", b"abc", rb"a\$b", b"a$\\", b"\xff$k"])
def test_unsound_keys(stored: bytes) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        split_secondary_keys(pa.array([b"a$b", stored]), path=PATH)


def test_hostile_keys() -> None:
    good = "a\\$b$k\\$1é\0".encode()
    check_decoder(
        lambda data: split_secondary_keys(pa.array([data]), path=PATH), mutations(good, seed=7, count=500), path=PATH
    )
