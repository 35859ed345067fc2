from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.metadata.datum import (
    RecordKind,
    decode_datum,
    encode_bytes,
    encode_datum,
    encode_double,
    encode_float,
    encode_optional_text,
)
from lakebed.format.varint import encode_long
from metadata_rows import by_schema, stored_files

PATH = "files-0000-0_0-1-2_00000000000000000.hfile"


def _avro(kind: str, value: object) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(kind), value)
    return stream.getvalue()


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300), st.floats(width=32), st.floats())
def test_primitives_are_avro(number: int, data: bytes, single: float, double: float) -> None:
    assert encode_long(number) == _avro("long", number)
    assert encode_bytes(data) == _avro("bytes", data)
    assert encode_float(single) == _avro("float", single)
    assert encode_double(double) == struct.pack("<d", double)


@pytest.mark.parametrize(
    ("kind", "datum"),
    [
        (RecordKind.ALL_PARTITIONS, "0000000000 00 02 02 aa 00 00 00 00"),
        (RecordKind.BLOOM_FILTERS, "0000000000 00 08 00 02 aa 00 00 00"),
        (RecordKind.COLUMN_STATS, "0000000000 00 06 00 00 02 aa 00 00"),
        (RecordKind.RECORD_INDEX, "0000000000 00 0a 00 00 00 02 aa 00"),
        (RecordKind.PARTITION_STATS, "0000000000 00 0c 00 00 02 aa 00 00"),
        (RecordKind.SECONDARY_INDEX, "0000000000 00 0e 00 00 00 00 02 aa"),
    ],
)
def test_the_place_of_each_payload(kind: RecordKind, datum: str) -> None:
    assert encode_datum(kind, b"\xaa") == bytes.fromhex(datum)


def test_the_same_as_fastavro_on_real_records() -> None:
    for file in by_schema(""):
        schema = fastavro.parse_schema(json.loads(file.schema))
        for _, value in file.records[::9]:
            datum = decode_datum(value, file.schema, path=str(file))
            known = fastavro.schemaless_reader(io.BytesIO(value), schema)
            assert {name: datum[name] is None for name in datum} == {name: known[name] is None for name in known}


def test_bytes_after_the_record_are_refused() -> None:
    file = stored_files("files")[0]
    with pytest.raises(CorruptTableError, match="1 bytes early"):
        decode_datum(file.records[0][1] + b"\0", file.schema, path=PATH)


SCHEMA = '{"type": "record", "name": "r", "fields": [%s]}'


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{}",
        "[]",
        '"string"',
        SCHEMA % '{"name": "a", "type": "r"}',
        SCHEMA % '{"name": "a", "type": {"type": "array", "items": "null"}}',
        SCHEMA % '{"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "e", "fields": []}}}',
        SCHEMA % '{"name": "a", "type": "nothing"}',
        SCHEMA % '{"name": "1 a", "type": "int"}',
        "[" * 100_000,
    ],
)
def test_unsound_schemas_are_refused(schema: str) -> None:
    many = encode_long(2**40) + encode_long(0)
    with pytest.raises(CorruptTableError, match=PATH):
        decode_datum(many, schema, path=PATH)


@pytest.mark.parametrize("prefix", ["files", "column_stats", "record_index", "secondary_index", "bloom_filters"])
def test_hostile_bytes(prefix: str) -> None:
    file = stored_files(prefix)[0]
    value = file.records[-1][1]
    refused = check_decoder(
        lambda data: decode_datum(data, file.schema, path=PATH), mutations(value, seed=11, count=400), path=PATH
    )
    assert refused > 50


def test_file_name_in_compacted_files() -> None:
    named = [
        decode_datum(value, file.schema, path=str(file))["_hoodie_file_name"] == file.name
        for file in stored_files("files")
        if file.name.endswith(".hfile") and "_0000000000000000" not in file.name
        for _, value in file.records
    ]
    assert any(named)
    assert encode_optional_text(None) == b"\0"
