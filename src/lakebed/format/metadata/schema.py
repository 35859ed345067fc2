"""The Avro schema of metadata records, as files store it and as the commits that write them state it.

Stored records begin with the five meta columns, which commits leave out, as they do for any table.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from lakebed.format.metadata.record_index import ORDERING_FIELD, RECORD_INDEX_PAYLOAD

_WITHOUT_MEANING = ("doc", "default", "avro.java.string")
"""What a schema says to people and to Java: it changes no byte of a record."""


@cache
def stored_schema(*, has_ordering: bool = False) -> str:
    """The schema of records in HFiles and log blocks of table version 9.

    With `has_ordering`, entries of the record index end with an ordering value, a field of lakebed's own.
    """
    text = _text("HoodieMetadataRecord.as-stored")
    return _encode(_with_ordering(json.loads(text))) if has_ordering else text


def is_own(schema: str | None) -> bool:
    """Whether records of this schema were stored by us: Apache Hudi spells it in another way."""
    return schema == stored_schema()


@cache
def committed_schema() -> str:
    """The schema that commits of the metadata table name: records without meta columns.

    It names no ordering value, whatever entries have: Apache Hudi 1.2 compacts by it, and fails at two entries of one
    key whose schema has a field more than its own class.
    """
    return _text("HoodieMetadataRecord")


@lru_cache(maxsize=64)
def has_same_layout(schema: str, other: str) -> bool:
    """Whether records of the two schemas have the same bytes, however the schemas are spelled."""
    return schema == other or _layout(json.loads(schema)) == _layout(json.loads(other))


def _text(name: str) -> str:
    return _encode(json.loads((files("lakebed.format") / "schemas" / f"{name}.avsc").read_text("utf-8")))


def _encode(spec: Any) -> str:
    return json.dumps(spec, separators=(",", ":"))


def _with_ordering(spec: Any) -> Any:
    (payload,) = (field for field in spec["fields"] if field["name"] == RECORD_INDEX_PAYLOAD)
    payload["type"][1]["fields"].append({"name": ORDERING_FIELD, "type": ["null", "long"], "default": None})
    return spec


def _layout(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_layout(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    kept = {name: _layout(part) for name, part in spec.items() if name not in _WITHOUT_MEANING}
    return kept["type"] if kept.keys() == {"type"} else kept
