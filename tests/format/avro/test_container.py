from __future__ import annotations

import json
from typing import Any

import pytest

from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError
from lakebed.format.avro.container import (
    AVRO_MAGIC,
    decode_container,
    decode_nested_record,
    decode_writer_schema,
    encode_container,
)
from timeline_files import timeline_files

PATH = ".hoodie/timeline/20261115235530634.clean.requested"
POINT = json.dumps({"type": "record", "name": "a.Point", "fields": [{"name": "x", "type": "long"}]})


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}


def test_the_bytes_of_a_container() -> None:
    data = encode_container({"x": 3}, POINT)
    schema = POINT.encode()
    header = AVRO_MAGIC + b"\x02" + b"\x16avro.schema" + bytes([(len(schema) << 1 & 0x7F) | 0x80, len(schema) >> 6])
    assert data.startswith(header + schema + b"\x00")
    sync, block = data[-16:], data[len(header + schema) + 1 :]
    assert block == sync + b"\x02" + b"\x02" + b"\x06" + sync
    assert decode_container(data, path=PATH) == ("Point", {"x": 3})


def test_equal_records_give_equal_bytes() -> None:
    assert encode_container({"x": 1}, POINT) == encode_container({"x": 1}, POINT)
    assert encode_container({"x": 1}, POINT)[-16:] != encode_container({"x": 2}, POINT)[-16:]


def test_metadata_blocks_with_a_byte_size() -> None:
    data = encode_container({"x": 3}, POINT)
    # The same entry in a block of -1 entries, which states its size, plus the codec that others spell out.
    start, end = len(AVRO_MAGIC), data.index(POINT.encode()) + len(POINT)
    entry = data[start + 1 : end]
    size = bytes([(len(entry) << 1 & 0x7F) | 0x80, len(entry) >> 6])
    other = AVRO_MAGIC + b"\x01" + size + entry + b"\x02\x14avro.codec\x08null" + data[end:]
    assert decode_container(other, path=PATH) == ("Point", {"x": 3})


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"",
        lambda data: b"Obj\x02" + data[4:],
        lambda data: data + b"\x00",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data.replace(b"\x02\x02\x06", b"\x04\x02\x06"),
        lambda data: data.replace(b"\x02\x02\x06", b"\x02\x04\x06\x06"),
        lambda data: data.replace(b"a.Point", b"a.Poin\xff"),
        lambda data: data.replace(b'"long"', b'"lung"'),
        lambda data: data.replace(b"avro.schema", b"avro.schema".upper()),
    ],
)
def test_broken_containers_are_refused(change: Any) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_container(change(encode_container({"x": 3}, POINT)), path=PATH)


def test_a_codec_is_refused() -> None:
    data = encode_container({"x": 3}, POINT)
    end = data.index(POINT.encode()) + len(POINT)
    deflated = data[:end] + b"\x02\x14avro.codec\x0edeflate" + data[end:]
    with pytest.raises(CorruptTableError, match="deflate"):
        decode_container(deflated, path=PATH)


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        "[" * 100_000,
        '"string"',
        json.dumps({"type": "record", "name": "R", "fields": []}),
        json.dumps({"type": "record", "name": 5, "fields": [{"name": "x", "type": "long"}]}),
        json.dumps({"type": "record", "name": "R", "fields": [{"name": "x"}]}),
        json.dumps(record("R", "null")),
        json.dumps(record("R", {"type": "array", "items": "null"})),
        json.dumps(record("R", {"type": "array", "items": {"type": "null"}})),
        json.dumps(record("R", {"type": "array", "items": record("Empty")})),
        json.dumps(record("R", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})),
        json.dumps(record("R", ["null", "R"])),
        json.dumps(record("R", {"type": "array", "items": "R"})),
        json.dumps(record("R", record("a.S", "int"), record("b.S", ["null", "S"]))),
        json.dumps(record("R", [])),
        json.dumps(record("R", "Unknown")),
        json.dumps(record("R", {"type": "record"})),
        # Forty records that each hold the one before: deep values from a flat text.
        json.dumps(record("R", record("S0", "int"), *(record(f"S{i}", ["null", f"S{i - 1}"]) for i in range(1, 40)))),
    ],
)
def test_unsafe_schemas_are_refused(schema: str) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_writer_schema(schema, path=PATH)


def test_endless_arrays_end_with_the_data() -> None:
    schema = decode_writer_schema(json.dumps(record("R", {"type": "array", "items": ["null", "int"]})), path=PATH)
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    with pytest.raises(CorruptTableError, match="at byte 7"):
        decode_nested_record(huge + b"\x00" * 100, schema, path=PATH, offset=7)


def test_hostile_bytes() -> None:
    kinds: dict[str, bytes] = {}
    for file in timeline_files():
        if file.data.startswith(AVRO_MAGIC):
            kinds.setdefault(decode_container(file.data, path=PATH)[0], file.data)
    assert len(kinds) == 13
    for seed, good in enumerate(kinds.values()):
        check_decoder(lambda data: decode_container(data, path=PATH), mutations(good, seed=seed, count=150), path=PATH)
    smallest = min(kinds.values(), key=len)
    refused = check_decoder(lambda data: decode_container(data, path=PATH), truncations(smallest), path=PATH)
    assert refused == len(smallest)
