from __future__ import annotations

import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed.format
from conftest import RealTable
from hostile import check_decoder, mutations
from lakebed.errors import CorruptTableError
from lakebed.format.metadata import records
from lakebed.format.metadata.datum import RecordKind, decode_datum, encode_optional_text
from lakebed.format.metadata.record_index import RecordLocation
from lakebed.format.metadata.records import (
    MetadataRecord,
    decode_bloom_record,
    decode_bloom_records,
    decode_files,
    decode_metadata_record,
    decode_secondary_records,
    encode_bloom_record,
    encode_column_stats_record,
    encode_files_record,
    encode_record_index_record,
    encode_secondary_record,
    merge_file_entries,
    merge_files,
)
from lakebed.model.metadata import BloomRecord, ColumnStats, FileEntry, SecondaryRecord
from metadata_rows import StoredFile, by_schema, stored_files

PATH = "files-0000-0_0-1-2_00000000000000000.hfile"
AS_STORED = (Path(lakebed.format.__file__).parent / "schemas" / "HoodieMetadataRecord.as-stored.avsc").read_text()
UUID = "9e1ff7e7-7578-4c65-9921-704ef5274d85"


def test_list_of_partitions_as_hudi_writes_it() -> None:
    datum = "0000000000 00 02 02 04 04 6575 00 00 04 7573 00 00 00 00 00 00 00"
    entries = {"eu": FileEntry(0), "us": FileEntry(0)}
    assert encode_files_record(entries, kind=RecordKind.ALL_PARTITIONS) == bytes.fromhex(datum)
    record = decode_metadata_record(bytes.fromhex(datum), AS_STORED, path=PATH)
    assert record == MetadataRecord(RecordKind.ALL_PARTITIONS, entries)


def test_secondary_index_entry_as_hudi_writes_it() -> None:
    datum = bytes.fromhex("0000000000 00 0e 00 00 00 00 02 00")
    assert encode_secondary_record() == datum
    assert decode_metadata_record(datum, AS_STORED, path=PATH).payload == SecondaryRecord()
    assert decode_metadata_record(encode_secondary_record(is_deleted=True), AS_STORED, path=PATH).payload == (
        SecondaryRecord(is_deleted=True)
    )


@pytest.mark.parametrize("file_id", [f"{UUID}-0", f"{UUID}-7", UUID, "bucket-1", ""])
def test_record_index_entries_round_trip(file_id: str) -> None:
    location = RecordLocation("eu", file_id, 1794786930634)
    record = decode_metadata_record(encode_record_index_record(location), AS_STORED, path=PATH)
    assert record == MetadataRecord(RecordKind.RECORD_INDEX, location)


def _encode(record: MetadataRecord, version: str) -> bytes:
    payload = record.payload
    match payload:
        case BloomRecord():
            return encode_bloom_record(payload)
        case ColumnStats():
            is_partition = record.kind is RecordKind.PARTITION_STATS
            return encode_column_stats_record(payload, version=version, partition_stats=is_partition)
        case RecordLocation():
            return encode_record_index_record(payload)
        case SecondaryRecord():
            return encode_secondary_record(is_deleted=payload.is_deleted)
        case _:
            return encode_files_record(payload, kind=record.kind)


def _as_written(value: bytes, file: StoredFile) -> bytes:
    """`value` without the file name that compaction adds."""
    name = encode_optional_text(decode_datum(value, file.schema, path=str(file))["_hoodie_file_name"])
    return bytes(5) + value[4 + len(name) :]


def test_real_records_are_encoded_byte_for_byte() -> None:
    kinds = set()
    for file in stored_files():
        is_v9 = "valueType" in file.schema
        for _, value in file.records:
            record = decode_metadata_record(value, file.schema, path=str(file))
            again = _encode(record, "V2" if is_v9 else "V1")
            if is_v9:
                assert again == _as_written(value, file), file
                kinds.add(record.kind)
            else:  # Other releases' schemas have fewer fields.
                assert decode_metadata_record(again, AS_STORED, path=PATH) == record, file
    assert kinds == set(RecordKind)


def test_the_schema_is_the_stored_one() -> None:
    stored = [file for file in stored_files() if file.table.startswith(("hudi111", "hudi120"))]
    assert stored
    assert {_text_of(json.loads(schema)) for schema in {file.schema for file in stored}} == {
        _text_of(json.loads(AS_STORED))
    }


def _text_of(spec: object) -> str:
    if isinstance(spec, dict):
        return str({name: _text_of(part) for name, part in sorted(spec.items()) if name != "doc"})
    return str([_text_of(part) for part in spec]) if isinstance(spec, list) else repr(spec)


def test_unknown_kinds_and_missing_payloads() -> None:
    for datum in ("000000000000120000000000", "000000000000080000000000", "0000000000000e0000000000"):
        with pytest.raises(CorruptTableError, match=PATH):
            decode_metadata_record(bytes.fromhex(datum), AS_STORED, path=PATH)
    assert decode_metadata_record(bytes.fromhex("000000000000040000000000"), AS_STORED, path=PATH).payload == {}


def test_bloom_records() -> None:
    bloom = BloomRecord("DYNAMIC_V0", "20261115235530634", b"AAAA")
    value = encode_bloom_record(bloom)
    assert decode_bloom_record(value, AS_STORED, path=PATH) == bloom
    table = decode_bloom_records(pa.array([b"k"]), pa.array([value]), AS_STORED, path=PATH)
    assert table.to_pylist() == [
        {"key": "k", "type_code": "DYNAMIC_V0", "timestamp": bloom.timestamp, "bloom": b"AAAA", "is_deleted": False}
    ]
    with pytest.raises(CorruptTableError, match="SECONDARY_INDEX"):
        decode_bloom_record(encode_secondary_record(), AS_STORED, path=PATH)


def _decoded_as_columns(file: StoredFile) -> pa.Table:
    """As where files are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_FEW_BYTES", -1)
        return decode_files(file.keys, file.values, file.schema, path=str(file))


def test_columns_say_what_single_records_say() -> None:
    for file in by_schema("files"):
        table = decode_files(file.keys, file.values, file.schema, path=str(file))
        assert _decoded_as_columns(file) == table
        rows = table.to_pylist()
        expected = [
            {"partition": partition, "name": name, "size": entry.size, "is_deleted": entry.is_deleted}
            for key, value in file.records
            for partition in ["" if key == b"." else key.decode()]
            if partition != "__all_partitions__"
            for name, entry in decode_metadata_record(value, file.schema, path=str(file)).payload.items()
        ]
        assert rows == expected, file
    for file in by_schema("secondary_index"):
        rows = decode_secondary_records(file.keys, file.values, file.schema, path=str(file)).to_pylist()
        assert rows == [{"key": key.decode(), "is_deleted": False} for key, _ in file.records]
    for file in by_schema("bloom_filters"):
        table = decode_bloom_records(file.keys, file.values, file.schema, path=str(file))
        for row, (_, value) in zip(table.to_pylist(), file.records, strict=True):
            record = decode_bloom_record(value, file.schema, path=str(file))
            assert list(row.values())[1:] == [record.type_code, record.timestamp, record.bloom, record.is_deleted]


def test_columns_of_odd_arrays() -> None:
    value = encode_files_record({"a": FileEntry(1), "b": FileEntry(2, is_deleted=True)})
    sliced = pa.array([b"junk", value, value])[1:]
    keys = pa.array(["x", "eu", "."])[1:]
    for values in (sliced, sliced.cast(pa.large_binary()), pa.chunked_array([sliced[:1], sliced[1:]])):
        table = decode_files(keys, values, AS_STORED, path=PATH)
        assert table["partition"].to_pylist() == ["eu", "eu", "", ""]
        assert table["name"].to_pylist() == ["a", "b", "a", "b"]
    assert decode_files(pa.array([], pa.binary()), pa.array([], pa.binary()), AS_STORED, path=PATH).num_rows == 0
    empty = encode_files_record({})
    assert decode_files(pa.array(["eu"]), pa.array([empty]), AS_STORED, path=PATH).num_rows == 0


def test_columns_of_other_kinds_are_refused() -> None:
    other = pa.array([encode_files_record({})])
    for decode in (decode_bloom_records, decode_secondary_records):
        with pytest.raises(CorruptTableError, match=PATH):
            decode(pa.array(["k"]), other, AS_STORED, path=PATH)
        with pytest.raises(CorruptTableError, match=PATH):
            decode(pa.array(["k"]), other, '{"type": "record", "name": "r", "fields": []}', path=PATH)
    with pytest.raises(CorruptTableError, match=PATH):
        decode_files(pa.array([b"\xff"]), pa.array([encode_files_record({"a": FileEntry(1)})]), AS_STORED, path=PATH)


entries = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(FileEntry, st.integers(0, 2**63 - 1), st.booleans()), max_size=6
)


@settings(max_examples=40)
@given(entries)
def test_file_lists_are_avro(files: dict[str, FileEntry]) -> None:
    value = encode_files_record(files)
    schema = fastavro.parse_schema(json.loads(AS_STORED))
    datum = fastavro.schemaless_reader(io.BytesIO(value), schema)
    assert datum["filesystemMetadata"] == {
        name: {"size": entry.size, "isDeleted": entry.is_deleted} for name, entry in files.items()
    }
    assert decode_metadata_record(value, AS_STORED, path=PATH).payload == files


@pytest.mark.parametrize(
    ("older", "newer", "merged"),
    [
        (None, FileEntry(5), FileEntry(5)),
        (FileEntry(5), None, FileEntry(5)),
        (FileEntry(5), FileEntry(7), FileEntry(7)),
        (FileEntry(7), FileEntry(5), FileEntry(7)),
        (FileEntry(5), FileEntry(0, True), None),
        (None, FileEntry(0, True), FileEntry(0, True)),
        (FileEntry(0, True), FileEntry(0, True), FileEntry(0, True)),
        (FileEntry(0, True), FileEntry(5), FileEntry(5)),
    ],
)
def test_merge_of_two_entries(older: FileEntry | None, newer: FileEntry | None, merged: FileEntry | None) -> None:
    def of(entry: FileEntry | None) -> dict[str, FileEntry]:
        return {} if entry is None else {"f": entry}

    assert merge_files(of(older), of(newer)) == of(merged)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from(["", "eu"]), entries), max_size=8))
def test_merge_of_all_entries_is_the_merge_one_by_one(records: list[tuple[str, dict[str, FileEntry]]]) -> None:
    merged: dict[str, dict[str, FileEntry]] = {}
    rows = []
    for partition, files in records:
        merged[partition] = merge_files(merged.get(partition, {}), files)
        rows += [(partition, name, entry.size, entry.is_deleted) for name, entry in files.items()]
    schema = pa.schema(
        [("partition", pa.string()), ("name", pa.string()), ("size", pa.int64()), ("is_deleted", pa.bool_())]
    )
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)] or [[], [], [], []], schema=schema)
    live = merge_file_entries(table)
    assert live.schema == schema
    assert {(row["partition"], row["name"]): row["size"] for row in live.to_pylist()} == {
        (partition, name): entry.size
        for partition, files in merged.items()
        for name, entry in files.items()
        if not entry.is_deleted
    }
    assert not any(live["is_deleted"].to_pylist())


@pytest.mark.parametrize("name", ["hudi111_cow_part_upsert", "hudi120_mor_part_compacted", "hudi102_cow_part_upsert"])
def test_real_listings(name: str, unpack) -> None:
    table: RealTable = unpack(name)
    files = [file for file in stored_files("files") if file.table == name]
    in_order = sorted(files, key=lambda file: file.name.split("_")[-1 if file.name.endswith(".hfile") else 1][:17])
    layers = [decode_files(file.keys, file.values, file.schema, path=str(file)) for file in in_order]
    for row in merge_file_entries(pa.concat_tables(layers)).to_pylist():
        assert (table.path / row["partition"] / row["name"]).stat().st_size == row["size"]


@pytest.mark.parametrize("prefix", ["files", "secondary_index", "bloom_filters", "column_stats", "record_index"])
def test_hostile_records(prefix: str) -> None:
    file = next(file for file in stored_files(prefix) if file.records)
    value = file.records[0][1]
    if prefix == "bloom_filters":
        value = encode_bloom_record(BloomRecord("t", "i", b"x" * 50))

    def decode(data: bytes) -> None:
        decode_metadata_record(data, file.schema, path=PATH)

    assert check_decoder(decode, mutations(value, seed=3, count=300), path=PATH) > 20


def test_hostile_columns() -> None:
    for prefix, decode in (
        ("files", decode_files),
        ("secondary_index", decode_secondary_records),
        ("bloom_filters", decode_bloom_records),
    ):
        file = next(file for file in stored_files(prefix) if file.records)

        def check(data: bytes, file=file, decode=decode) -> None:
            decode(pa.array([b"k"]), pa.array([data]), file.schema, path=PATH)

        check_decoder(check, mutations(file.records[0][1], seed=5, count=200), path=PATH)
