"""Entries of the record index: the location of each record key.

In an HFile an entry is the record key and an Avro datum, the metadata record of kind 5, with the location. In a whole
file each distinct location is decoded once. Datums are decoded here by hand: all their fields are plain, and a hostile
schema in a file then cannot misuse a general decoder.

A stored schema may add an `orderingValue` to the location: a lower bound of the ordering value of the key's row. Ours
is a nullable long after all other fields; `ordering_values` encodes and decodes many of them.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptTableError
from lakebed.format.arrow import ArrowArray
from lakebed.format.guard import decoding
from lakebed.format.hfile.arrow import all_records, key_order
from lakebed.format.hfile.layout import HFILE_BLOCK_BYTES_MAX, Codec
from lakebed.format.hfile.reader import HFile
from lakebed.format.hfile.writer import encode_hfile
from lakebed.format.metadata.datum import (
    NULL,
    ORDERING_VALUE,
    RECORD_INDEX_PAYLOAD,
    RecordKind,
    encode_datum,
    encode_optional_long,
    encode_optional_text,
    has_same_layout,
    stored_schema,
)
from lakebed.format.metadata.keys import uuid_bits
from lakebed.format.metadata.ordering_values import NO_ORDERING, head_of, join_ordering, split_ordering, without_value
from lakebed.format.varint import decode_long, encode_long
from lakebed.model.source import ByteSource, BytesSource

ORDERING_COLUMN = "ordering_value"
_UUID_AND_INDEX, _RAW_FILE_ID = 0, 1
"""Encodings of the file id of an entry."""
_NO_INDEX = -1
_HALF = (1 << 64) - 1
_PLAIN = ("string", "int", "long", "double", "float")
_FLOATS = {"double": struct.Struct("<d"), "float": struct.Struct("<f")}
_BAD_BYTES = (struct.error, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The file group that holds a record key, and the instant (epoch milliseconds) that put it there.

    `ordering` is a lower bound of the ordering value of the key's row; None if the entry has none.
    """

    partition: str
    file_id: str
    instant_ms: int
    ordering: int | None = None


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of the stored schema. `kind` is its plain Avro type, or None if only null is supported."""

    name: str
    kind: str | None
    null_branch: int | None = None
    parts: tuple[_Field, ...] = ()


def decode_record_index_value(value: bytes, schema: str, *, path: str = "<record index>") -> RecordLocation:
    """The location in one stored value, whose Avro schema is `schema`."""
    location, ordering = _decode_entry(value, schema, path)
    return replace(location, ordering=ordering) if isinstance(ordering, int) else location


def encode_record_index_value(location: RecordLocation, *, has_ordering: bool = False) -> bytes:
    """Inverse of `decode_record_index_value`, for `stored_schema` with an ordering value, or without."""
    return _encode_entry(location, encode_optional_long(location.ordering) if has_ordering else b"")


def encode_ordered_entries(location: RecordLocation, ordering: ArrowArray) -> ArrowArray:
    """Entries of one location that have these ordering values (int64, null for none), as a dictionary."""
    return join_ordering(head_of(encode_record_index_value(location, has_ordering=True)), ordering)


def decode_record_index(source: ByteSource) -> pa.RecordBatch:
    """The entries of an HFile in key order: key, partition, file_id (both dictionaries of string), instant_ms.

    If the stored schema has an ordering value, it is the fifth column, `ordering_value`.
    """
    keys, entries = decode_entries(source)
    ids, locations = pa.array(entries.ids), entries.locations
    columns: dict[str, ArrowArray] = {"key": keys}
    columns["partition"] = _spread([location.partition for location in locations], ids)
    columns["file_id"] = _spread([location.file_id for location in locations], ids)
    columns["instant_ms"] = pa.array([location.instant_ms for location in locations], pa.int64()).take(ids)
    if entries.ordering is not None:
        columns[ORDERING_COLUMN] = entries.ordering
    return pa.record_batch(columns)


@dataclass(frozen=True, slots=True)
class DecodedEntries:
    """Entries: entry i has `locations[ids[i]]`, and `ordering[i]` if the schema has ordering values of any type."""

    ids: npt.NDArray[np.int64]
    locations: list[RecordLocation]
    ordering: ArrowArray | None = None

    @property
    def ordering_numbers(self) -> npt.NDArray[np.int64] | None:
        """Ordering values as numbers, `NO_ORDERING` for none; None if no entry has a number."""
        if self.ordering is None or self.ordering.type != pa.int64() or self.ordering.null_count == len(self.ordering):
            return None
        numbers: npt.NDArray[np.int64] = pc.fill_null(self.ordering, NO_ORDERING).to_numpy(zero_copy_only=False)
        return numbers


def decode_entries(source: ByteSource) -> tuple[ArrowArray, DecodedEntries]:
    """The keys of an HFile in their order, and their entries."""
    file = HFile.open(BytesSource(source.read(0, source.size), source.path))
    records, schema = all_records(file), file.schema
    if schema is None and len(records):
        raise CorruptTableError("an HFile of the record index without a schema", path=source.path)
    entries = decode_entry_values(records["value"], schema or "", path=source.path)
    with decoding(source.path, "keys of the record index"):
        keys = records["key"]
        keys = keys.cast(pa.large_string() if pa.types.is_large_binary(keys.type) else pa.string())
    return keys, entries


def decode_entry_values(values: ArrowArray, schema: str, *, path: str) -> DecodedEntries:
    """The entries in stored values (binary, or a dictionary of it), whose Avro schema is `schema`."""
    if pa.types.is_dictionary(values.type):
        distinct = decode_entry_values(values.dictionary, schema, path=path)
        ids = values.indices.to_numpy()
        ordering = None if distinct.ordering is None else distinct.ordering.take(values.indices)
        return DecodedEntries(distinct.ids[ids], distinct.locations, ordering)
    split = _decode_split(values, schema, path)
    if split is not None:
        return split
    entries = [_decode_entry(value, schema, path) for value in values.to_pylist()]
    kind = _ordering_kind(schema)
    return DecodedEntries(
        np.arange(len(entries)),
        [location for location, _ in entries],
        None if kind is None else pa.array([ordering for _, ordering in entries], kind),
    )


def _decode_split(values: ArrowArray, schema: str, path: str) -> DecodedEntries | None:
    """Entries that end with an ordering value: each distinct location is decoded once."""
    if not len(values) or not _ends_with_ordering(schema):
        return None
    split = split_ordering(values)
    if split is None:
        return None
    try:
        locations = [_decode_entry(without_value(head), schema, path)[0] for head in split.heads]
    except CorruptTableError:
        return None  # Split at the wrong position, or malformed: decoding entries one by one tells which.
    return DecodedEntries(split.ids, locations, pa.array(split.ordering, mask=split.ordering == NO_ORDERING))


def encode_record_index(
    entries: pa.RecordBatch,
    *,
    schema: str,
    created_ms: int,
    base_file: bool,
    codec: Codec = "gzip",
    block_bytes_max: int = HFILE_BLOCK_BYTES_MAX,
    bloom: bytes | None = None,
) -> bytes:
    """Inverse of `decode_record_index`, in any order of rows: the HFile of entries whose keys are unique.

    `schema` is the stored Avro schema, of table versions 8 or 9. If it has an ordering value, it must be a nullable
    long, and is taken from the column `ordering_value`.
    """
    ordering = _ordering_field(schema)
    assert ordering is None or (ordering.kind, ordering.null_branch) == ("long", 0), ordering
    return encode_hfile(
        entries["key"],
        encode_record_index_values(entries, has_ordering=ordering is not None),
        schema=schema,
        created_ms=created_ms,
        base_file=base_file,
        codec=codec,
        block_bytes_max=block_bytes_max,
        bloom=bloom,
        order=key_order(entries["key"]),
    )


def encode_record_index_values(entries: pa.RecordBatch, *, has_ordering: bool = False) -> ArrowArray:
    """The stored values of entries, as a dictionary: each distinct location is encoded once."""
    columns = [entries["partition"], entries["file_id"], entries["instant_ms"]]
    assert all(column.null_count == 0 for column in columns)
    columns += [entries[ORDERING_COLUMN]] if has_ordering else []
    ids, distinct = _number_rows(columns)
    values = [
        _encode_entry(RecordLocation(*fields[:3]), encode_optional_long(fields[3]) if has_ordering else b"")
        for fields in zip(*(column.to_pylist() for column in distinct), strict=True)
    ]
    return pa.DictionaryArray.from_arrays(ids, pa.array(values, pa.binary()))


def _spread(distinct: list[str], ids: ArrowArray) -> ArrowArray:
    """A dictionary array of texts, selected by `ids`."""
    encoded = pa.array(distinct, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(ids), encoded.dictionary)


def _number_rows(columns: list[ArrowArray]) -> tuple[ArrowArray, list[ArrowArray]]:
    """Numbers rows so that equal rows have equal numbers; returns the numbers, and the columns of the distinct rows."""
    ids, count = np.zeros(len(columns[0]), np.int64), min(len(columns[0]), 1)
    distinct: list[ArrowArray] = []
    for column in columns:
        is_encoded = pa.types.is_dictionary(column.type)
        encoded = column if is_encoded else column.dictionary_encode(null_encoding="encode")
        size, kept = max(len(encoded.dictionary), 1), np.arange(count)
        if size > 1:
            ids, kept = _renumber(ids * size + encoded.indices.to_numpy(), count * size)
        distinct = [earlier.take(pa.array(kept // size)) for earlier in distinct]
        distinct.append(encoded.dictionary.take(pa.array(kept % size)))
        count = len(kept)
    return pa.array(ids.astype(np.int32)), distinct


def _renumber(numbers: npt.NDArray[np.int64], bound: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Renumbers `numbers`, all below `bound`, by the distinct ones; returns the new numbers and the distinct ones."""
    if bound > len(numbers):
        encoded = pa.array(numbers).dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_numpy()
    occurs = np.bincount(numbers, minlength=bound) > 0
    return (np.cumsum(occurs) - 1).take(numbers), np.flatnonzero(occurs)


def _encode_entry(location: RecordLocation, after: bytes) -> bytes:
    """The datum of a location, with the bytes of fields `after` those of table version 9."""
    bits = uuid_bits(location.file_id)
    high, low, index = bits or (-1, -1, -1)
    payload = (
        encode_optional_text(location.partition),
        encode_optional_long(high),
        encode_optional_long(low),
        encode_optional_long(index),
        encode_optional_text("" if bits else location.file_id),
        encode_optional_long(location.instant_ms),
        encode_long(_UUID_AND_INDEX if bits else _RAW_FILE_ID),
        NULL,  # The position in the file, which no writer sets.
        after,
    )
    return encode_datum(RecordKind.RECORD_INDEX, b"".join(payload))


def _decode_entry(value: bytes, schema: str, path: str) -> tuple[RecordLocation, Any]:
    """Location and ordering value (None if there is none) of a stored value."""
    try:
        return _decode_fields(value, schema)
    except _BAD_BYTES as error:
        raise CorruptTableError(f"a record index entry cannot be decoded ({error})", path=path) from error


@lru_cache(maxsize=1024)
def _decode_fields(value: bytes, schema: str) -> tuple[RecordLocation, Any]:
    """As `_decode_entry`. Cached: the shards of an index have the same few values."""
    location, at = None, 0
    for field in _schema_fields(schema):
        entry, at = _decode_field(value, at, field)
        location = entry if field.name == RECORD_INDEX_PAYLOAD else location
    if at != len(value):
        raise ValueError(f"{len(value) - at} bytes too many")
    if location is None:
        raise ValueError("not an entry of the record index")
    partition, instant_ms = location["partitionName"] or "", _number(location["instantTime"])
    return RecordLocation(partition, _file_id(location), instant_ms), location.get(ORDERING_VALUE)


def _file_id(location: dict[str, Any]) -> str:
    if location.get("fileIdEncoding", _UUID_AND_INDEX) == _RAW_FILE_ID:
        raw = location["fileId"]
        if not isinstance(raw, str):
            raise ValueError("no file id")
        return raw
    high, low = _number(location["fileIdHighBits"]), _number(location["fileIdLowBits"])
    uuid, index = UUID(int=(high & _HALF) << 64 | low & _HALF), _number(location["fileIndex"])
    return str(uuid) if index == _NO_INDEX else f"{uuid}-{index}"


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a number")
    return value


@lru_cache(maxsize=64)
def _schema_fields(schema: str) -> tuple[_Field, ...]:
    return tuple(_field(spec["name"], spec["type"]) for spec in json.loads(schema)["fields"])


def _ordering_field(schema: str | None) -> _Field | None:
    """The ordering value in the stored schema, if it has one."""
    try:
        fields = _schema_fields(schema) if schema else ()
    except _BAD_BYTES:
        return None
    parts = (part for field in fields if field.name == RECORD_INDEX_PAYLOAD for part in field.parts)
    return next((part for part in parts if part.name == ORDERING_VALUE), None)


def _ordering_kind(schema: str) -> pa.DataType | None:
    """The Arrow type of the ordering values in the stored schema, if it has any."""
    field = _ordering_field(schema)
    if field is None or field.kind is None:
        return None
    return {"string": pa.string(), "double": pa.float64(), "float": pa.float64()}.get(field.kind, pa.int64())


def _ends_with_ordering(schema: str) -> bool:
    """Whether entries of the schema have the layout that lakebed writes for entries with an ordering value."""
    try:
        return has_same_layout(schema, stored_schema(has_ordering=True))
    except _BAD_BYTES:
        return False


def _field(name: str, spec: Any) -> _Field:
    null_branch = None
    if isinstance(spec, list):
        null_branch = spec.index("null")
        spec = spec[1 - null_branch] if len(spec) == 2 else None
    if isinstance(spec, dict):
        if name == RECORD_INDEX_PAYLOAD and null_branch is not None:
            parts = tuple(_field(part["name"], part["type"]) for part in spec["fields"])
            return _Field(name, "record", null_branch, parts)
        spec = spec["type"]
    return _Field(name, spec if spec in _PLAIN else None, null_branch)


def _decode_field(data: bytes, at: int, field: _Field) -> tuple[Any, int]:
    """The value of a field (None for null) and where the next begins."""
    if field.null_branch is not None:
        branch, at = decode_long(data, at)
        if branch == field.null_branch:
            return None, at
        if branch != 1 - field.null_branch:
            raise ValueError(f"{field.name} has no branch {branch}")
    if field.kind is None:
        raise ValueError(f"{field.name} is set")
    if field.kind != "record":
        return _decode_plain(data, at, field.kind)
    values = {}
    for part in field.parts:
        values[part.name], at = _decode_field(data, at, part)
    return values, at


def _decode_plain(data: bytes, at: int, kind: str) -> tuple[Any, int]:
    if kind in _FLOATS:
        (number,) = _FLOATS[kind].unpack_from(data, at)
        return number, at + _FLOATS[kind].size
    number, at = decode_long(data, at)
    if kind != "string":
        return number, at
    if not 0 <= number <= len(data) - at:
        raise ValueError(f"a text of {number} bytes")
    return data[at : at + number].decode(), at + number
