from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from lakebed.errors import InvalidInputError
from lakebed.model.words import META_COLUMNS
from lakebed.write.rows.sources import arrow_batches, to_arrow_schema

TABLE = pa.table({"k": ["a", "b", "c"], "n": [1, 2, 3]})
META = pa.table({name: ["x"] * 3 for name in META_COLUMNS})


def read(rows: object) -> pa.Table:
    schema, batches = arrow_batches(rows)
    return pa.Table.from_batches(list(batches), schema=schema)


@pytest.mark.parametrize(
    "rows",
    [
        TABLE,
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
        TABLE.to_batches()[0],
        TABLE.to_reader(max_chunksize=2),
        TABLE.to_pandas(),
        TABLE.to_pandas().set_index("k", drop=False),
        TABLE.to_pylist(),
    ],
    ids=["table", "chunks", "batch", "reader", "pandas", "pandas with index", "dicts"],
)
def test_every_kind_of_rows_gives_the_same(rows: object) -> None:
    assert read(rows).equals(TABLE)


def test_a_reader_is_not_read_ahead() -> None:
    asked = []

    def batches():
        for batch in TABLE.to_batches(max_chunksize=1):
            asked.append(len(batch))
            yield batch

    _, found = arrow_batches(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    assert asked == []
    next(found)
    assert asked == [1]


def test_dicts_may_have_different_keys() -> None:
    rows = [{"k": "a"}, {"n": 1, "k": None}]
    assert read(rows).to_pylist() == [{"k": "a", "n": None}, {"k": None, "n": 1}]


def test_meta_columns_that_were_read_are_left_out_and_marks_of_deletes_are_kept() -> None:
    rows = TABLE.append_column("_hoodie_is_deleted", pa.array([True, False, None]))
    for name in reversed(META_COLUMNS):
        rows = rows.add_column(0, name, META[name])
    assert read(rows).column_names == ["k", "n", "_hoodie_is_deleted"]
    assert read(rows.to_reader()).column_names == ["k", "n", "_hoodie_is_deleted"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", 1)], r"builtins\.list"),
        ("k", r"builtins\.str"),
        (None, "NoneType"),
        (pd.Series([1]), r"pandas\..*Series"),
        ([], "no columns"),
        ([{}], "no columns"),
        ([{"k": 1}, {"k": "a"}], "column 'k'"),
        ([{"k": 2**70}], "column 'k'"),
        (pd.DataFrame({"k": [1, "a"]}), "cannot be converted"),
        (pd.DataFrame([[1, 2]], columns=["k", "k"]), "k"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"]), "several columns named 'k'"),
        (TABLE.append_column("_hoodie_record_key", pa.array(["a"] * 3)), "meta column"),
    ],
)
def test_what_cannot_be_written_is_refused(rows: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        arrow_batches(rows)


def test_spark_schemas_become_arrow_schemas() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    spark = types.StructType(
        [
            types.StructField("k", types.StringType(), nullable=False),
            types.StructField("s", types.ShortType()),
            types.StructField("d", types.DecimalType(12, 3)),
            types.StructField("t", types.TimestampType()),
            types.StructField("u", types.TimestampNTZType()),
            types.StructField("a", types.ArrayType(types.LongType(), containsNull=False)),
            types.StructField("m", types.MapType(types.StringType(), types.DateType())),
            types.StructField("r", types.StructType([types.StructField("x", types.BinaryType())])),
        ]
    )
    assert to_arrow_schema(spark) == pa.schema(
        [
            pa.field("k", pa.string(), nullable=False),
            ("s", pa.int32()),
            ("d", pa.decimal128(12, 3)),
            ("t", pa.timestamp("us", "UTC")),
            ("u", pa.timestamp("us")),
            ("a", pa.list_(pa.field("item", pa.int64(), nullable=False))),
            ("m", pa.map_(pa.string(), pa.date32())),
            ("r", pa.struct([("x", pa.binary())])),
        ]
    )
    with pytest.raises(InvalidInputError, match=r"'r\.i' is of type interval"):
        to_arrow_schema(
            types.StructType(
                [types.StructField("r", types.StructType([types.StructField("i", types.DayTimeIntervalType())]))]
            )
        )


def test_schemas_of_another_kind_are_refused() -> None:
    assert to_arrow_schema(TABLE.schema) == TABLE.schema
    with pytest.raises(InvalidInputError, match="dict"):
        to_arrow_schema({"k": "string"})
