from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed.format
from hfiles import real_hfiles
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.hfile import HFile, encode_hfile
from lakebed.format.metadata.record_index import (
    RecordLocation,
    decode_record_index,
    decode_record_index_value,
    encode_record_index,
    encode_record_index_value,
    encode_record_index_values,
)
from lakebed.model.source import BytesSource

PATH = "record_index/.record-index-0000-0_1.log.1_0-0-0"
STORED = Path(lakebed.format.__file__).parent / "schemas" / "HoodieMetadataRecord.as-stored.avsc"
SCHEMA = STORED.read_text()
UUIDS = st.uuids().map(str)
FILE_IDS = UUIDS | st.tuples(UUIDS, st.integers(0, 2**31 - 1)).map(lambda parts: f"{parts[0]}-{parts[1]}") | st.text()
LOCATIONS = st.builds(RecordLocation, st.text(), FILE_IDS, st.integers(-(2**63), 2**63 - 1))


def with_ordering(kind: Any) -> str:
    """The stored schema with an ordering value at the end of the location."""
    schema = json.loads(SCHEMA)
    payload = next(field for field in schema["fields"] if field["name"] == "recordIndexMetadata")
    payload["type"][1]["fields"].append({"name": "orderingValue", "type": ["null", kind], "default": None})
    return json.dumps(schema)


def batch(entries: dict[str, RecordLocation], ordering: list[Any] | None = None) -> pa.RecordBatch:
    columns = {
        "key": pa.array(list(entries), pa.string()),
        "partition": pa.array([each.partition for each in entries.values()], pa.string()),
        "file_id": pa.array([each.file_id for each in entries.values()], pa.string()),
        "instant_ms": pa.array([each.instant_ms for each in entries.values()], pa.int64()),
    }
    if ordering is not None:
        columns["ordering_value"] = pa.array(ordering, pa.int64())
    return pa.record_batch(columns)


def encoded(entries: pa.RecordBatch, schema: str = SCHEMA) -> bytes:
    return encode_record_index(entries, schema=schema, created_ms=1, base_file=True)


def by_key(entries: pa.RecordBatch) -> dict[str, RecordLocation]:
    columns = (entries[name].to_pylist() for name in ("key", "partition", "file_id", "instant_ms"))
    return {key: RecordLocation(*location) for key, *location in zip(*columns, strict=True)}


def real_record_indexes() -> dict[str, bytes]:
    return {path: data for path, data in real_hfiles().items() if "/metadata/record_index/" in path}


def file_id_of(payload: dict[str, Any]) -> str:
    halves = (payload[name] % 2**64 for name in ("fileIdHighBits", "fileIdLowBits"))
    digits = "".join(f"{half:016x}" for half in halves)
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return f"{uuid}-{payload['fileIndex']}"


def test_real_entries_agree_with_fastavro():
    indexes = real_record_indexes()
    assert {path.split("_")[0] for path in indexes} >= {"hudi102", "hudi111", "hudi120"}
    for path, data in indexes.items():
        source = BytesSource(data, path)
        file = HFile.open(source)
        schema = fastavro.parse_schema(json.loads(file.schema or ""))
        expected = {}
        for key, value in file.items():
            payload = fastavro.schemaless_reader(io.BytesIO(value), schema, None)["recordIndexMetadata"]
            assert payload["fileIdEncoding"] == 0
            expected[key.decode()] = location = RecordLocation(
                payload["partitionName"], file_id_of(payload), payload["instantTime"]
            )
            assert decode_record_index_value(value, file.schema or "", path=path) == location
        assert by_key(decode_record_index(source)) == expected


def test_real_files_come_out_byte_for_byte():
    """All that Hudi 1.1 and 1.2 wrote, but for compacted base files, whose values name the file they are in."""
    count = 0
    for path, data in real_record_indexes().items():
        file = HFile.open(BytesSource(data, path))
        is_compacted = any(value[4] for _, value in file.items())
        if path.startswith(("hudi111", "hudi120")) and not is_compacted:
            count += 1
            again = encode_record_index(
                decode_record_index(BytesSource(data, path)),
                schema=file.schema or "",
                created_ms=int.from_bytes(file.file_info["hfile.CREATE_TIME_TS"], "big"),
                base_file="minRecordKey" in file.file_info,
                bloom=file.meta_block("bloomFilter"),
            )
            assert again == data, path
    assert count > 100


def test_a_location_of_the_format_notes():
    location = RecordLocation("eu", "9e1ff7e7-7578-4c65-9921-704ef5274d85-0", 1794786930634)
    value = encode_record_index_value(location)
    payload = fastavro.schemaless_reader(io.BytesIO(value), fastavro.parse_schema(json.loads(SCHEMA)), None)
    assert payload["type"] == 5
    assert payload["recordIndexMetadata"] == {
        "partitionName": "eu",
        "fileIdHighBits": -7052645917958583195,
        "fileIdLowBits": -7412520027252372091,
        "fileIndex": 0,
        "fileId": "",
        "instantTime": 1794786930634,
        "fileIdEncoding": 0,
        "position": None,
    }
    assert decode_record_index_value(value, SCHEMA) == location


@settings(max_examples=100, deadline=None)
@given(LOCATIONS)
def test_value_round_trip(location: RecordLocation):
    assert decode_record_index_value(encode_record_index_value(location), SCHEMA) == location


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), LOCATIONS), st.booleans())
def test_batch_round_trip(entries: dict[str, RecordLocation], dictionaries: bool):
    given_batch = batch(entries)
    if dictionaries:
        names = ("partition", "file_id")
        columns = {name: given_batch[name] for name in given_batch.schema.names}
        given_batch = pa.record_batch({**columns, **{name: columns[name].dictionary_encode() for name in names}})
    decoded = decode_record_index(BytesSource(encoded(given_batch)))
    assert by_key(decoded) == entries
    assert decoded["key"].to_pylist() == sorted(entries, key=str.encode)
    assert decoded.schema.field("partition").type == pa.dictionary(pa.int32(), pa.string())
    assert decoded.schema.field("file_id").type == pa.dictionary(pa.int32(), pa.string())


def test_a_large_file():
    locations = [RecordLocation(f"p{at % 3}", f"file-{at}", 1000 + at % 2) for at in range(12)]
    entries = {f"key-{at * 7919 % 20_000:06}": locations[at % 12] for at in range(20_000)}
    assert by_key(decode_record_index(BytesSource(encoded(batch(entries))))) == entries


@pytest.mark.parametrize("count", [2, 500])
def test_a_location_is_encoded_once_and_only_if_a_row_has_it(count: int):
    """With more combinations than rows, and with fewer."""
    locations = [RecordLocation(f"p{at % 2}", f"file-{at % 2 + 7}", 5) for at in range(count)]
    ids = pa.array([at % 2 for at in range(count)], pa.int32())
    columns = {
        "partition": pa.DictionaryArray.from_arrays(ids, pa.array(["p0", "p1", "unused"])),
        "file_id": pa.DictionaryArray.from_arrays(pc.add(ids, 7), pa.array([f"file-{at}" for at in range(9)])),
        "instant_ms": pa.array([5] * count),
    }
    values = encode_record_index_values(pa.record_batch(columns))
    assert len(values.dictionary) == 2
    assert [decode_record_index_value(value, SCHEMA) for value in values.to_pylist()] == locations


@pytest.mark.parametrize(("kind", "arrow"), [("long", pa.int64()), ({"type": "long"}, pa.int64())])
def test_ordering_values(kind: Any, arrow: pa.DataType):
    location = RecordLocation("", "raw file id", 7)
    entries = {f"k{at}": location for at in range(5)}
    ordering = [None, 0, -1, 2**62, 5]
    decoded = decode_record_index(BytesSource(encoded(batch(entries, ordering), with_ordering(kind))))
    assert decoded["ordering_value"].to_pylist() == ordering
    assert decoded["ordering_value"].type == arrow
    assert by_key(decoded) == entries


@pytest.mark.parametrize(
    ("kind", "value", "arrow"),
    [("string", "b", pa.string()), ("double", 1.5, pa.float64()), ("float", 0.5, pa.float64()), ("int", 3, pa.int64())],
)
def test_ordering_values_of_other_types_are_read(kind: str, value: Any, arrow: pa.DataType):
    schema = with_ordering(kind)
    payload = dict.fromkeys(("fileIndex", "fileIdHighBits", "fileIdLowBits"), -1) | {
        "fileId": "f",
        "partitionName": None,
        "instantTime": 1,
        "fileIdEncoding": 1,
        "orderingValue": value,
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(json.loads(schema)), {"key": "", "type": 5, "recordIndexMetadata": payload}
    )
    values = pa.array([stream.getvalue()])
    data = encode_hfile(pa.array(["k"]), values, schema=schema, created_ms=0, base_file=False)
    decoded = decode_record_index(BytesSource(data))
    assert decoded["ordering_value"].equals(pa.array([value], arrow))
    assert by_key(decoded) == {"k": RecordLocation("", "f", 1)}


def test_an_empty_file():
    decoded = decode_record_index(BytesSource(encoded(batch({}))))
    assert decoded.num_rows == 0
    assert decoded.schema.names == ["key", "partition", "file_id", "instant_ms"]


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"fields": 3}',
        '{"fields": [{"name": "a", "type": ["long", "int"]}]}',
        '{"fields": [{"name": "recordIndexMetadata", "type": ["null", {"fields": [{"name": "x", "type": "y"}]}]}]}',
        "[" * 100_000,
    ],
)
def test_schemas_that_make_no_sense(schema: str):
    value = encode_record_index_value(RecordLocation("", "f", 1))
    with pytest.raises(CorruptTableError):
        decode_record_index_value(value, schema, path=PATH)


def test_values_of_another_kind_are_refused():
    with pytest.raises(CorruptTableError, match="not an entry of the record index"):
        decode_record_index_value(bytes.fromhex("0000000000000e0000000000"), SCHEMA, path=PATH)
    with pytest.raises(CorruptTableError, match="SecondaryIndexMetadata is set"):
        decode_record_index_value(bytes.fromhex("0000000000000e000000000200"), SCHEMA, path=PATH)


def test_hostile_values():
    value = encode_record_index_value(RecordLocation("region=eu", "9e1ff7e7-7578-4c65-9921-704ef5274d85-0", 1))
    inputs = [*mutations(value, seed=1, count=1500), *truncations(value), b"\xff" * 100_000]

    def decode(data: bytes) -> None:
        decode_record_index_value(data, SCHEMA, path=PATH)

    assert check_decoder(decode, iter(inputs), path=PATH) > len(value)


def test_hostile_files():
    good = encoded(batch({f"k{at}": RecordLocation("p", f"f{at % 3}", at) for at in range(20)}))

    def decode(data: bytes) -> None:
        decode_record_index(BytesSource(data, PATH)).validate(full=True)

    body = (data + good[-4096:] for data in mutations(good[:-4096], seed=7, count=300))
    assert check_decoder(decode, body, path=PATH) > 0


def test_keys_that_are_no_text_and_files_without_a_schema():
    value = pa.array([encode_record_index_value(RecordLocation("", "f", 1))])
    for key, schema in ((b"\xff", SCHEMA), (b"k", "")):
        data = encode_hfile(pa.array([key]), value, schema=schema, created_ms=0, base_file=False)
        with pytest.raises(CorruptTableError):
            decode_record_index(BytesSource(data, PATH))
