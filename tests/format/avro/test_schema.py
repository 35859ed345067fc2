from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import avro_reference as avro
from conftest import REAL_TABLES
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.avro.schema import arrow_schema, avro_schema

_INNER = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}
_ITEMS_REQUIRED = pa.list_(pa.field("item", pa.int32(), nullable=False))


def to_arrow(kind: Any) -> pa.Field:
    spec = {"type": "record", "name": "r", "namespace": "n", "fields": [{"name": "f", "type": kind}]}
    return arrow_schema(json.dumps(spec), path="t/a.log").field(0)


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


@pytest.mark.parametrize(
    ("kind", "arrow", "nullable"),
    [
        ("null", pa.null(), True),
        ("boolean", pa.bool_(), False),
        ("int", pa.int32(), False),
        ("long", pa.int64(), False),
        ("float", pa.float32(), False),
        ("double", pa.float64(), False),
        ("bytes", pa.binary(), False),
        ("string", pa.string(), False),
        ({"type": "string", "avro.java.string": "String"}, pa.string(), False),
        ({"type": {"type": "long"}}, pa.int64(), False),
        (["null", "int"], pa.int32(), True),
        (["int", "null"], pa.int32(), True),
        (["int"], pa.int32(), False),
        (["null"], pa.null(), True),
        (["int", "string"], pa.struct({"int": pa.int32(), "string": pa.string()}), False),
        (["null", "int", "string"], pa.struct({"int": pa.int32(), "string": pa.string()}), True),
        (
            ["null", _INNER, "long"],
            pa.struct({"inner": pa.struct([pa.field("x", pa.int32(), False)]), "long": pa.int64()}),
            True,
        ),
        ({"type": "array", "items": "int"}, _ITEMS_REQUIRED, False),
        ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), False),
        ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32()), False),
        (["null", _INNER], pa.struct([pa.field("x", pa.int32(), nullable=False)]), True),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string(), False),
        ({"type": "fixed", "name": "q", "size": 3}, pa.binary(3), False),
        (logical("int", "date"), pa.date32(), False),
        (logical("int", "time-millis"), pa.time32("ms"), False),
        (logical("long", "time-micros"), pa.time64("us"), False),
        (logical("long", "timestamp-millis"), pa.timestamp("ms", "UTC"), False),
        (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), False),
        (logical("long", "timestamp-nanos"), pa.timestamp("ns", "UTC"), False),
        (logical("long", "local-timestamp-millis"), pa.timestamp("ms"), False),
        (logical("long", "local-timestamp-micros"), pa.timestamp("us"), False),
        (logical("long", "local-timestamp-nanos"), pa.timestamp("ns"), False),
        (logical("string", "uuid"), pa.string(), False),
        (logical("bytes", "decimal", precision=30, scale=15), pa.decimal128(30, 15), False),
        (logical("bytes", "decimal", precision=39), pa.decimal256(39, 0), False),
        (logical("fixed", "decimal", name="d", size=5, precision=10, scale=2), pa.decimal128(10, 2), False),
        (logical("bytes", "decimal", precision=77), pa.binary(), False),
        (logical("bytes", "decimal", precision=2, scale=3), pa.binary(), False),
        (logical("bytes", "decimal"), pa.binary(), False),
        (logical("string", "decimal", precision=2), pa.string(), False),
        (logical("int", "timestamp-micros"), pa.int32(), False),
        (logical("long", "no such type"), pa.int64(), False),
    ],
)
def test_arrow_type_of_an_avro_type(kind: Any, arrow: pa.DataType, nullable: bool) -> None:
    assert to_arrow(kind).equals(pa.field("f", arrow, nullable=nullable))


def test_names_are_resolved_in_their_namespace() -> None:
    again = {
        "type": "record",
        "name": "o.again",
        "fields": [{"name": "a", "type": "n.inner"}, {"name": "b", "type": "q"}],
    }
    again["fields"].insert(0, {"name": "z", "type": {"type": "fixed", "name": "q", "size": 2}})
    spec = {"type": "record", "name": "n.r", "fields": [{"name": "a", "type": _INNER}, {"name": "b", "type": "inner"}]}
    spec["fields"].append({"name": "c", "type": again})
    schema = arrow_schema(json.dumps(spec), path="p")
    assert schema.field("b").type == schema.field("a").type
    assert schema.field("c").type.field("a").type == schema.field("a").type
    assert schema.field("c").type.field("b").type == pa.binary(2)


def test_branches_whose_short_names_clash_have_full_names() -> None:
    branches = [{"type": "fixed", "name": "x.q", "size": 1}, {"type": "fixed", "name": "y.q", "size": 2}, "null"]
    assert to_arrow(branches).type == pa.struct({"x.q": pa.binary(1), "y.q": pa.binary(2)})


@settings(max_examples=50, deadline=None)
@given(avro.records(depth=2))
def test_whatever_fastavro_accepts_has_an_arrow_schema(spec: dict[str, Any]) -> None:
    fastavro.parse_schema(spec)
    assert arrow_schema(json.dumps(spec), path="p").names == [field["name"] for field in spec["fields"]]


def _nested(depth: int) -> Any:
    return "int" if depth == 0 else {"type": "array", "items": _nested(depth - 1)}


def _doubling(depth: int) -> Any:
    """A few lines that unfold to 2 ** depth fields."""
    kind: Any = "int"
    for level in range(depth):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"d{level - 1}" if level else "int"}]
        kind = {"type": "record", "name": f"d{level}", "fields": fields}
    return kind


@pytest.mark.parametrize(
    "kind",
    [
        "nothing",
        [],
        ["int", ["null", "int"]],
        ["int", "int"],
        {"type": "fixed", "name": "q", "size": 0},
        {"type": "fixed", "name": "q", "size": 2**40},
        {"type": "fixed", "name": "q"},
        {"type": "enum", "name": "e", "symbols": [1]},
        {"type": "enum", "name": "e", "symbols": []},
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "x", "fields": [{"name": "a", "type": ["null", "x"]}]},
        {"type": "record", "name": "x", "fields": [{"name": "a", "type": "int"}] * 2},
        {"type": "record", "name": "x", "fields": None},
        {"type": "array"},
        {"items": "int"},
        None,
        7,
        _nested(100),
        _nested(900),
        _doubling(40),
    ],
    ids=lambda kind: json.dumps(kind)[:40],
)
def test_a_schema_that_is_not_sound(kind: Any) -> None:
    with pytest.raises(CorruptTableError, match=r"t/a\.log: the Avro schema cannot be decoded"):
        to_arrow(kind)


@pytest.mark.parametrize("text", ["", "{", "[]", '"int"', '{"type":"map","values":"int"}', "[" * 100_000])
def test_a_text_that_is_no_record_schema(text: str) -> None:
    with pytest.raises(CorruptTableError):
        arrow_schema(text, path="t/a.log")


def written(kind: pa.DataType, *, nullable: bool = False) -> Any:
    text = avro_schema(pa.schema([pa.field("c", kind, nullable=nullable)]), name="t_record", namespace="hoodie.t")
    return json.loads(text)["fields"][0]["type"]


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "fixed", "namespace": "hoodie.t.t_record.c", "size": size, **more}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.float16(), "float"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "bytes"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.binary(7), fixed(7)),
        (pa.decimal128(9, 0), fixed(4, logicalType="decimal", precision=9, scale=0)),
        (pa.decimal128(18, 4), fixed(8, logicalType="decimal", precision=18, scale=4)),
        (pa.decimal128(38, 18), fixed(16, logicalType="decimal", precision=38, scale=18)),
        (pa.decimal256(76, 0), fixed(32, logicalType="decimal", precision=76, scale=0)),
        (pa.time32("ms"), logical("int", "time-millis")),
        (pa.time64("us"), logical("long", "time-micros")),
        (pa.timestamp("us", "Europe/Oslo"), logical("long", "timestamp-micros")),
        (pa.timestamp("ms", "UTC"), logical("long", "timestamp-millis")),
        (pa.timestamp("ms"), logical("long", "local-timestamp-millis")),
        (pa.list_(pa.int32()), {"type": "array", "items": ["null", "int"]}),
        (pa.large_list(pa.int64()), {"type": "array", "items": ["null", "long"]}),
        (
            pa.list_(pa.decimal128(3, 0)),
            {"type": "array", "items": ["null", fixed(2, logicalType="decimal", precision=3, scale=0)]},
        ),
        (
            pa.map_(pa.string(), pa.struct([pa.field("x", pa.struct([pa.field("y", pa.date32())]))])),
            {
                "type": "map",
                "values": [
                    "null",
                    {
                        "type": "record",
                        "name": "c",
                        "namespace": "hoodie.t.t_record",
                        "fields": [
                            {
                                "name": "x",
                                "type": [
                                    "null",
                                    {
                                        "type": "record",
                                        "name": "x",
                                        "namespace": "hoodie.t.t_record.c",
                                        "fields": [
                                            {"name": "y", "type": ["null", logical("int", "date")], "default": None}
                                        ],
                                    },
                                ],
                                "default": None,
                            }
                        ],
                    },
                ],
            },
        ),
    ],
)
def test_avro_type_of_an_arrow_type(kind: pa.DataType, spec: Any) -> None:
    assert written(kind) == spec
    assert written(kind, nullable=True) == ["null", spec]


def test_a_column_of_nulls() -> None:
    assert written(pa.null(), nullable=True) == "null"


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.timestamp("ns"),
        pa.timestamp("s"),
        pa.time64("ns"),
        pa.map_(pa.int32(), pa.int32()),
        pa.duration("us"),
    ],
)
def test_a_type_that_avro_lacks(kind: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="column 'c'"):
        written(kind)


@pytest.mark.parametrize("name", ["a b", "1a", "", "a-b", "ä"])
def test_a_name_that_avro_lacks(name: str) -> None:
    with pytest.raises(InvalidInputError, match="cannot have this name"):
        avro_schema(pa.schema([(name, pa.int32())]), name="r", namespace="n")


def test_without_a_namespace() -> None:
    text = avro_schema(pa.schema([("a", pa.decimal128(5, 1))]), name="r", namespace="")
    fastavro.parse_schema(json.loads(text))
    assert '"namespace":"r.a"' in text


@pytest.mark.parametrize(
    "name", [name for name in REAL_TABLES if re.search("alltypes|evolution|time_deletes|mor_part_comp", name)]
)
def test_spells_the_schemas_of_real_tables(name: str, unpack: Any) -> None:
    path = unpack(name).path
    texts = [text for file in path.rglob("*commit") for text in _schemas(file)]
    for file in path.glob("**/*.parquet"):
        if ".hoodie" not in file.parts:
            schema = pq.read_schema(file)
            texts.append((schema.metadata or {}).get(b"parquet.avro.schema", b"").decode())
            if texts[-1]:
                assert _spelled(schema, texts[-1]) == texts[-1]
    texts = [text for text in texts if text]
    assert texts
    for text in texts:
        assert _spelled(arrow_schema(text, path="p"), text) == text


def _spelled(schema: pa.Schema, text: str) -> str:
    spec = json.loads(text)
    return avro_schema(schema, name=spec["name"], namespace=spec["namespace"])


def _schemas(commit: Path) -> list[str]:
    """The table schemas in a commit file, whether it is JSON or Avro."""
    text = commit.read_bytes().decode("latin1").replace('\\"', '"')
    starts = [match.start() for match in re.finditer(r'\{"type":"record","name":"\w+_record"', text)]
    decoder = json.JSONDecoder()
    return [text[start : start + decoder.raw_decode(text[start:])[1]] for start in starts]
