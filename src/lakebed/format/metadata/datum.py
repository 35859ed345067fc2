"""One metadata record as a bare Avro datum, the form in which HFiles store it.

    five meta fields    null, each (a compacted base file may name itself in the fifth)
    key                 the empty string: the key stands in the HFile alone
    type                RecordKind
    five payloads       files, bloom filter, column stats, record index, secondary index: the one of the kind is set

Reading goes by the schema that is stored with the datum, since each release added fields. Writing is by hand, in the
form of table version 9.
"""

from __future__ import annotations

import io
import json
import struct
from functools import lru_cache
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from lakebed.errors import CorruptTableError
from lakebed.format.avro.numbers import encode_long
from lakebed.format.avro.types import Array, AvroType, Record, Scalar, Wire, parse_record, parts
from lakebed.format.guard import decoding
from lakebed.format.metadata.record_kinds import RecordKind

NULL = b"\x00"
SET = b"\x02"
"""The branch of a nullable value, before the value."""

_META_FIELDS_AND_KEY = NULL * 6
_PAYLOAD_OF_KIND = {
    RecordKind.ALL_PARTITIONS: 0,
    RecordKind.FILES: 0,
    RecordKind.BLOOM_FILTERS: 1,
    RecordKind.COLUMN_STATS: 2,
    RecordKind.PARTITION_STATS: 2,
    RecordKind.RECORD_INDEX: 3,
    RecordKind.SECONDARY_INDEX: 4,
}
_PAYLOAD_COUNT = 5
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


def decode_datum(value: bytes, schema: str, *, path: str) -> dict[str, Any]:
    """The fields of a record by name. Logical types stay what they are on the wire; a value of a union of records is
    a pair of record name and fields."""
    with decoding(path, "a metadata record"):
        stream = io.BytesIO(value)
        datum: dict[str, Any] = fastavro.schemaless_reader(  # type: ignore[assignment]
            stream, _reader_schema(schema), None, return_record_name=True, return_record_name_override=True
        )
        if stream.tell() != len(value):
            raise CorruptTableError(f"a metadata record ends {len(value) - stream.tell()} bytes early", path=path)
        return datum


@lru_cache(maxsize=64)
def _reader_schema(schema: str) -> Any:
    # A schema is as hostile as any bytes: these checks keep the reader from recursing or looping without end.
    _refuse_free_items(parse_record(schema))
    try:
        return fastavro.parse_schema(_without_logical_types(json.loads(schema)))
    except SchemaParseException as error:
        raise ValueError(str(error)) from error


def _refuse_free_items(node: AvroType) -> None:
    if isinstance(node, Array) and _takes_no_bytes(node.item):
        raise ValueError("an array has items that take no bytes, so any number of them")
    for part in parts(node):
        _refuse_free_items(part)


def _takes_no_bytes(node: AvroType) -> bool:
    if isinstance(node, Record):
        return all(_takes_no_bytes(part) for part in parts(node))
    return isinstance(node, Scalar) and node.wire is Wire.NULL


def _without_logical_types(spec: Any) -> Any:
    if isinstance(spec, dict):
        return {name: _without_logical_types(part) for name, part in spec.items() if name != "logicalType"}
    return [_without_logical_types(part) for part in spec] if isinstance(spec, list) else spec


def encode_datum(kind: RecordKind, payload: bytes) -> bytes:
    """The record of a kind with its payload."""
    before, after = datum_around(kind)
    return before + payload + after


def datum_around(kind: RecordKind) -> tuple[bytes, bytes]:
    """What stands before and after the payload in a record of a kind."""
    at = _PAYLOAD_OF_KIND[kind]
    return _META_FIELDS_AND_KEY + encode_long(kind) + NULL * at + SET, NULL * (_PAYLOAD_COUNT - 1 - at)


def encode_bytes(data: bytes) -> bytes:
    """Avro bytes: the length, then the bytes."""
    return encode_long(len(data)) + data


def encode_text(text: str) -> bytes:
    """An Avro string."""
    return encode_bytes(text.encode())


def encode_boolean(flag: bool) -> bytes:
    """An Avro boolean."""
    return b"\x01" if flag else b"\x00"


def encode_float(number: float) -> bytes:
    """An Avro float."""
    return _FLOAT.pack(number)


def encode_double(number: float) -> bytes:
    """An Avro double."""
    return _DOUBLE.pack(number)


def encode_optional_long(number: int | None) -> bytes:
    """A nullable Avro int or long, null first."""
    return NULL if number is None else SET + encode_long(number)


def encode_optional_text(text: str | None) -> bytes:
    """A nullable Avro string, null first."""
    return NULL if text is None else SET + encode_text(text)
