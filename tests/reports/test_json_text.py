from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from lakebed.model.words import Action
from lakebed.reports.report import encode_json, plain


@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    tags: tuple[str, ...]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1 << 62, 1 << 62),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (Action.DELTA_COMMIT, "deltacommit"),
        (b"\x01\x02", "AQI="),
        (Decimal("12.340"), "12.340"),
        (date(2024, 1, 2), "2024-01-02"),
        (datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc), "2024-01-02T03:04:05+00:00"),
        (_Point(1, ("a", "b")), {"x": 1, "tags": ["a", "b"]}),
        ({1: {"a": None}}, {"1": {"a": None}}),
    ],
)
def test_values(value: object, expected: object) -> None:
    assert plain(value) == expected
    assert json.loads(encode_json(value)) == expected


def test_rows_are_objects() -> None:
    rows = pa.table(
        {
            "id": ["a", None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "s": pa.array([{"x": Decimal("1.0")}, None], pa.struct([("x", pa.decimal128(5, 1))])),
        }
    )
    assert plain(rows) == [{"id": "a", "m": {"k": 1}, "s": {"x": "1.0"}}, {"id": None, "m": None, "s": None}]


def test_any_text_makes_valid_ascii() -> None:
    encoded = encode_json({"é": "\ud800\x1b"})
    assert encoded.isascii()
    assert json.loads(encoded) == {"é": "\ud800\x1b"}
