from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import avro_reference as avro
from conftest import REAL_TABLES
from hostile import check_decoder, mutations, truncations
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.avro.columns import decode_datums, encode_datums
from lakebed.format.avro.schema import arrow_schema

FEW = settings(max_examples=60, deadline=None)


def join(datums: Sequence[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(datum) for datum in datums], dtype=np.int64)
    return b"".join(datums), ends - np.array([len(datum) for datum in datums], np.int64), ends


def decode(datums: Sequence[bytes], spec: Any, **how: Any) -> pa.RecordBatch:
    return decode_datums(*join(datums), spec if isinstance(spec, str) else json.dumps(spec), path="t/a.log", **how)


def split(data: np.ndarray, offsets: np.ndarray) -> list[bytes]:
    raw = data.tobytes()
    return [raw[start:end] for start, end in pairwise(offsets.tolist())]


def record(*types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]}


def schema_of(name: str) -> str:
    return (resources.files("lakebed.format") / "schemas" / name).read_text("utf-8")


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[Any]]:
    spec = draw(avro.records(depth=draw(st.integers(1, 3))))
    return spec, draw(st.lists(avro.values(spec), max_size=4))


Table = tuple[dict[str, Any], list[Any]]


class TestAgainstFastavro:
    @FEW
    @given(tables(), st.integers(0, 3), st.integers(0, 3))
    def test_decodes_what_fastavro_decodes_and_encodes_it_again(self, table: Table, skip: int, length: int) -> None:
        spec, rows = table
        datums = [avro.encode(spec, row) for row in rows]
        schema = fastavro.parse_schema(spec)
        read = [fastavro.schemaless_reader(io.BytesIO(datum), schema) for datum in datums]
        assert read == [avro.plain(spec, row) for row in rows]
        batch = decode(datums, spec)
        assert batch.to_pylist() == [avro.as_arrow(spec, row) for row in rows]
        assert batch.schema.equals(arrow_schema(json.dumps(spec), path="p"))
        batch.validate(full=True)
        assert split(*encode_datums(batch, json.dumps(spec))) == datums
        assert split(*encode_datums(batch.slice(skip, length), json.dumps(spec))) == datums[skip : skip + length]

    @FEW
    @given(tables(), st.integers(1, 3), st.sets(st.integers(0, 3)))
    def test_blocks_with_sizes_and_picked_columns(self, table: Table, block_items: int, picked: set[int]) -> None:
        spec, rows = table
        datums = [avro.encode(spec, row, block_items=block_items) for row in rows]
        batch = decode(datums, spec)
        assert batch.to_pylist() == [avro.as_arrow(spec, row) for row in rows]
        names = [name for index, name in enumerate(batch.schema.names) if index in picked]
        some = decode(datums, spec, columns=names[::-1])
        assert some.equals(batch.select(names))
        assert some.num_rows == len(rows)


class TestDecode:
    def test_nanoseconds(self) -> None:
        spec = record(
            {"type": "long", "logicalType": "timestamp-nanos"}, {"type": "long", "logicalType": "local-timestamp-nanos"}
        )
        batch = decode([avro.varint(5) + avro.varint(-7)], spec)
        assert batch.schema.types == [pa.timestamp("ns", "UTC"), pa.timestamp("ns")]
        assert [column.cast(pa.int64()).to_pylist() for column in batch.columns] == [[5], [-7]]

    def test_no_rows_keep_the_schema(self) -> None:
        spec = json.dumps(record(["null", "string"], {"type": "array", "items": "int"}))
        batch = decode([], spec)
        assert (batch.num_rows, batch.schema) == (0, arrow_schema(spec, path="p"))

    def test_rows_without_fields(self) -> None:
        assert decode([b"", b""], record()).num_rows == 2

    def test_any_buffer_and_any_integers(self) -> None:
        raw = memoryview(bytearray(b"xx\x02a\x02b"))
        batch = decode_datums(
            raw, np.array([2, 4], np.int32), np.array([4, 6], np.uint8), json.dumps(record("string")), path="p"
        )
        assert batch.to_pylist() == [{"f0": "a"}, {"f0": "b"}]

    def test_datums_may_lie_in_any_order_and_overlap(self) -> None:
        starts, ends = np.array([2, 0, 0]), np.array([4, 2, 2])
        batch = decode_datums(b"\x02a\x02b", starts, ends, json.dumps(record("string")), path="p")
        assert batch.column(0).to_pylist() == ["b", "a", "a"]

    def test_a_decimal_may_be_padded_with_its_sign(self) -> None:
        spec = record({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1})
        padded = [avro.varint(20) + sign * 19 + last for sign, last in ((b"\xff", b"\xf6"), (b"\0", b"\x0a"))]
        assert [str(value) for value in decode(padded, spec).column(0).to_pylist()] == ["-1.0", "1.0"]

    def test_repeated_map_keys_are_kept(self) -> None:
        spec = record({"type": "map", "values": "int"})
        assert decode([b"\x04\x02a\x02\x02a\x04\0"], spec).column(0).to_pylist() == [[("a", 1), ("a", 2)]]

    def test_one_null_among_wide_values_is_a_zero_below(self) -> None:
        inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]}
        column = decode([b"\x02\x0a", b"\0"], record(["null", inner])).column(0)
        assert (column.to_pylist(), column.field("x").null_count) == ([{"x": 5}, None], 0)


_BAD: list[tuple[str, Any, bytes, int, str]] = [
    ("nothing", "long", b"", 0, "ends within"),
    ("a cut varint", "long", b"\x80", 0, "ends within"),
    ("a long varint", "long", b"\xff" * 10, 0, "ten bytes"),
    ("a varint of 65 bits", "long", b"\x80" * 9 + b"\x02", 0, "ten bytes"),
    ("a large int", "int", avro.varint(2**31), 0, "32 bits"),
    ("a small int", "int", avro.varint(-(2**31) - 1), 0, "32 bits"),
    ("a boolean", "boolean", b"\x02", 0, "neither"),
    ("a cut double", "double", b"\0" * 7, 0, "ends within"),
    ("a long string", "string", b"\x04a", 0, "ends within"),
    ("a negative string", "string", b"\x01", 0, "negative"),
    ("an endless string", "string", avro.varint(2**63 - 1), 0, "ends within"),
    ("bytes left over", "string", b"\x02ab", 2, "left over"),
    ("a branch", ["null", "int"], b"\x04", 0, "branch"),
    ("a negative branch", ["null", "int"], b"\x01", 0, "branch"),
    ("a branch of many", ["null", "int", "long"], b"\x06", 0, "branch"),
    ("a symbol", {"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", 0, "symbol"),
    ("a cut array", {"type": "array", "items": "int"}, b"\x02\x02", 2, "ends within"),
    ("a huge array", {"type": "array", "items": "int"}, avro.varint(2**62) + b"\0", 0, "more items"),
    ("the smallest count", {"type": "array", "items": "int"}, avro.varint(-(2**63)) + b"\0\0", 0, "more items"),
    ("many nulls", {"type": "array", "items": "null"}, avro.varint(10**9) + b"\0", 0, "more items"),
    (
        "many empty records",
        {"type": "array", "items": {"type": "record", "name": "x", "fields": []}},
        avro.varint(10**6) + b"\0",
        0,
        "more",
    ),
    ("a short block", {"type": "array", "items": "int"}, b"\x03\x02\0\0\0", 4, "does not end"),
    ("a block past the end", {"type": "array", "items": "int"}, b"\x03\x7e\0\0\0", 0, "ends within"),
    ("no decimal", {"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\0", 0, "decimal"),
    (
        "a wide decimal",
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
        avro.varint(17) + b"\1" + b"\0" * 16,
        0,
        "decimal",
    ),
    (
        "a padded wide one",
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
        avro.varint(17) + b"\0\x80" + b"\0" * 15,
        0,
        "decimal",
    ),
]


class TestBadBytes:
    @pytest.mark.parametrize(
        ("kind", "data", "at", "what"), [case[1:] for case in _BAD], ids=[case[0] for case in _BAD]
    )
    def test_says_where_and_what(self, kind: Any, data: bytes, at: int, what: str) -> None:
        good = b"\x02"
        with pytest.raises(CorruptTableError, match=what) as caught:
            decode_datums(
                good + data + b"\0" * 9,
                np.array([1]),
                np.array([1 + len(data)]),
                json.dumps(record(kind)),
                path="t/a.log",
                base_offset=100,
            )
        assert (caught.value.path, caught.value.offset) == ("t/a.log", 101 + at)

    @pytest.mark.parametrize(
        ("kind", "data"),
        [
            ("string", b"\x02\xff"),
            ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x7f"),
            ({"type": "int", "logicalType": "time-millis"}, b"\x01"),
            ({"type": "map", "values": "null"}, b"\x02\x02\x80\0"),
        ],
        ids=["utf-8", "digits", "time", "key"],
    )
    def test_a_value_that_its_type_does_not_have(self, kind: Any, data: bytes) -> None:
        with pytest.raises(CorruptTableError, match=r"t/a\.log at byte 0: Avro data"):
            decode([data], record(kind))

    @pytest.mark.parametrize(("start", "end"), [(-1, 1), (0, 9), (2, 1)])
    def test_a_datum_outside_the_data(self, start: int, end: int) -> None:
        with pytest.raises(CorruptTableError, match="outside"):
            decode_datums(b"\x02a", np.array([start]), np.array([end]), json.dumps(record("string")), path="p")

    def test_names_the_field(self) -> None:
        inner = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "boolean"}]}
        with pytest.raises(CorruptTableError, match=r"datum 1, f0\[\]\.x: a boolean"):
            decode([b"\x02\1\0", b"\x02\7\0"], record({"type": "array", "items": inner}))

    def test_nulls_of_a_wide_type_do_not_fill_the_memory(self) -> None:
        spec = record(["null", {"type": "fixed", "name": "wide", "size": 2**30}])
        with pytest.raises(CorruptTableError, match="far more memory"):
            decode([b"\0"] * 100, spec)

    def test_nulls_of_many_columns_do_not_fill_the_memory(self) -> None:
        fields = [{"name": f"x{index}", "type": "long"} for index in range(20_000)]
        spec = record(["null", {"type": "record", "name": "wide", "fields": fields}])
        with pytest.raises(CorruptTableError, match="far more memory"):
            decode([b"\x02" + b"\0" * 20_000] + [b"\0"] * 10_000, spec)

    def test_every_cut_of_a_datum_is_refused(self) -> None:
        good = metadata_datums()[2]
        cuts = check_decoder(lambda data: decode([data], METADATA), truncations(good), path="t/a.log")
        assert cuts == len(good)

    @pytest.mark.parametrize("seed", range(3))
    def test_damaged_datums(self, seed: int) -> None:
        for good in metadata_datums():
            check_decoder(lambda data: decode([data], METADATA), mutations(good, seed=seed, count=150), path="t/a.log")

    @pytest.mark.parametrize("seed", range(3))
    def test_damaged_nested_datums(self, seed: int) -> None:
        check_decoder(
            lambda data: decode([data, data], NESTED), mutations(nested_datum(), seed=seed, count=400), path="t/a.log"
        )

    def test_damaged_schemas(self) -> None:
        good, datum = json.dumps(NESTED).encode(), nested_datum()

        def run(schema: bytes) -> None:
            decode([datum], schema.decode("latin1"))

        assert check_decoder(run, mutations(good, seed=5, count=500), path="t/a.log") > 100


class TestEncode:
    def test_casts_columns_to_the_schema(self) -> None:
        spec = record("int", "string", ["null", "long"], {"type": "array", "items": "long"}, "bytes")
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([1, 2], pa.int8()),
                pa.array(["x", "y"]).dictionary_encode(),
                pa.array([None, 3], pa.int32()),
                pa.array([[1], []], pa.large_list(pa.int32())),
                pa.array([b"a", b"b"], pa.large_binary()),
            ],
            names=[f"f{index}" for index in range(5)],
        )
        assert decode(split(*encode_datums(batch, json.dumps(spec))), spec).to_pylist() == batch.to_pylist()

    def test_a_missing_column_is_null(self) -> None:
        batch = pa.RecordBatch.from_pydict({"f1": [1, 2]})
        spec = record(["null", "string"], "long", ["int", "null"], "null", ["null", "int", "string"])
        assert split(*encode_datums(batch, json.dumps(spec))) == [b"\0\x02\x02\0", b"\0\x04\x02\0"]

    def test_a_column_of_nulls_needs_no_type(self) -> None:
        batch = pa.RecordBatch.from_pydict({"f0": pa.nulls(2), "f1": pa.nulls(2)})
        assert split(*encode_datums(batch, json.dumps(record(["null", "string"], "null")))) == [b"\0", b"\0"]

    def test_a_null_in_a_dictionary(self) -> None:
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["x", None]))
        batch = pa.RecordBatch.from_arrays([column], names=["f0"])
        assert split(*encode_datums(batch, json.dumps(record(["null", "string"])))) == [b"\x02\x02x", b"\0", b"\0"]

    def test_no_rows(self) -> None:
        data, offsets = encode_datums(
            pa.RecordBatch.from_pydict({"f0": pa.array([], pa.string())}), json.dumps(record("string"))
        )
        assert (data.size, offsets.tolist()) == (0, [0])

    @pytest.mark.parametrize(
        ("kind", "column", "what"),
        [
            ("string", pa.array([None], pa.string()), r"column f0 is null.*row 0"),
            ("int", pa.array([2**31]), "column f0 cannot be written as int32"),
            ("int", pa.array(["x"]), "column f0 cannot be written as int32"),
            ("null", pa.array([1]), "column f0 has values"),
            ({"type": "array", "items": "int"}, pa.array([1]), "column f0 is of type int64"),
            ({"type": "map", "values": "int"}, pa.array([1]), "column f0 is of type int64"),
            ({"type": "array", "items": "int"}, pa.array([[1, None]]), r"column f0\[\] is null"),
            ({"type": "record", "name": "x", "fields": []}, pa.array([1]), "column f0 is of type int64"),
            ({"type": "record", "name": "x", "fields": []}, pa.array([{"y": 1}]), r"column f0\.y is not in"),
            ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["B"]), "column f0 has values that enum e"),
            (["int", "string"], pa.array([{"int": 1, "string": "x"}]), "exactly one child"),
            (["int", "string"], pa.array([{"int": None}], pa.struct({"int": pa.int32()})), "exactly one child"),
            (["int", "string"], pa.array([None], pa.struct({"int": pa.int32()})), "is null"),
            (["int", "string"], pa.array([{"long": 1}]), r"column f0\.long is no branch"),
            (
                {"type": "fixed", "name": "d", "size": 1, "logicalType": "decimal", "precision": 3},
                pa.array([200], pa.decimal128(3)),
                "more bytes",
            ),
        ],
    )
    def test_rows_that_do_not_fit(self, kind: Any, column: pa.Array, what: str) -> None:
        with pytest.raises(InvalidInputError, match=what):
            encode_datums(pa.RecordBatch.from_arrays([column], names=["f0"]), json.dumps(record(kind)))

    @pytest.mark.parametrize(
        ("names", "what"), [(["f0", "f9"], "column f9 is not in"), (["f9"], "f9"), (["f0", "f0"], "twice")]
    )
    def test_columns_that_do_not_fit(self, names: list[str], what: str) -> None:
        with pytest.raises(InvalidInputError, match=what):
            encode_datums(
                pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names), json.dumps(record("int"))
            )

    def test_a_missing_column_that_may_not_be_null(self) -> None:
        with pytest.raises(InvalidInputError, match="column f1 is missing"):
            encode_datums(pa.RecordBatch.from_pydict({"f0": [1]}), json.dumps(record("int", "int")))

    def test_a_schema_that_is_not_sound(self) -> None:
        with pytest.raises(InvalidInputError, match="Avro schema"):
            encode_datums(pa.RecordBatch.from_pydict({"f0": [1]}), "{}")


DELETE_BLOCK, DATA_BLOCK = 1, 3
METADATA = schema_of("HoodieMetadataRecord.as-stored.avsc")
DELETES = schema_of("HoodieDeleteRecordList.avsc")


def metadata_datums() -> list[bytes]:
    """One record of each kind that the metadata table has."""
    statistics = {
        "fileName": "a.parquet",
        "columnName": "price",
        "minValue": ("org.apache.hudi.avro.model.LongWrapper", {"value": -3}),
        "maxValue": ("org.apache.hudi.avro.model.StringWrapper", {"value": "zz"}),
        "valueCount": 10,
        "nullCount": 1,
        "isDeleted": False,
        "isTightBound": True,
    }
    kinds: list[dict[str, Any]] = [
        {
            "type": 1,
            "filesystemMetadata": {"eu": {"size": 0, "isDeleted": False}, "us": {"size": 0, "isDeleted": False}},
        },
        {
            "type": 4,
            "BloomFilterMetadata": {"type": "SIMPLE", "timestamp": "1", "bloomFilter": b"\0\1", "isDeleted": False},
        },
        {"type": 3, "ColumnStatsMetadata": statistics},
        {
            "type": 5,
            "recordIndexMetadata": {"partitionName": "eu", "fileIdHighBits": -7052645917958583195, "fileIndex": 0},
        },
        {"type": 7, "SecondaryIndexMetadata": {"isDeleted": False}},
    ]
    schema, datums = fastavro.parse_schema(json.loads(METADATA)), []
    for kind in kinds:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, {"key": "", "filesystemMetadata": None} | kind)
        datums.append(out.getvalue())
    return datums


NESTED = record(
    {"type": "array", "items": {"type": "map", "values": ["null", "int", {"type": "array", "items": "string"}]}},
    ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}],
    {"type": "array", "items": ["null", "double"]},
    {"type": "enum", "name": "e", "symbols": ["A", "B"]},
    {"type": "array", "items": {"type": "fixed", "name": "q", "size": 2}},
)


def nested_datum() -> bytes:
    value = {
        "f0": [{"a": (1, 5), "b": (0, None)}, {"c": (2, ["x", "yy"])}],
        "f1": (0, None),
        "f2": [(1, 1.5), (0, None), (1, -2.0)],
        "f3": "B",
        "f4": [b"ab", b"cd"],
    }
    return avro.encode(NESTED, value, block_items=2)


class TestHudiSchemas:
    def test_metadata_records(self) -> None:
        datums = metadata_datums()
        batch = decode(datums, METADATA)
        assert batch["type"].to_pylist() == [1, 4, 3, 5, 7]
        assert batch["filesystemMetadata"].to_pylist()[0] == [
            ("eu", {"size": 0, "isDeleted": False}),
            ("us", {"size": 0, "isDeleted": False}),
        ]
        statistics = batch["ColumnStatsMetadata"][2].as_py()
        assert {name: value for name, value in statistics["minValue"].items() if value} == {
            "LongWrapper": {"value": -3}
        }
        assert {name: value for name, value in statistics["maxValue"].items() if value} == {
            "StringWrapper": {"value": "zz"}
        }
        assert split(*encode_datums(batch, METADATA)) == datums

    @pytest.mark.parametrize(
        ("hex_bytes", "kind"),
        [
            ("0000000000 00 02 02 04 04 6575 00 00 04 7573 00 00 00 00 00 00 00", 1),
            ("0000000000 00 0e 00 00 00 00 02 00", 7),
        ],
    )
    def test_metadata_bytes_as_stored(self, hex_bytes: str, kind: int) -> None:
        batch = decode([bytes.fromhex(hex_bytes)], METADATA)
        assert batch["type"].to_pylist() == [kind]
        assert split(*encode_datums(batch, METADATA)) == [bytes.fromhex(hex_bytes)]

    def test_delete_bytes_as_stored(self) -> None:
        batch = decode([bytes.fromhex("02 02 08 6b303033 02 04 6575 04 00 00")], DELETES)
        (delete,) = batch["deleteRecordList"][0].as_py()
        set_value = {name: value for name, value in delete.pop("orderingVal").items() if value}
        assert (delete, set_value) == ({"recordKey": "k003", "partitionPath": "eu"}, {"IntWrapper": {"value": 0}})


@pytest.mark.parametrize("name", [name for name in REAL_TABLES if "mor" in name])
def test_blocks_of_real_log_files(name: str, unpack: Any) -> None:
    for kind, schema, content in log_blocks(unpack(name).path):
        datums = list(framed_datums(content)) if kind == DATA_BLOCK else [content[8:]]
        parsed = fastavro.parse_schema(json.loads(schema))
        rows = [fastavro.schemaless_reader(io.BytesIO(datum), parsed) for datum in datums]
        batch = decode(datums, schema)
        if kind == DATA_BLOCK:
            assert batch.to_pylist() == rows
        else:
            found = batch["deleteRecordList"][0].as_py()
            assert [delete["recordKey"] for delete in found] == [
                delete["recordKey"] for delete in rows[0]["deleteRecordList"]
            ]
        assert split(*encode_datums(batch, schema)) == datums


def log_blocks(table: Path) -> Iterator[tuple[int, str, bytes]]:
    """The type, schema and content of each block of records or deletes in the table's log files."""
    for path in sorted(table.rglob("*.log.*")):
        stream = io.BytesIO(path.read_bytes())
        while stream.read(6) == b"#HUDI#":
            _, _, kind, entries = struct.unpack(">qiii", stream.read(20))
            header = {}
            for _ in range(entries):
                key, length = struct.unpack(">ii", stream.read(8))
                header[key] = stream.read(length)
            content = stream.read(*struct.unpack(">q", stream.read(8)))
            stream.seek(12, io.SEEK_CUR)
            if kind in (DATA_BLOCK, DELETE_BLOCK):
                yield kind, DELETES if kind == DELETE_BLOCK else header[2].decode(), content


def framed_datums(content: bytes) -> Iterator[bytes]:
    at = 8
    for _ in range(struct.unpack_from(">i", content, 4)[0]):
        (length,) = struct.unpack_from(">i", content, at)
        yield content[at + 4 : at + 4 + length]
        at += 4 + length
