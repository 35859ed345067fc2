"""index.json: the definitions of a table's indexes, by metadata-table partition; and which partitions need one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.format.guard import decode_json_object, decoding, encode_json_object
from lakebed.model.index import IndexDefinition

_VERSIONS = ("V1", "V2")


def decode_index_definitions(data: bytes, *, path: str) -> dict[str, IndexDefinition]:
    """All definitions by the name of their metadata-table partition; none for an empty file."""
    if not data:
        return {}
    content = decode_json_object(data, path=path, what="index definitions")
    with decoding(path, "index definitions"):
        entries = _typed(content.get("indexDefinitions"), dict, {})
        return {name: _decode_definition(name, entry) for name, entry in entries.items()}


def salvage_index_definitions(data: bytes) -> dict[str, IndexDefinition]:
    """The definitions in a malformed file that can be decoded individually."""
    found: dict[str, IndexDefinition] = {}
    with suppress(CorruptTableError), decoding("", ""):
        for name, entry in decode_json_object(data, path="", what="")["indexDefinitions"].items():
            with suppress(CorruptTableError), decoding("", ""):
                found[name] = _decode_definition(name, {**entry})
    return found


def check_index_versions(definitions: Mapping[str, IndexDefinition], *, path: str) -> None:
    """UnsupportedTableError if an index has a version that lakebed does not know: its entries would be misread."""
    for name, definition in definitions.items():
        if definition.version not in _VERSIONS:
            raise UnsupportedTableError(
                f"{path}: version {definition.version[:80]!r} of the index {name} is not supported",
                hint=f"lakebed knows {' and '.join(_VERSIONS)}; upgrade lakebed, or drop the index with Apache Hudi",
            )


def encode_index_definitions(definitions: Mapping[str, IndexDefinition]) -> bytes:
    """index.json with these definitions."""
    entries = {name: _encode_definition(definition) for name, definition in definitions.items()}
    return encode_json_object({"indexDefinitions": entries})


def _decode_definition(name: str, entry: Any) -> IndexDefinition:
    entry = _typed(entry, dict, {})
    options = _typed(entry.get("indexOptions"), dict, {})
    return IndexDefinition(
        name=_typed(entry.get("indexName"), str, name),
        kind=_typed(entry.get("indexType"), str, ""),
        function=_typed(entry.get("indexFunction"), str, ""),
        source_fields=tuple(_typed(field, str, "") for field in _typed(entry.get("sourceFields"), list, [])),
        options={key: _typed(value, str, "") for key, value in options.items()},
        # Table version 8 does not spell out its only version.
        version=_typed(entry.get("version"), str, "V1"),
    )


def _encode_definition(definition: IndexDefinition) -> dict[str, Any]:
    return {
        "indexName": definition.name,
        "indexType": definition.kind,
        "indexFunction": definition.function,
        "sourceFields": list(definition.source_fields),
        "indexOptions": dict(definition.options),
        "version": definition.version,
    }


def _typed(value: Any, kind: type, if_null: Any) -> Any:
    """`value` if it is of the `kind` the format demands, `if_null` if it is missing; TypeError otherwise."""
    if value is None:
        return if_null
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} is expected, not {value!r:.60}")
    return value


_BY_NAME = ("secondary_index_", "expr_index_")
"""Name prefixes of indexes whose columns are recorded only in their definitions."""
_ALWAYS_DEFINED = "column_stats"
_OWN_DEFINED = "record_index"


def needs_columns(partition: str) -> bool:
    """Whether only the definition says which columns the index is on, so that it is useless without one."""
    return partition.startswith(_BY_NAME)


def is_defined(partition: str) -> bool:
    """Whether index.json has an entry for an index."""
    return partition in (_ALWAYS_DEFINED, _OWN_DEFINED) or needs_columns(partition)


def must_be_defined(partition: str, *, is_own: bool) -> bool:
    """Whether writes need the definition. A record index shared with other engines needs none: then it is global.

    `is_own`: only lakebed knows the index.
    """
    return partition == _ALWAYS_DEFINED or (is_own and partition == _OWN_DEFINED)


def only_widens(partition: str) -> bool:
    """Whether entries only widen others, so that log files may be added before the write that they belong to."""
    return partition == "partition_stats"
