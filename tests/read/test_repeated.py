"""What workers leave out, Spark puts back: no row comes out different from how it was read."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed.filter.predicate import parse_where
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, FileGroupId, FileSlice
from lakebed.model.instant import InstantTime
from lakebed.model.words import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakebed.read.file_slice import SliceTask
from lakebed.read.spark_columns import SLICE, leave_out, put_back, sent_schema, sent_task, spark_schema
from lakebed.storage import open_storage
from lakebed.view.blocks import CountedInstants

SCHEMA = pa.schema(
    [(COMMIT_TIME, pa.string()), (PARTITION_PATH, pa.string()), (FILE_NAME, pa.string()), ("n", pa.int64())]
)
CONFIG = TableConfig(
    {"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ", "hoodie.table.version": "9"},
)
BASE = BaseFile("f_1-0-1_100.parquet", "f", "1-0-1", InstantTime("100"), ".parquet")

Cells = tuple[str | None, str | None]
SLICES: dict[str, tuple[BaseFile | None, list[Cells]]] = {
    "untouched": (BASE, [("100", BASE.name)] * 3),
    "changed": (BASE, [("100", BASE.name), ("200", "f"), ("100", "f"), ("200", BASE.name)]),
    "all changed": (BASE, [("200", "f"), ("300", "f")]),
    "only logs": (None, [("200", "f"), ("", "")]),
    "empty": (BASE, []),
    "a null": (BASE, [("100", BASE.name), (None, BASE.name), ("100", None), (None, None), ("200", "f")]),
    "": (BASE, [("100", BASE.name)]),
}


def task(partition: str, base: BaseFile | None = BASE) -> SliceTask:
    file_slice = FileSlice(FileGroupId(partition, "f"), InstantTime("100"), base)
    counted = CountedInstants(frozenset({"100"}), "")
    return SliceTask(open_storage("memory://t"), CONFIG, file_slice, SCHEMA, tuple(SCHEMA.names), counted)


def rows_of(partition: str, cells: list[Cells]) -> list[dict[str, object]]:
    return [{COMMIT_TIME: c, PARTITION_PATH: partition, FILE_NAME: f, "n": i} for i, (c, f) in enumerate(cells)]


def as_read(partition: str, cells: list[Cells], *, encoded: bool) -> pa.Table:
    """The rows as a worker has them: in two chunks, with or without dictionaries."""
    rows = pa.Table.from_pylist(rows_of(partition, cells), SCHEMA).drop_columns([PARTITION_PATH])
    if encoded:
        for name in (COMMIT_TIME, FILE_NAME):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, name, rows[name].dictionary_encode())
    return pa.concat_tables([rows.slice(0, 1), rows.slice(1)]).unify_dictionaries()


@pytest.mark.spark
@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("names", [SCHEMA.names, [PARTITION_PATH, "n"], [FILE_NAME], [COMMIT_TIME, PARTITION_PATH]])
def test_what_is_left_out_is_put_back(spark, names: list[str], encoded: bool) -> None:
    tasks = [task(partition, base) for partition, (base, _) in SLICES.items()]
    sent = sent_schema(tasks, pa.schema([SCHEMA.field(name) for name in names]))
    assert sent is not None
    parts = [
        leave_out(as_read(partition, cells, encoded=encoded), tasks[number], number, sent)
        for number, (partition, (_, cells)) in enumerate(SLICES.items())
    ]
    numbers = spark.range(0, 1, 1, 1)
    workers = numbers.mapInArrow(lambda _: (b for part in parts for b in part.to_batches()), spark_schema(sent))
    frame = put_back(workers, tasks).select(*names)
    expected = [row for partition, (_, cells) in SLICES.items() for row in rows_of(partition, cells)]
    assert [row.asDict() for row in frame.collect()] == [{name: row[name] for name in names} for row in expected]


def test_repeated_values_are_not_sent() -> None:
    sent = sent_schema([task("eu")], SCHEMA)
    assert sent is not None
    assert sent.names == [COMMIT_TIME, FILE_NAME, "n", SLICE]
    rows = leave_out(as_read("eu", SLICES["changed"][1], encoded=True), task("eu"), 7, sent)
    assert rows[COMMIT_TIME].to_pylist() == [None, "200", None, "200"]
    assert rows[FILE_NAME].to_pylist() == [None, "f", "f", None]
    assert rows[SLICE].to_pylist() == [7] * 4


@pytest.mark.parametrize(
    ("tasks", "read"),
    [
        ([task("eu")], pa.schema([(COMMIT_TIME, pa.string()), ("n", pa.int64())])),
        ([task("eu"), task("a\x1fb")], SCHEMA),
        ([task("eu")], SCHEMA.append(pa.field(SLICE.upper(), pa.string()))),
        (
            [replace(task("eu"), config=TableConfig({**CONFIG.properties, "hoodie.populate.meta.fields": "false"}))],
            SCHEMA,
        ),
    ],
    ids=["little to gain", "separator in a path", "name is taken", "no meta columns"],
)
def test_everything_is_sent_where_leaving_out_is_no_use(tasks: list[SliceTask], read: pa.Schema) -> None:
    assert sent_schema(tasks, read) is None


@pytest.mark.parametrize(
    ("where", "written_by", "encoded"),
    [
        (None, None, {COMMIT_TIME, FILE_NAME}),
        (f"{FILE_NAME} like 'f%'", None, {COMMIT_TIME}),
        (None, frozenset({"100"}), {FILE_NAME}),
    ],
)
def test_columns_that_are_compared_stay_plain(where: str | None, written_by, encoded: set[str]) -> None:
    predicate = None if where is None else parse_where(where, SCHEMA)
    sent = sent_schema([task("eu")], SCHEMA)
    assert sent is not None
    changed = sent_task(replace(task("eu"), predicate=predicate, written_by=written_by), sent)
    assert {field.name for field in changed.schema if pa.types.is_dictionary(field.type)} == encoded
    assert changed.columns == (COMMIT_TIME, FILE_NAME, "n")
