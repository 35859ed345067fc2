"""Saves, with the steps that Spark takes in processes of its own taken here, one after the other."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from engine.spark_writes import check_left_nothing
from lakebed.errors import InvalidInputError
from lakebed.source.writer import LakebedWriter, plan_save

HUDI = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
    "hoodie.upsert.shuffle.parallelism": "2",
}
OPERATION = "hoodie.datasource.write.operation"
TO_DELETE = "hoodie.datasource.write.partitions.to.delete"


def trips(*rows: tuple[str | None, str, int, float]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([], [], [], [])
    types = (pa.string(), pa.string(), pa.int64(), pa.float64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["id", "city", "ts", "fare"])


ROWS = trips(("a", "oslo", 1, 1.0), ("b", "lima", 1, 2.0))


def begin(path: Path, rows: pa.Table = ROWS, options: Mapping[str, str] | None = None, mode: str = "append"):
    """A writer as it comes out of the process that planned the save."""
    given = {**HUDI, **(options or {}), "path": str(path)}
    return pickle.loads(pickle.dumps(LakebedWriter(plan_save(given, rows.schema, overwrite=mode == "overwrite"))))


def save(rows: pa.Table, path: Path, options: Mapping[str, str] | None = None, mode: str = "append") -> None:
    writer = begin(path, rows, options, mode)
    writer.commit([writer.write(iter(part.to_batches())) for part in (rows.slice(0, 1), rows.slice(1))])
    check_left_nothing(path)


def found(path: Path) -> list[tuple]:
    rows = lakebed.open_table(path).to_arrow(columns=["id", "city", "ts", "fare"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def operations(path: Path) -> list[str]:
    state = lakebed.open_table(path)._handle.state()
    return [state.documents.commit(instant).operation for instant in state.timeline.commits()]


def test_operations(tmp_path: Path) -> None:
    save(ROWS, tmp_path, {OPERATION: "bulk_insert"})
    save(trips(("c", "lima", 1, 3.0), ("d", "rome", 1, 4.0)), tmp_path, {OPERATION: "insert"})
    save(trips(("c", "lima", 1, 3.0)).select(["id", "city"]), tmp_path, {OPERATION: "delete"})
    assert found(tmp_path) == [("a", "oslo", 1, 1), ("b", "lima", 1, 2), ("d", "rome", 1, 4)]
    save(trips(("e", "lima", 1, 5.0)), tmp_path, {OPERATION: "insert_overwrite"})
    assert found(tmp_path) == [("a", "oslo", 1, 1), ("d", "rome", 1, 4), ("e", "lima", 1, 5)]
    save(trips(), tmp_path, {OPERATION: "delete_partition", TO_DELETE: "rome,oslo"})
    assert found(tmp_path) == [("e", "lima", 1, 5)]
    save(trips(("f", "rome", 1, 6.0), ("f", "rome", 2, 7.0)), tmp_path, mode="overwrite")
    save(trips(), tmp_path)
    save(trips(("f", "rome", 0, 8.0)), tmp_path)
    assert found(tmp_path) == [("f", "rome", 2, 7)]
    assert operations(tmp_path) == [
        "BULK_INSERT",
        "INSERT",
        "DELETE",
        "INSERT_OVERWRITE",
        "DELETE_PARTITION",
        "INSERT_OVERWRITE_TABLE",
        "UPSERT",
        "UPSERT",
    ]


def test_a_new_table_is_as_the_options_say(tmp_path: Path) -> None:
    options = {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
    }
    save(ROWS, tmp_path, options, mode="overwrite")
    table = lakebed.open_table(tmp_path)
    properties = {
        "hoodie.table.name": "trips",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "city",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.table.metadata.partitions": "bloom_filters,column_stats,files,partition_stats,record_index",
    }
    assert {key: table.config.properties[key] for key in properties} == properties
    assert table._handle.state().definitions["record_index"].is_partitioned
    assert operations(tmp_path) == ["UPSERT"]
    save(trips(("a", "oslo", 0, 3.0)), tmp_path, options)
    assert found(tmp_path) == [("a", "oslo", 0, 3), ("b", "lima", 1, 2)]


def test_only_the_attempt_that_counts_is_written(tmp_path: Path) -> None:
    """A task that ran twice has staged its rows twice."""
    writer = begin(tmp_path)
    lost = writer.write(iter(ROWS.to_batches()))
    counted = writer.write(iter(ROWS.to_batches()))
    assert lost != counted
    writer.commit([counted])
    assert lakebed.open_table(tmp_path).to_arrow().num_rows == 2
    check_left_nothing(tmp_path)


def test_an_abort_leaves_nothing(tmp_path: Path) -> None:
    writer = begin(tmp_path)
    message = writer.write(iter(ROWS.to_batches()))
    writer.write(iter(ROWS.to_batches()))
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
    writer.abort([message, None])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_rows_of_a_dead_job_are_in_nobodys_way(tmp_path: Path) -> None:
    begin(tmp_path).write(iter(ROWS.to_batches()))
    other = begin(tmp_path)
    other.commit([other.write(iter(ROWS.to_batches()))])
    assert lakebed.open_table(tmp_path).to_arrow().num_rows == 2
    assert lakebed.open_table(tmp_path).upsert(ROWS).updated == 2


def test_a_row_that_cannot_be_written_begins_no_instant(tmp_path: Path) -> None:
    save(ROWS, tmp_path)
    keyless = trips((None, "oslo", 2, 1.0))
    writer = begin(tmp_path, keyless)
    messages = [writer.write(iter(keyless.to_batches()))]
    with pytest.raises(InvalidInputError, match="'id'"):
        writer.commit(messages)
    writer.abort(messages)
    assert len(lakebed.open_table(tmp_path).timeline) == 1
    check_left_nothing(tmp_path)


def test_two_first_saves_at_once(tmp_path: Path) -> None:
    """Both plan to make the table; the second finds it made, and is refused if it wanted another one."""
    first, second = begin(tmp_path), begin(tmp_path, trips(("c", "rome", 1, 3.0)))
    third = begin(tmp_path, options={"hoodie.datasource.write.recordkey.field": "ts"})
    for writer, rows in ((first, ROWS), (second, trips(("c", "rome", 1, 3.0)))):
        writer.commit([writer.write(iter(rows.to_batches()))])
    assert [row[0] for row in found(tmp_path)] == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"recordkey.field is ts, table trips has id"):
        third.commit([third.write(iter(ROWS.to_batches()))])


@pytest.mark.parametrize(
    ("options", "mode", "says"),
    [
        ({"hoodie.datasource.write.recordkey.field": "ts"}, "append", "recordkey.field is ts, table trips has id"),
        ({"hoodie.table.name": "rides"}, "append", "is rides, table trips has trips"),
        ({"hoodie.datasource.write.table.type": "MERGE_ON_READ"}, "append", "has COPY_ON_WRITE"),
        ({"hoodie.datasource.write.table.type": "both"}, "append", "table.type=both is not supported"),
        ({"hoodie.datasource.write.payload.class": "com.acme.Mine"}, "append", "class=com.acme.Mine is not supported"),
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "append", "table trips has EVENT_TIME_ORDERING"),
        ({"hoodie.datasource.write.keygenerator.class": "com.acme.Keys"}, "append", "is not supported"),
        ({"hoodie.table.ordering.fields": "fare"}, "append", "precombine.field is ts, but another option says fare"),
        ({OPERATION: "bootstrap"}, "append", "operation=bootstrap is not supported"),
        ({OPERATION: "delete"}, "overwrite", "overwrites nothing"),
        ({OPERATION: "delete_partition"}, "append", "the partitions to delete are not named"),
        ({"hoodie.datasource.hive_sync.enable": "true"}, "append", "hive_sync.enable=true is not supported"),
        ({"hoodie.metadata.record.index.enable": "true"}, "append", "has no index record"),
        ({"hoodie.metadata.index.column.stats.enable": "false"}, "append", "has the index column_stats"),
        ({"hoodie.datasource.query.type": "incremental"}, "append", "an incremental query needs a start"),
    ],
)
def test_what_contradicts_the_table_is_refused(tmp_path: Path, options, mode: str, says: str) -> None:
    save(ROWS, tmp_path)
    with pytest.raises(InvalidInputError, match=says):
        begin(tmp_path, options=options, mode=mode)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hoodie.datasource.write.recordkey.field": ""}, "needs a record key"),
        ({"hoodie.datasource.write.recordkey.field": "uuid"}, "recordkey.field names 'uuid', which is not a column"),
        (
            {"hoodie.datasource.write.partitionpath.field": ""},
            "is SIMPLE, but the other options make it NON_PARTITION",
        ),
        ({"hoodie.metadata.enable": "false"}, "new tables have the index files"),
        ({OPERATION: "delete"}, "needs a table"),
    ],
)
def test_tables_that_cannot_be_made_are_refused(tmp_path: Path, options, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        begin(tmp_path, options=options)
    assert list(tmp_path.iterdir()) == []


def test_options_that_nobody_knows_are_told(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"nearest known one is hoodie.bulkinsert.sort.mode"):
        begin(tmp_path, options={"hoodie.bulkinsert.sort.modes": "none"})


def test_a_path_is_needed() -> None:
    with pytest.raises(InvalidInputError, match="no table path was given"):
        plan_save(HUDI, ROWS.schema, overwrite=False)
