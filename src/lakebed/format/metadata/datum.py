"""Metadata records as bare Avro datums, the form in which HFiles store them, and their schema.

    five meta fields    null (in compacted base files, the fifth may be the file's name)
    key                 the empty string: only the HFile has the key
    type                RecordKind
    five payloads       files, Bloom filter, column stats, record index, secondary index: the one of the kind is set

Datums are decoded with the schema stored with them, because releases have added fields. They are encoded by hand, in
the form of table version 9. The schema in commits lacks the meta fields, as for any table.
"""

from __future__ import annotations

import io
import json
import struct
from enum import IntEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from fastavro.schema import SchemaParseException

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray, pc
from lakebed.format.avro.columns import decode_datums
from lakebed.format.avro.types import Array, AvroType, Record, Scalar, Wire, parse_record, parts
from lakebed.format.guard import decoding
from lakebed.format.varint import encode_long


class RecordKind(IntEnum):
    """The `type` of a metadata record: which of its payloads is set."""

    ALL_PARTITIONS = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTERS = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


RECORD_INDEX_PAYLOAD, ORDERING_VALUE = "recordIndexMetadata", "orderingValue"
"""Fields of the schema: the payload of record index entries, and lakebed's own field in it."""
_WITHOUT_MEANING = ("doc", "default", "avro.java.string")
"""Attributes of a schema that do not affect the bytes of a record."""


@cache
def stored_schema(*, has_ordering: bool = False) -> str:
    """The schema of records in HFiles and log blocks of table version 9.

    With `has_ordering`, entries of the record index end with an ordering value, a field of lakebed's own.
    """
    text = _text("HoodieMetadataRecord.as-stored")
    return _encode(_with_ordering(json.loads(text))) if has_ordering else text


def is_own(schema: str | None) -> bool:
    """Whether lakebed stored the records of this schema: Apache Hudi's text of it differs."""
    return schema == stored_schema()


@cache
def committed_schema() -> str:
    """The schema in commits of the metadata table: records without meta columns.

    It never has the ordering value: Apache Hudi 1.2 compacts with this schema, and fails on two entries of one key if
    it has more fields than Hudi's own class.
    """
    return _text("HoodieMetadataRecord")


@lru_cache(maxsize=64)
def has_same_layout(schema: str, other: str) -> bool:
    """Whether records of the two schemas have the same bytes, even if the texts of the schemas differ."""
    return schema == other or _layout(json.loads(schema)) == _layout(json.loads(other))


def _text(name: str) -> str:
    return _encode(json.loads((files("lakebed.format") / "schemas" / f"{name}.avsc").read_text("utf-8")))


def _encode(spec: Any) -> str:
    return json.dumps(spec, separators=(",", ":"))


def _with_ordering(spec: Any) -> Any:
    (payload,) = (field for field in spec["fields"] if field["name"] == RECORD_INDEX_PAYLOAD)
    payload["type"][1]["fields"].append({"name": ORDERING_VALUE, "type": ["null", "long"], "default": None})
    return spec


def _layout(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_layout(part) for part in spec]
    if not isinstance(spec, dict):
        return spec
    kept = {name: _layout(part) for name, part in spec.items() if name not in _WITHOUT_MEANING}
    return kept["type"] if kept.keys() == {"type"} else kept


NULL = b"\x00"
SET = b"\x02"
"""The union branch that precedes a non-null value."""

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
    # A schema may be hostile: these checks prevent endless recursion and loops in the reader.
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
    """The bytes before and after the payload in a record of a kind."""
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


def decode_payloads(values: ArrowArray, schema: str, payload: str, *, path: str, required: bool = False) -> ArrowArray:
    """One payload of each record, null if a record has another; with `required`, that raises CorruptTableError."""
    with decoding(path, "the schema of metadata records"):
        if payload not in {field.name for field in parse_record(schema).fields}:
            raise CorruptTableError(f"the schema of its records has no {payload}", path=path)
    data, offsets = _bytes_and_offsets(values)
    batch = decode_datums(data, offsets[:-1], offsets[1:], schema, path=path, columns=(payload,))
    column = batch.column(0)
    if required and column.null_count:
        raise CorruptTableError(f"a record has no {payload}", path=path)
    return column


def texts(keys: ArrowArray) -> ArrowArray:
    """Keys as strings; bytes that are not UTF-8 raise an Arrow error."""
    return pc.cast(_one_array(keys), pa.string())


def field_of(struct: ArrowArray, name: str, kind: pa.DataType) -> ArrowArray:
    """A field of a struct, null where the struct is, in the type it must have; all null if it has no such field.

    A field of another type raises ValueError.
    """
    field = part_of(struct, name)
    if field is None:
        return pa.nulls(len(struct), kind)
    if field.type != kind:
        raise ValueError(f"field {name} is of type {field.type}, not {kind}")
    return field


def part_of(struct: ArrowArray, name: str) -> ArrowArray | None:
    """A field of a struct, null where the struct is; None if there is no such field, or all its values are null."""
    at = struct.type.get_field_index(name)
    if at < 0 or struct.field(at).null_count == len(struct) > 0:
        return None
    return struct.field(at) if struct.null_count == 0 else pc.struct_field(struct, [at])


def _bytes_and_offsets(values: ArrowArray) -> tuple[memoryview, ArrowArray]:
    array = _one_array(values)
    width = np.int64 if pat.is_large_binary(array.type) else np.int32
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return memoryview(data or b""), bounds if len(array) else np.zeros(1, np.int64)


def _one_array(array: ArrowArray) -> ArrowArray:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
