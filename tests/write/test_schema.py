from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import InvalidInputError
from lakebed.format.avro.schema import arrow_schema
from lakebed.write.rows.schema import declared_schema, evolve_schema, nullable_schema, table_schema
from write.configs import table_config

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
STORED = [
    (pa.bool_(), pa.bool_()),
    (pa.int8(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.int64(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(16), pa.binary()),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int32()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("s"), LOCAL),
    (pa.timestamp("ms", "Europe/Berlin"), UTC),
    (pa.timestamp("ns", "UTC"), UTC),
    (pa.decimal128(38, 10), pa.decimal128(38, 10)),
    (pa.decimal256(20, 2), pa.decimal128(20, 2)),
    (pa.decimal64(10, 2), pa.decimal128(10, 2)),
    (pa.large_list(pa.int8()), pa.list_(pa.int32())),
    (pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(pa.field("item", pa.int64(), nullable=False))),
    (pa.list_(pa.float32(), 3), pa.list_(pa.float32())),
    (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int32())),
    (pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())])),
]


@pytest.mark.parametrize(("given_type", "stored"), STORED, ids=lambda kind: str(kind))
def test_types_that_tables_store(given_type: pa.DataType, stored: pa.DataType) -> None:
    schema = table_schema(pa.schema([pa.field("c", given_type, nullable=False)], metadata={"made": "by a test"}))
    assert schema == pa.schema([pa.field("c", stored, nullable=False)])
    assert schema.metadata is None


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.null(), "pa.nulls"),
        (pa.uint64(), "int64"),
        (pa.decimal256(39, 0), "at most 38"),
        (pa.decimal128(5, -2), "scale"),
        (pa.map_(pa.int32(), pa.int32()), "keys of type string"),
        (pa.duration("us"), "cast"),
        (pa.time64("us"), "cast"),
        (pa.struct([]), "cast"),
        (pa.list_view(pa.int32()), "cast"),
        (pa.dense_union([pa.field("a", pa.int32())]), "cast"),
    ],
    ids=lambda kind: str(kind),
)
def test_types_that_tables_lack_are_refused(kind: pa.DataType, hint: str) -> None:
    with pytest.raises(InvalidInputError, match="column 'c'") as error:
        table_schema(pa.schema([("c", kind)]))
    assert hint in error.value.hint
    with pytest.raises(InvalidInputError, match=r"column 'c\.x"):
        table_schema(pa.schema([("c", pa.struct([("x", pa.list_(kind))]))]))


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "A"], "if case is ignored"), (["1a"], "'1a'"), (["a-b"], "'a-b'"), (["ü"], "'ü'"), ([""], "''")],
)
def test_names_that_tables_cannot_have(names: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        table_schema(pa.schema([(name, pa.int32()) for name in names]))


def test_the_mark_of_deletes_is_no_column() -> None:
    given_schema = pa.schema([("k", pa.string()), ("_hoodie_is_deleted", pa.bool_())])
    assert table_schema(given_schema).names == ["k"]
    assert evolve_schema(pa.schema([("k", pa.string())]), given_schema).names == ["k"]
    assert evolve_schema(given_schema, given_schema) == given_schema


# What Apache Hudi 1.2.0 made of a table's column when rows with another type were upserted. It also takes numbers for
# text and text for numbers and decimals, by casting; such columns are refused here.
ACCEPTED = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.int32(), pa.float32(), pa.float32()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.int64(), pa.int32(), pa.int64()),
    (pa.int64(), pa.float32(), pa.float32()),
    (pa.int64(), pa.float64(), pa.float64()),
    (pa.float32(), pa.int32(), pa.float32()),
    (pa.float32(), pa.int64(), pa.float32()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.float64(), pa.int32(), pa.float64()),
    (pa.float64(), pa.int64(), pa.float64()),
    (pa.float64(), pa.float32(), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
    (pa.decimal128(12, 2), pa.decimal128(10, 2), pa.decimal128(12, 2)),
    (pa.decimal128(10, 2), pa.decimal128(12, 4), pa.decimal128(12, 4)),
    (pa.int32(), pa.int16(), pa.int32()),
    (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int64())])),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (pa.struct([("x", pa.int32()), ("y", pa.string())]), pa.struct([("x", pa.int32())]), None),
    (
        pa.struct([("x", pa.int32())]),
        pa.struct([pa.field("y", pa.string(), nullable=False), pa.field("x", pa.int32())]),
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
    ),
    (
        pa.list_(pa.struct([("x", pa.int32())])),
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int8())])),
        pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ),
    (pa.timestamp("ms", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), None),
    (pa.binary(4), pa.binary(), None),
    (pa.time64("us"), pa.time64("us"), None),
    (pa.int32(), pa.null(), None),
    (pa.list_(pa.int32()), pa.list_(pa.null()), None),
]


@pytest.mark.parametrize(("table", "incoming", "expected"), ACCEPTED, ids=lambda kind: str(kind))
def test_columns_grow(table: pa.DataType, incoming: pa.DataType, expected: pa.DataType | None) -> None:
    before = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("c", table, nullable=False)])
    after = evolve_schema(before, pa.schema([("c", incoming), ("k", pa.string())]), required=["c", "k"])
    assert after == pa.schema([before.field("k"), pa.field("c", expected or table, nullable=False)])
    assert evolve_schema(after, after) == after


# Apache Hudi refuses the first half of these as well; of those after it, it casts.
REFUSED = [
    (pa.int32(), pa.decimal128(10, 2)),
    (pa.decimal128(10, 2), pa.decimal128(10, 4)),
    (pa.float64(), pa.decimal128(10, 2)),
    (pa.date32(), UTC),
    (UTC, pa.date32()),
    (UTC, LOCAL),
    (LOCAL, UTC),
    (UTC, pa.int64()),
    (pa.bool_(), pa.int32()),
    (pa.int32(), pa.bool_()),
    (pa.bool_(), pa.string()),
    (pa.struct([("x", pa.int32())]), pa.int32()),
    (pa.int32(), pa.string()),
    (pa.string(), pa.int32()),
    (pa.decimal128(10, 2), pa.int32()),
    (pa.string(), pa.date32()),
    (pa.int64(), UTC),
    (pa.binary(), pa.string()),
    (pa.string(), pa.binary()),
]


@pytest.mark.parametrize(("table", "incoming"), REFUSED, ids=lambda kind: str(kind))
def test_other_changes_are_refused(table: pa.DataType, incoming: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="column 'c'"):
        evolve_schema(pa.schema([("c", table)]), pa.schema([("c", incoming)]))
    nested = [pa.schema([("s", pa.struct([("c", kind)]))]) for kind in (table, incoming)]
    with pytest.raises(InvalidInputError, match=r"column 's\.c'"):
        evolve_schema(*nested)


def test_errors_name_both_types_and_what_to_do() -> None:
    with pytest.raises(InvalidInputError) as error:
        evolve_schema(pa.schema([("t", UTC)]), pa.schema([("t", pa.timestamp("ns"))]))
    assert error.value.what == (
        "column 't' is of type timestamp[us, tz=UTC] in the table and of type timestamp[ns] in the rows"
    )
    assert error.value.hint == "give the times a zone: the table's type is timestamp[us, tz=UTC]"


def test_new_columns_come_last_and_may_be_null() -> None:
    before = pa.schema([pa.field("k", pa.string(), nullable=False), ("a", pa.int32())])
    key = pa.field("k", pa.string(), nullable=False)
    incoming = pa.schema([pa.field("z", pa.int8(), nullable=False), key, ("b", pa.string())])
    assert evolve_schema(before, incoming) == pa.schema([*before, ("z", pa.int32()), ("b", pa.string())])


RELAXED = [
    (pa.int32(), pa.int32()),
    (pa.struct([pa.field("x", pa.int32(), nullable=False)]), pa.struct([("x", pa.int32())])),
    (pa.list_(pa.field("item", pa.int32(), nullable=False)), pa.list_(pa.int32())),
    (pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("strict", "loose"), RELAXED, ids=lambda kind: str(kind))
def test_columns_become_nullable_and_never_required_again(strict: pa.DataType, loose: pa.DataType) -> None:
    """As in Apache Hudi 1.2, at any depth."""
    required, nullable = pa.schema([pa.field("c", strict, nullable=False)]), pa.schema([("c", loose)])
    assert evolve_schema(required, nullable) == nullable
    assert evolve_schema(nullable, required) == nullable
    assert evolve_schema(required, required) == required
    assert evolve_schema(required, nullable, required=["c"]).field("c") == pa.field("c", loose, nullable=False)
    assert nullable_schema(required) == nullable


def test_a_new_column_of_nulls_alone_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="column 'b' of type null"):
        evolve_schema(pa.schema([("a", pa.int32())]), pa.schema([("b", pa.null())]))


def test_a_column_that_differs_in_case_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a column 'A', which is 'a' in the table"):
        evolve_schema(pa.schema([("a", pa.int32())]), pa.schema([("A", pa.int32())]))


def test_a_struct_with_two_fields_of_one_name_is_refused() -> None:
    doubled = pa.struct([pa.field("x", pa.int32()), pa.field("x", pa.int32())])
    with pytest.raises(InvalidInputError, match="columns in 's' are named 'x'"):
        evolve_schema(pa.schema([("s", pa.struct([("x", pa.int32())]))]), pa.schema([("s", doubled)]))


def test_rows_without_columns_change_nothing() -> None:
    before = pa.schema([pa.field("k", pa.string(), nullable=False), ("a", pa.int32())])
    assert evolve_schema(before, pa.schema([])) == before


def test_key_columns_keep_the_text_of_their_values() -> None:
    before = pa.schema([("k", pa.int32())])
    assert evolve_schema(before, pa.schema([("k", pa.int64())]), keep=("k",)).field("k").type == pa.int64()
    with pytest.raises(InvalidInputError, match="cannot become double"):
        evolve_schema(before, pa.schema([("k", pa.float64())]), keep=("k",))


# Names of tables, and of the record in the schema that Apache Hudi 1.2.0 committed.
@pytest.mark.parametrize(
    ("table", "record"),
    [
        ("my-table", "my__table"),
        ("1abc", "__abc"),
        ("a.b", "a__b"),
        ("ü", "__"),
        ("a b$c", "a__b__c"),
        ("_x", "_x"),
        ("9", "__"),
        ("a__b", "a__b"),
        ("日本1", "____1"),
        ("é-ü", "______"),
        ("--", "____"),
        ("1-2", "____2"),
        ("😀x", "__x"),
    ],
)
def test_record_names(table: str, record: str) -> None:
    config = table_config(**{"hoodie.table.name": table})
    declared = declared_schema(pa.schema([("n", pa.int32())]), config, meta_columns=False)
    assert declared.startswith(f'{{"type":"record","name":"{record}_record","namespace":"hoodie.{record}","fields":[')


def test_meta_columns_come_first() -> None:
    declared = declared_schema(pa.schema([("n", pa.int32())]), table_config(), meta_columns=True)
    assert arrow_schema(declared, path="").names[:2] == ["_hoodie_commit_time", "_hoodie_commit_seqno"]
    assert arrow_schema(declared, path="").names[5:] == ["n"]


SCALARS = st.sampled_from([kind for kind, _ in STORED if not pa.types.is_nested(kind)])
TYPES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=5,
)
SCHEMAS = st.lists(st.tuples(TYPES, st.booleans()), min_size=1, max_size=4).map(
    lambda columns: pa.schema(
        [pa.field(f"c{number}", kind, nullable=nullable) for number, (kind, nullable) in enumerate(columns)]
    )
)


@given(SCHEMAS)
def test_stored_columns_survive_as_avro_and_are_stored_as_they_are(schema: pa.Schema) -> None:
    stored = table_schema(schema)
    assert table_schema(stored) == stored
    assert arrow_schema(declared_schema(stored, table_config(), meta_columns=False), path="") == stored
    assert evolve_schema(stored, schema) == stored
