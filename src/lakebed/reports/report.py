"""Every report there is, for renderers of text, and the JSON of any of them."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from typing import TypeAlias

import pyarrow as pa

from lakebed.read.scan import Explanation
from lakebed.reports.services import DoctorReport, RepairReport, ServicesReport
from lakebed.reports.table import (
    CheckReport,
    ConfigReport,
    FilesReport,
    IndexesReport,
    LookupReport,
    RowsReport,
    SchemaReport,
)
from lakebed.reports.timeline import TimelineReport

Report: TypeAlias = (
    TimelineReport
    | FilesReport
    | SchemaReport
    | ConfigReport
    | IndexesReport
    | CheckReport
    | RowsReport
    | LookupReport
    | ServicesReport
    | RepairReport
    | DoctorReport
    | Explanation
)
Plain: TypeAlias = str | int | float | bool | list["Plain"] | dict[str, "Plain"] | None


def encode_json(value: object, indent: int | None = 2) -> str:
    """A value as one JSON document in ASCII."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: object) -> Plain:
    """Converts a value to JSON types: times to ISO 8601, bytes to base64, decimals and non-finite floats to text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return _plain_collection(value)


def plain_rows(table: pa.Table) -> list[Plain]:
    """The rows of an Arrow table as JSON objects; maps become objects with text keys."""
    rows = table.to_pylist(maps_as_pydicts="lossy")
    return [plain(row) for row in rows]


def _plain_collection(value: object) -> Plain:
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, pa.Table):
        return plain_rows(value)
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)
