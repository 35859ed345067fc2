from __future__ import annotations

import base64
import datetime
import io
import json
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.resources import files
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from conftest import RealTable
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.log.blocks import (
    decode_deletes,
    decode_positions,
    decode_records,
    encode_avro_records,
    encode_deletes,
    encode_positions,
    hfile_content,
    write_parquet_records,
)
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file, encode_log_block
from lakebed.format.parquet_pages import ParquetPages
from lakebed.format.varint import encode_zigzag
from lakebed.model.source import BytesSource
from lakebed.model.words import META_COLUMNS, RECORD_KEY

PATH = "eu/.f-0_20261115235346030.log.1_0-945-2432"
AVRO = BlockKind.AVRO_DATA
ROWS = (BlockKind.AVRO_DATA, BlockKind.CDC_DATA, BlockKind.PARQUET_DATA)
SCHEMA = json.dumps({
    "type": "record", "name": "r", "namespace": "hoodie.r",
    "fields": [
        {"name": RECORD_KEY, "type": ["null", "string"], "default": None},
        {"name": "ts", "type": "long"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
})  # fmt: skip
BATCH = pa.RecordBatch.from_pydict(
    {RECORD_KEY: ["k1", None, "k3"], "ts": pa.array([1, -2, 3], pa.int64()), "price": [None, 0.5, 2.0]}
)


def block_of(content: bytes, kind: BlockKind = AVRO, header: dict[HeaderKey, str] | None = None) -> LogBlock:
    (block,) = decode_log_file(encode_log_block(kind, header or {HeaderKey.SCHEMA: SCHEMA}, content), path=PATH)
    return block


def blocks_of(table: RealTable, *kinds: BlockKind) -> Iterator[LogBlock]:
    for path in sorted(table.path.rglob(".*")):
        if ".log." in path.name or ".archive." in path.name:
            blocks = decode_log_file(path.read_bytes(), path=path.name)
            yield from (block for block in blocks if block.kind in kinds)


# Records


def test_records_of_real_tables_encode_to_the_same_bytes(real_table: RealTable) -> None:
    for block in blocks_of(real_table, *ROWS):
        table = decode_records(block, path=PATH)
        assert table.num_rows
        if block.kind is not BlockKind.PARQUET_DATA:
            (batch,) = table.combine_chunks().to_batches()
            assert encode_avro_records(batch, block.header[HeaderKey.SCHEMA]) == block.content
        positions = decode_positions(block, path=PATH)
        if positions is not None:
            assert len(positions) == table.num_rows


@pytest.mark.parametrize("name", ["hudi015_mor_part_compacted", "hudi111_mor_part_parquet_log_blocks"])
def test_records_carry_meta_columns_and_the_columns_asked_for(unpack, name: str) -> None:
    for block in blocks_of(unpack(name), AVRO, BlockKind.PARQUET_DATA):
        if HeaderKey.INSTANT_TIME in block.header and ".hoodie" not in block.header[HeaderKey.SCHEMA]:
            table = decode_records(block, path=PATH)
            assert table.column_names[:5] == list(META_COLUMNS)
            some = decode_records(block, path=PATH, columns=["ts", "no such column", RECORD_KEY])
            assert some.equals(table.select([RECORD_KEY, "ts"]))


def test_partial_update_holds_only_what_it_sets(unpack) -> None:
    table = unpack("hudi111_mor_nonpart_sql_partial_update")
    partial = [block for block in blocks_of(table, AVRO) if block.header.get(HeaderKey.IS_PARTIAL) == "true"]
    (block,) = partial
    assert decode_records(block, path=PATH).column_names == [*META_COLUMNS, "price", "ts"]


def test_cdc_records(unpack) -> None:
    blocks = list(blocks_of(unpack("hudi111_cow_part_cdc"), BlockKind.CDC_DATA))
    rows = [row for block in blocks for row in decode_records(block, path=PATH).to_pylist()]
    updated = {"id": "k001", "ts": 20, "name": "u1", "amount": 3.0, "region": "eu"}
    assert {
        "op": "u",
        "ts_ms": "20261115235408475",
        "before": {"id": "k001", "ts": 10, "name": "n1", "amount": 2.0, "region": "eu"},
        "after": updated,
    } in rows
    assert {row["op"] for row in rows} == {"u", "d"}
    assert all((row["after"] is None) == (row["op"] == "d") for row in rows)


def test_archived_timeline_of_version_6_is_avro_records(unpack) -> None:
    folder = unpack("hudi015_cow_part_clean_archive").path / ".hoodie" / "archived"
    (first, *_) = sorted(folder.glob(".commits_.archive.*"))
    blocks = decode_log_file(first.read_bytes(), path=first.name)
    tables = [decode_records(block, path=first.name, columns=["commitTime", "actionType"]) for block in blocks]
    assert "commit" in {action for table in tables for action in table["actionType"].to_pylist()}


def test_avro_round_trip() -> None:
    content = encode_avro_records(BATCH, SCHEMA)
    assert content[:8] == struct.pack(">ii", 3, 3)
    assert content[8:12] == struct.pack(">i", 6)
    table = decode_records(block_of(content), path=PATH)
    assert table.to_pylist() == BATCH.to_pylist()
    empty = encode_avro_records(BATCH.slice(0, 0), SCHEMA)
    assert empty == struct.pack(">ii", 3, 0)
    assert decode_records(block_of(empty), path=PATH).num_rows == 0


def test_avro_records_are_what_fastavro_writes() -> None:
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    expected = struct.pack(">ii", 3, 3)
    for row in BATCH.to_pylist():
        datum = io.BytesIO()
        fastavro.schemaless_writer(datum, schema, row)
        expected += struct.pack(">i", len(datum.getvalue())) + datum.getvalue()
    assert encode_avro_records(BATCH, SCHEMA) == expected


def encode_parquet_records(table: pa.Table, avro_json: str) -> memoryview:
    sink = pa.BufferOutputStream()
    write_parquet_records(sink, table, avro_json)
    return memoryview(sink.getvalue())


@pytest.mark.parametrize("places", [1, -1])
@pytest.mark.parametrize("claimed", [12_346, 1 << 26, 1 << 40])
def test_parquet_blocks_that_claim_other_rows(places: int, claimed: int) -> None:
    """In the footer alone, or everywhere: Arrow would make room for all of them, and give those that there are."""
    table = pa.table({"n": pa.array(range(12_345))})
    data = bytes(encode_parquet_records(table, "{}"))
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8].replace(encode_zigzag(12_345), encode_zigzag(claimed), places)
    forged = data[:start] + footer + struct.pack("<I4s", len(footer), b"PAR1")
    with pytest.raises(CorruptTableError):
        decode_records(block_of(forged, BlockKind.PARQUET_DATA), path=PATH)
    if places < 0:
        with pytest.raises(CorruptTableError):
            list(ParquetPages(BytesSource(forged, PATH)).read_column("n"))


def test_parquet_round_trip() -> None:
    content = encode_parquet_records(pa.Table.from_batches([BATCH]), SCHEMA)
    block = block_of(content, BlockKind.PARQUET_DATA)
    assert decode_records(block, path=PATH).to_pylist() == BATCH.to_pylist()
    assert decode_records(block, path=PATH, columns=["ts", "other"]).column_names == ["ts"]
    metadata = pa.parquet.read_metadata(pa.BufferReader(content)).metadata
    assert metadata == {b"parquet.avro.schema": SCHEMA.encode(), b"writer.model.name": b"avro"}


GOOD = bytes(encode_avro_records(BATCH, SCHEMA))
BROKEN_RECORDS = {
    "empty": b"",
    "short": GOOD[:6],
    "old version": struct.pack(">i", 2) + GOOD[4:],
    "count too large": GOOD[:4] + struct.pack(">i", 2**31 - 1) + GOOD[8:],
    "count negative": GOOD[:4] + struct.pack(">i", -1) + GOOD[8:],
    "count too small": GOOD[:4] + struct.pack(">i", 2) + GOOD[8:],
    "length too large": GOOD[:8] + struct.pack(">i", 2**31 - 1) + GOOD[12:],
    "length negative": GOOD[:8] + struct.pack(">i", -4) + GOOD[12:],
    "length too small": GOOD[:8] + struct.pack(">i", 5) + GOOD[12:],
    "cut": GOOD[:-1],
    "left over": GOOD + b"\0",
}


@pytest.mark.parametrize("content", BROKEN_RECORDS.values(), ids=BROKEN_RECORDS)
def test_broken_records_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptTableError, match=PATH) as caught:
        decode_records(block_of(content), path=PATH)
    assert caught.value.offset is not None


def test_blocks_of_another_kind_are_refused() -> None:
    for decode in (decode_records, decode_deletes, hfile_content):
        with pytest.raises(CorruptTableError, match="COMMAND block"):
            decode(block_of(b"", BlockKind.COMMAND), path=PATH)
    with pytest.raises(CorruptTableError, match="no schema"):
        decode_records(block_of(GOOD, header={HeaderKey.INSTANT_TIME: "1"}), path=PATH)
    with pytest.raises(CorruptTableError, match="schema"):
        decode_records(block_of(GOOD, header={HeaderKey.SCHEMA: "{"}), path=PATH, columns=["ts"])


def test_hfile_content_is_a_source(unpack) -> None:
    block = next(blocks_of(unpack("hudi111_cow_part_upsert"), BlockKind.HFILE_DATA))
    source = hfile_content(block, path=PATH)
    assert (source.size, source.path) == (len(block.content), PATH)
    assert source.read(0, 8) == b"DATABLK*"


# Deletes


def test_delete_of_one_key_as_the_format_page_spells_it() -> None:
    content = bytes.fromhex("00000003 0000000e 02 02 08 6b303033 02 04 6575 04 00 00")
    deletes = decode_deletes(block_of(content, BlockKind.DELETE), path=PATH)
    assert deletes.to_pylist() == [{"key": "k003", "partition": "eu", "ordering": None, "always": True}]
    assert encode_deletes(pa.array(["k003"]), pa.array(["eu"])) == content


def test_placeholder_deletes_nothing() -> None:
    content = bytes.fromhex("000000030000000100")
    deletes = decode_deletes(block_of(content, BlockKind.DELETE), path=PATH)
    assert deletes.num_rows == 0
    assert deletes.column_names == ["key", "partition", "ordering", "always"]
    assert encode_deletes(pa.array([], pa.string()), pa.array([], pa.string())) == content


@pytest.mark.parametrize("release", ["hudi015", "hudi102", "hudi111", "hudi120"])
def test_event_time_deletes(unpack, release: str) -> None:
    table = unpack(f"{release}_mor_nonpart_event_time_deletes")
    found = [decode_deletes(block, path=PATH) for block in blocks_of(table, BlockKind.DELETE)]
    with_time = [deletes for deletes in found if deletes.num_rows and not deletes["always"][0].as_py()]
    assert [deletes.to_pydict() for deletes in with_time] == [
        {"key": ["k0", "k1"], "partition": ["", ""], "ordering": [20, 5], "always": [False, False]}
    ]


def test_deletes_of_real_tables_encode_to_the_same_bytes(real_table: RealTable) -> None:
    for block in blocks_of(real_table, BlockKind.DELETE):
        deletes = decode_deletes(block, path=PATH)
        key, partition, ordering, _ = (column.combine_chunks() for column in deletes.columns)
        given_ordering = None if ordering.type == pa.null() else ordering
        assert encode_deletes(key, partition, given_ordering) == block.content
        positions = decode_positions(block, path=PATH)
        if positions is not None:
            assert len(positions) == deletes.num_rows


_SEVERAL = {"0": pa.int64(), "1": pa.string(), "2": pa.int64()}
ORDERINGS = [
    pa.array([True, None, False]),
    pa.array([7, None, -7], pa.int32()),
    pa.array([2**40, None, -1], pa.int64()),
    pa.array([1.5, None, -1.5], pa.float32()),
    pa.array([1.5, None, float("inf")], pa.float64()),
    pa.array([b"\0\xff", None, b""], pa.binary()),
    pa.array(["é", None, ""], pa.string()),
    pa.array([Decimal("1.000000000000005"), None, Decimal(-3)], pa.decimal128(30, 15)),
    pa.array([datetime.time(1, 2, 3, 4), None, datetime.time(0)], pa.time64("us")),
    pa.array([{"0": 7, "1": "x", "2": 8}, None, {"0": None, "1": "", "2": 9}], pa.struct(_SEVERAL)),
]


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda ordering: str(ordering.type))
def test_ordering_values_round_trip_in_their_type(ordering: pa.Array) -> None:
    keys = pa.array(["a", "b", "c"])
    content = encode_deletes(keys, keys, ordering)
    deletes = decode_deletes(block_of(content, BlockKind.DELETE), path=PATH)
    assert deletes["ordering"].combine_chunks().equals(ordering)
    assert deletes["always"].to_pylist() == [False, True, False]


@pytest.mark.parametrize(
    ("ordering", "stored"),
    [
        (pa.array([5], pa.int16()), {"IntWrapper": {"value": 5}}),
        (pa.array([5], pa.timestamp("us", "UTC")), {"LongWrapper": {"value": 5}}),
        (pa.array([5], pa.timestamp("ms", "UTC")), {"LongWrapper": {"value": 5}}),
        (pa.array([datetime.date(1970, 1, 6)], pa.date32()), {"IntWrapper": {"value": 5}}),
        (pa.array([Decimal("1.25")], pa.decimal128(10, 2)), {"DecimalWrapper": {"value": Decimal("1.25")}}),
    ],
)
def test_wrappers_of_other_types(ordering: pa.Array, stored: dict[str, Any]) -> None:
    content = encode_deletes(pa.array(["a"]), pa.array([""]), ordering)
    (record,) = fastavro_deletes(content)
    name, value = record["orderingVal"]
    assert {name.rpartition(".")[2]: value} == stored


def test_types_that_cannot_order_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot order"):
        encode_deletes(pa.array(["a"]), pa.array([""]), pa.array([[1]]))


def wrap(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    return f"org.apache.hudi.avro.model.{name}", {"value": value}


def wrap_many(*values: Any) -> tuple[str, dict[str, Any]]:
    return "org.apache.hudi.avro.model.ArrayWrapper", {"wrappedValues": list(values)}


@pytest.mark.parametrize(
    ("stored", "kind", "values", "always"),
    [
        ([None, wrap("IntWrapper", 0)], pa.null(), [None, None], [True, True]),
        ([wrap("IntWrapper", 0), wrap("LongWrapper", 0)], pa.int64(), [None, 0], [True, False]),
        ([wrap("IntWrapper", 5), wrap("LongWrapper", 7)], pa.int64(), [5, 7], [False, False]),
        ([wrap("DateWrapper", 1)], pa.date32(), [datetime.date(1970, 1, 2)], [False]),
        ([wrap("TimestampMicrosWrapper", 0)], pa.timestamp("us"), [datetime.datetime(1970, 1, 1)], [False]),
        (
            [wrap_many(wrap("LongWrapper", 5), wrap("StringWrapper", "x")), wrap("IntWrapper", 0)],
            pa.struct({"0": pa.int64(), "1": pa.string()}),
            [{"0": 5, "1": "x"}, None],
            [False, True],
        ),
        (
            [wrap_many(wrap("IntWrapper", 0), None), wrap_many(wrap("IntWrapper", 1), wrap("LocalDateWrapper", 0))],
            pa.struct({"0": pa.int32(), "1": pa.date32()}),
            [{"0": 0, "1": None}, {"0": 1, "1": datetime.date(1970, 1, 1)}],
            [False, False],
        ),
    ],
)
def test_stored_ordering_values(stored: list[Any], kind: pa.DataType, values: list[Any], always: list[bool]) -> None:
    deletes = decode_deletes(block_of(stored_deletes(stored), BlockKind.DELETE), path=PATH)
    assert deletes["ordering"].type == kind
    assert deletes["ordering"].to_pylist() == values
    assert deletes["always"].to_pylist() == always


@pytest.mark.parametrize(
    "stored",
    [
        [wrap("StringWrapper", "x"), wrap("LongWrapper", 7)],
        [wrap_many(wrap("LongWrapper", 5)), wrap_many(wrap("LongWrapper", 5), wrap("LongWrapper", 6))],
        [wrap_many(wrap("LongWrapper", 5)), wrap_many(wrap("StringWrapper", "x"))],
        [wrap_many(wrap("LongWrapper", 5)), wrap("LongWrapper", 5)],
    ],
)
def test_ordering_values_of_several_types_are_refused(stored: list[Any]) -> None:
    with pytest.raises(CorruptTableError, match="ordering values"):
        decode_deletes(block_of(stored_deletes(stored), BlockKind.DELETE), path=PATH)


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\3", bytes.fromhex("000000020000000100"), bytes.fromhex("000000030000000200")]
)
def test_broken_delete_lists_are_refused(content: bytes) -> None:
    with pytest.raises(CorruptTableError, match=PATH):
        decode_deletes(block_of(content, BlockKind.DELETE), path=PATH)


KEYS = st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8), st.none() | st.integers(-(2**63), 2**63 - 1)))


@settings(deadline=None)
@given(KEYS)
def test_deletes_round_trip(rows: list[tuple[str, str, int | None]]) -> None:
    keys, partitions, ordering = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    content = encode_deletes(
        pa.array(keys, pa.string()), pa.array(partitions, pa.string()), pa.array(ordering, pa.int64())
    )
    deletes = decode_deletes(block_of(content, BlockKind.DELETE), path=PATH)
    assert deletes["key"].to_pylist() == keys
    assert deletes["partition"].to_pylist() == partitions
    assert deletes["ordering"].to_pylist() == ordering
    assert deletes["always"].to_pylist() == [value is None for value in ordering]


# Positions


def with_positions(text: str, content: bytes = GOOD) -> LogBlock:
    return block_of(content, header={HeaderKey.RECORD_POSITIONS: text})


def test_positions_as_the_format_page_spells_them() -> None:
    text = "AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAEA"
    positions = decode_positions(with_positions(text), path=PATH)
    assert positions is not None
    assert positions.tolist() == [1]
    assert encode_positions(positions) == text


def test_positions_of_real_tables_encode_to_the_same_text(real_table: RealTable) -> None:
    for block in blocks_of(real_table, BlockKind.DELETE, *ROWS):
        positions = decode_positions(block, path=PATH)
        assert (positions is None) == (HeaderKey.RECORD_POSITIONS not in block.header)
        if positions is not None:
            assert (np.diff(positions) > 0).all()
            assert encode_positions(positions) == block.header[HeaderKey.RECORD_POSITIONS]
            assert HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS in block.header


@given(st.sets(st.integers(0, 2**40), max_size=30))
def test_positions_round_trip(positions: set[int]) -> None:
    text = encode_positions(np.array(sorted(positions), dtype=np.int64))
    decoded = decode_positions(with_positions(text), path=PATH)
    assert decoded is not None
    assert decoded.tolist() == sorted(positions)


def test_more_positions_than_the_block_can_hold_are_refused() -> None:
    runs = BitMap64()
    runs.add_range(0, 2**32)
    runs.run_optimize()
    text = base64.b64encode(runs.serialize()).decode()
    with pytest.raises(CorruptTableError, match="4294967296 positions"):
        decode_positions(with_positions(text), path=PATH)


def test_positions_beyond_the_rows_of_any_file_are_refused() -> None:
    text = base64.b64encode(BitMap64([2**63]).serialize()).decode()
    with pytest.raises(CorruptTableError, match="positions"):
        decode_positions(with_positions(text), path=PATH)


# Hostile bytes


def hostile_cases() -> dict[str, tuple[bytes, Callable[[bytes], object]]]:
    table = pa.Table.from_batches([BATCH])
    keys = pa.array(["k1", "k2", "k3"])
    bitmap = BitMap64([1, 2, 70_000, 2**33])
    bitmap.add_range(100, 5000)
    bitmap.run_optimize()
    many = stored_deletes([wrap_many(wrap("LongWrapper", 5), wrap("StringWrapper", "x")), None])
    rows = GOOD + bytes(10_000)
    return {
        "avro": (GOOD, lambda data: decode_records(block_of(data), path=PATH)),
        "schema": (SCHEMA.encode(), lambda data: decode_records(with_schema(data), path=PATH, columns=["ts"])),
        "parquet": (
            bytes(encode_parquet_records(table, "{}")),
            lambda data: decode_records(block_of(data, BlockKind.PARQUET_DATA), path=PATH),
        ),
        "delete": (encode_deletes(keys, keys, pa.array([5, None, 7])), decode_hostile_deletes),
        "deletes of several fields": (many, decode_hostile_deletes),
        "positions": (
            bitmap.serialize(),
            lambda data: decode_positions(with_positions(base64.b64encode(data).decode(), rows), path=PATH),
        ),
    }


def decode_hostile_deletes(data: bytes) -> pa.Table:
    # Both lengths are right, so that damage reaches the list itself.
    decode_deletes(block_of(data, BlockKind.DELETE), path=PATH)
    framed = struct.pack(">ii", 3, len(data) - 8) + data[8:]
    return decode_deletes(block_of(framed, BlockKind.DELETE), path=PATH)


def with_schema(text: bytes) -> LogBlock:
    return block_of(GOOD, header={HeaderKey.SCHEMA: text.decode("utf-8", "replace")})


@pytest.mark.parametrize("case", ["avro", "schema", "parquet", "delete", "deletes of several fields", "positions"])
def test_hostile_bytes(case: str) -> None:
    good, decode = hostile_cases()[case]
    decode(good)
    check_decoder(decode, mutations(good, seed=4, count=600), path=PATH)
    check_decoder(decode, truncations(good), path=PATH)


# Helpers


def delete_schema() -> Any:
    text = (files("lakebed.format") / "schemas" / "HoodieDeleteRecordList.avsc").read_text()
    return fastavro.parse_schema(json.loads(text))


def stored_deletes(orderings: list[Any]) -> bytes:
    records = [
        {"recordKey": f"k{row}", "partitionPath": "", "orderingVal": value} for row, value in enumerate(orderings)
    ]
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, delete_schema(), {"deleteRecordList": records})
    return struct.pack(">ii", 3, len(datum.getvalue())) + datum.getvalue()


def fastavro_deletes(content: bytes) -> list[dict[str, Any]]:
    decoded = fastavro.schemaless_reader(io.BytesIO(content[8:]), delete_schema(), None, return_record_name=True)
    return decoded["deleteRecordList"]
