from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from lakebed import open_table
from lakebed.errors import InvalidInputError
from lakebed.model.words import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.write.rows.prepare import plan_prepare, prepare_batch
from lakebed.write.values import IS_DELETE
from write.configs import table_config

CONFIG = table_config("id", "region", **{"hoodie.table.ordering.fields": "ts"})
TABLE = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("region", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())]
)
EVENT_TIME = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_rows_get_key_path_and_the_columns_of_the_table() -> None:
    rows = batch(fare=pa.array([1, 2], pa.int32()), region=["eu", None], id=pa.array([7, 8], pa.int16()))
    plan = plan_prepare(CONFIG, TABLE, rows.schema, fills=True)
    prepared = prepare_batch(rows, pickle.loads(pickle.dumps(plan)))
    assert prepared.schema == plan.schema
    assert prepared.column_names == [RECORD_KEY, PARTITION_PATH, "id", "region", "ts", "fare"]
    assert prepared.schema.field("fare") == TABLE.field("fare")
    assert prepared.to_pylist() == [
        {RECORD_KEY: "7", PARTITION_PATH: "eu", "id": 7, "region": "eu", "ts": None, "fare": 1.0},
        {
            RECORD_KEY: "8",
            PARTITION_PATH: "__HIVE_DEFAULT_PARTITION__",
            "id": 8,
            "region": None,
            "ts": None,
            "fare": 2.0,
        },
    ]


def test_new_columns_are_prepared_with_the_others() -> None:
    rows = batch(id=[1], region=["eu"], ts=[1], fare=[2.5], tip=pa.array([2], pa.int8()))
    plan = plan_prepare(CONFIG, TABLE, rows.schema)
    assert plan.columns == pa.schema([*TABLE, ("tip", pa.int32())])
    assert prepare_batch(rows, plan)["tip"].to_pylist() == [2]


def test_marked_rows_are_deletes() -> None:
    rows = batch(id=[1, 2, 3], region=["eu"] * 3, ts=[1] * 3, fare=[1.0] * 3, _hoodie_is_deleted=[True, None, False])
    plan = plan_prepare(CONFIG, TABLE, rows.schema)
    prepared = prepare_batch(rows, plan)
    assert prepared.column_names[-1] == IS_DELETE
    assert prepared[IS_DELETE].to_pylist() == [True, False, False]
    assert "_hoodie_is_deleted" not in prepared.column_names
    stored = pa.schema([*TABLE, ("_hoodie_is_deleted", pa.bool_())])
    kept = prepare_batch(rows, plan_prepare(CONFIG, stored, rows.schema))
    assert kept["_hoodie_is_deleted"].to_pylist() == [True, None, False]
    # Apache Hudi asks for the mark where it is stored; a row without it is none to delete, and loses nothing.
    assert plan_prepare(CONFIG, stored, TABLE).columns == stored


def test_a_mark_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="_hoodie_is_deleted"):
        plan_prepare(CONFIG, TABLE, pa.schema([*TABLE, ("_hoodie_is_deleted", pa.string())]))


def test_deletes_have_no_data_columns() -> None:
    rows = batch(id=[1, 2], region=["eu", "us"], other=["is", "ignored"])
    plan = plan_prepare(CONFIG, TABLE, rows.schema, deletes=True)
    assert plan.columns == pa.schema([])
    assert prepare_batch(rows, plan).to_pylist() == [
        {RECORD_KEY: "1", PARTITION_PATH: "eu", IS_DELETE: True},
        {RECORD_KEY: "2", PARTITION_PATH: "us", IS_DELETE: True},
    ]
    with pytest.raises(InvalidInputError, match="'region'"):
        plan_prepare(CONFIG, TABLE, pa.schema([("id", pa.int64())]), deletes=True)


def test_partial_updates_have_the_columns_that_are_given() -> None:
    rows = batch(fare=[1.5], region=["eu"], id=[1])
    plan = plan_prepare(CONFIG, TABLE, rows.schema, partial=True)
    assert plan.columns.names == ["id", "region", "fare"]
    assert prepare_batch(rows, plan).column_names == [RECORD_KEY, PARTITION_PATH, "id", "region", "fare"]
    ordered = table_config("id", "region", **{"hoodie.table.ordering.fields": "ts"}, **EVENT_TIME)
    with pytest.raises(InvalidInputError, match="ordering column 'ts'"):
        plan_prepare(ordered, TABLE, rows.schema, partial=True)


def test_a_column_becomes_nullable_if_rows_say_that_it_may_be_null() -> None:
    must = pa.field("must", pa.string(), nullable=False)
    schema = pa.schema([*TABLE, must])
    assert plan_prepare(CONFIG, schema, TABLE, partial=True).columns == TABLE
    plan = plan_prepare(CONFIG, schema, pa.schema([*TABLE, ("must", pa.string())]))
    assert plan.columns.field("must").nullable
    assert plan.required == {"must"}
    for rows, fills in ((schema, False), (TABLE, True)):
        same = plan_prepare(CONFIG, schema, rows, fills=fills)
        assert (same.columns.field("must") == must, same.required) == (not fills, {"must"} if fills else frozenset())


@pytest.mark.parametrize("name", ["id", "ts"])
def test_columns_of_keys_and_of_the_ordering_stay_required(name: str) -> None:
    """Apache Hudi fails at nulls in them, whatever the schema says."""
    table = pa.schema([field.with_nullable(field.name != name) for field in TABLE])
    rows = pa.RecordBatch.from_pylist([{"id": 1, "region": "eu", "ts": 1, "fare": 1.0} | {name: None}], TABLE)
    plan = plan_prepare(CONFIG, table, pa.schema([field.with_nullable(True) for field in TABLE]))
    assert plan.required == frozenset()
    with pytest.raises(InvalidInputError, match=f"'{name}' must not be null, and is in row 5"):
        prepare_batch(rows, plan, first_row=5)


def test_keys_are_spelled_in_the_type_of_the_table() -> None:
    rows = batch(id=pa.array([7], pa.int32()))
    schema = pa.schema([("id", pa.float64())])
    assert prepare_batch(rows, plan_prepare(table_config("id"), schema, rows.schema))[RECORD_KEY].to_pylist() == ["7.0"]
    with pytest.raises(InvalidInputError, match="keys and paths"):
        plan_prepare(table_config("id"), rows.schema, schema)


def test_batches_without_rows() -> None:
    plan = plan_prepare(CONFIG, TABLE, TABLE)
    assert prepare_batch(pa.RecordBatch.from_pylist([], TABLE), plan).equals(plan.schema.empty_table())


WITHOUT_KEYS = {"hudi111_cow_nonpart_autokey", "hudi111_cow_nonpart_no_metafields"}
"""Tables whose keys are generated, or that do not store them."""


def test_rows_of_real_tables_get_the_keys_and_paths_that_apache_hudi_gave_them(real_table) -> None:
    table = open_table(real_table.path)
    rows = table.to_arrow()
    has_keys = RECORD_KEY in rows.column_names and bool(table.config.key_fields)
    assert has_keys == (real_table.name not in WITHOUT_KEYS)
    if not has_keys:
        return
    data = rows.drop_columns(list(META_COLUMNS)).combine_chunks()
    plan = plan_prepare(table.config, data.schema, data.schema)
    prepared = pa.concat_tables([prepare_batch(batch, plan) for batch in data.to_batches()])
    assert prepared[RECORD_KEY].to_pylist() == rows[RECORD_KEY].to_pylist()
    assert prepared[PARTITION_PATH].to_pylist() == rows[PARTITION_PATH].to_pylist()
