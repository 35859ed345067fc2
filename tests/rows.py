"""Rows in the JSON form in which Spark prints them, so that results of different readers can be compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


def spark_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as Spark's `toJSON` writes them: null fields are left out."""
    return [_struct(row) for row in table.to_pylist(maps_as_pydicts="strict")]


def same_rows(ours: Iterable[dict[str, Any]], expected: Iterable[dict[str, Any]]) -> bool:
    return canonical(ours) == canonical(expected)


def canonical(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in rows)


def _struct(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _struct(value)
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        text = value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}"
        return text + ("Z" if value.tzinfo is not None else "")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    return value
