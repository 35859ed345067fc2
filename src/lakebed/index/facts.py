"""Facts about a written file: everything that index entries are made from. As a value, and as JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.model.commit import WriteStat
from lakebed.model.metadata import ColumnStats, ValueType


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that a task wrote, and the facts that indexes need about it.

    `inserted_keys` were not in the file group before, or need a new entry for another reason; `ordering` has their
    ordering values if index entries carry them. `deleted_keys` left the file group; `deleted` is their number, if it
    differs from that in the write stat. `gathered` has what other indexes wanted of the rows, by metadata-table
    partition.
    """

    stat: WriteStat
    column_stats: tuple[ColumnStats, ...] = ()
    bloom_text: bytes | None = None
    inserted_keys: pa.Array | None = None
    deleted_keys: pa.Array | None = None
    ordering: pa.Array | None = None
    deleted: int | None = None
    gathered: Mapping[str, bytes] = field(default_factory=dict)


def encode_facts(file: FileFacts) -> dict[str, Any]:
    """The facts as JSON values, without write stat and keys: a prepared commit stores those as Avro and Arrow."""
    return {
        "statistics": [_encode_stats(stats) for stats in file.column_stats],
        "bloom": None if file.bloom_text is None else b64encode(file.bloom_text).decode(),
        "gathered": {index: b64encode(found).decode() for index, found in file.gathered.items()},
        "rows_deleted": file.deleted,
    }


def decode_facts(given: Mapping[str, Any], stat: WriteStat) -> FileFacts:
    """Inverse of `encode_facts`; bad values raise what `format/guard.py` expects of parsers."""
    return FileFacts(
        stat,
        tuple(map(_decode_stats, given["statistics"])),
        None if given["bloom"] is None else b64decode(given["bloom"]),
        deleted=given["rows_deleted"],
        gathered={index: b64decode(text) for index, text in given["gathered"].items()},
    )


def _encode_stats(stats: ColumnStats) -> dict[str, Any]:
    bounds = {name: _encode_value(getattr(stats, name)) for name in ("min_value", "max_value")}
    return {**asdict(stats), **bounds, "value_type": int(stats.value_type)}


def _decode_stats(given: Mapping[str, Any]) -> ColumnStats:
    bounds = {name: _decode_value(given[name]) for name in ("min_value", "max_value")}
    return ColumnStats(**{**given, **bounds, "value_type": ValueType(given["value_type"])})


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "float": float.fromhex,
    "bytes": b64decode,
    "Decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}
"""Parsers of bounds that JSON has no type for, by the name of the Python type."""


def _encode_value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, bytes):
        return ["bytes", b64encode(value).decode()]
    if isinstance(value, Decimal):
        return ["Decimal", str(value)]
    return [type(value).__name__, value.isoformat()]


def _decode_value(given: Any) -> Any:
    if not isinstance(given, list):
        return given
    name, text = given
    return _PARSERS[name](text)
