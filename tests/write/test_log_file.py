"""Log files that are appended: bytes and stats as Apache Hudi has them, and rows as a plain model has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import RealTable
from lakebed.errors import InvalidInputError, StorageUnavailableError, WriteConflictError
from lakebed.format.avro.schema import arrow_schema, avro_schema
from lakebed.format.file_names import decode_data_file_name
from lakebed.format.log.blocks import decode_deletes, decode_positions, decode_records
from lakebed.format.log.file import BlockKind, HeaderKey, LogBlock, decode_log_file
from lakebed.index.column_stats.ranges import read_column_stats
from lakebed.metadata import MetadataTable
from lakebed.model.commit import WriteStat
from lakebed.model.config import TableConfig
from lakebed.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats, ValueType
from lakebed.model.words import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakebed.read.file_slice import SliceTask, read_slice
from lakebed.storage import Outcome, Storage, open_storage
from lakebed.storage.faults import Fault, FaultyStorage, at
from lakebed.table.handle import open_handle
from lakebed.transaction.markers import load_markers
from lakebed.view.blocks import CountedInstants
from lakebed.write.files import encoding, log_blocks
from lakebed.write.files import log as log_file
from lakebed.write.files.log import append_log_file, append_log_files, begin_lot
from lakebed.write.values import DELETED, IS_DELETE, IS_INSERT, POSITION, FileSizing, InMemory, WriteContext, WriteTask

INSTANT, NEXT = InstantTime("20261116000200000"), InstantTime("20261116000300000")
BASE_INSTANT = InstantTime("20261116000100000")
GROUP = FileGroupId("eu", "f1-0")
TOKEN = "3-7-11"
NAME = f".f1-0_{INSTANT}.log.1_{TOKEN}"
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("price", pa.float64()), ("note", pa.string())])
BASE = BaseFile(f"f1-0_0-1-2_{BASE_INSTANT}.parquet", "f1-0", "0-1-2", BASE_INSTANT, ".parquet")
SLICE = FileSlice(GROUP, BASE_INSTANT, BASE)
_numbers = count()


def config_of(mode: str = "COMMIT_TIME_ORDERING", ordering: str = "", **more: str) -> TableConfig:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.record.merge.mode": mode,
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.keygenerator.type": "SIMPLE",
    }
    return TableConfig({**properties, **({"hoodie.table.ordering.fields": ordering} if ordering else {}), **more})


EVENT_TIME = config_of("EVENT_TIME_ORDERING", "ts")


def with_meta(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *schema])


def context_of(schema: pa.Schema = SCHEMA, config: TableConfig | None = None, **more: Any) -> WriteContext:
    context = WriteContext(
        storage=open_storage(f"memory://log-file-{next(_numbers)}"),
        config=config or config_of(),
        schema=schema,
        avro_json=avro_schema(with_meta(schema), name="t_record", namespace="hoodie.t"),
        instant=INSTANT,
        stats_columns=(COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *schema.names),
        counts=CountedInstants(frozenset(), INSTANT),
        files=FileSizing(log_format="avro"),
    )
    return replace(context, **more)


def prepared(keys: list[str], partition: str = "eu", **columns: Any) -> pa.Table:
    paths = pa.DictionaryArray.from_arrays(pa.array([0] * len(keys), pa.int32()), pa.array([partition]))
    named = {name.replace("lakebed_", "lakebed."): values for name, values in columns.items()}
    return pa.table({RECORD_KEY: pa.array(keys, pa.string()), PARTITION_PATH: paths, **named})


def full(keys: list[str], **more: Any) -> pa.Table:
    size = len(keys)
    columns = {
        "id": pa.array(keys, pa.string()),
        "ts": pa.array(range(10, 10 + size), pa.int64()),
        "price": pa.array([0.5] * size),
        "note": pa.array([None] * size, pa.string()),
    }
    return prepared(keys, **{**columns, **more})


def task_of(rows: pa.Table, context: WriteContext | None = None, file_slice: FileSlice | None = SLICE) -> WriteTask:
    return WriteTask(context or context_of(), 3, GROUP, file_slice, InMemory(rows), TOKEN)


def blocks_of(storage: Storage, name: str = NAME) -> tuple[LogBlock, ...]:
    return decode_log_file(storage.get(f"eu/{name}"), path=name)


def appended(task: WriteTask) -> tuple[LogBlock, ...]:
    append_log_file(task)
    return blocks_of(task.context.storage)


# What is in the file


def test_rows_become_one_avro_block() -> None:
    task = task_of(full(["a", "b"]))
    (block,) = appended(task)
    assert block.kind is BlockKind.AVRO_DATA
    assert dict(block.header) == {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: task.context.avro_json}
    rows = decode_records(block, path=NAME)
    assert rows.column_names == [*META_COLUMNS, *SCHEMA.names]
    assert rows.select([COMMIT_TIME, RECORD_KEY, PARTITION_PATH, FILE_NAME, "ts"]).to_pylist() == [
        {COMMIT_TIME: INSTANT, RECORD_KEY: key, PARTITION_PATH: "eu", FILE_NAME: "f1-0", "ts": ts}
        for key, ts in (("a", 10), ("b", 11))
    ]
    assert all(seqno.startswith(f"{INSTANT}_3_") for seqno in rows[COMMIT_SEQNO].to_pylist())


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_rows_become_one_parquet_block(compression: str) -> None:
    task = task_of(full(["a", "b"]), context_of(files=FileSizing(log_format="parquet", compression=compression)))
    (block,) = appended(task)
    assert block.kind is BlockKind.PARQUET_DATA
    assert block.header[HeaderKey.SCHEMA] == task.context.avro_json
    assert decode_records(block, path=NAME).select(SCHEMA.names).equals(full(["a", "b"]).select(SCHEMA.names))
    file = pq.ParquetFile(pa.BufferReader(block.content))
    assert file.metadata.row_group(0).column(0).compression == compression.upper().replace("NONE", "UNCOMPRESSED")
    assert all(not file.schema_arrow.field(name).type.equals(pa.null()) for name in META_COLUMNS)


def test_required_columns_are_required_in_parquet() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32())])
    rows = prepared(["a"], id=pa.array(["a"]), n=pa.array([1], pa.int32()))
    (block,) = appended(task_of(rows, context_of(schema, files=FileSizing(log_format="parquet"))))
    stored = pq.ParquetFile(pa.BufferReader(block.content)).schema_arrow
    assert [stored.field(name).nullable for name in ("id", "n", RECORD_KEY)] == [False, True, True]


def test_deletes_follow_records() -> None:
    rows = full(["a", "b", "c"], lakebed_is_delete=pa.array([True, False, True]))
    data, deletes = appended(task_of(rows))
    assert decode_records(data, path=NAME)[RECORD_KEY].to_pylist() == ["b"]
    assert deletes.kind is BlockKind.DELETE
    assert deletes.header == data.header
    assert decode_deletes(deletes, path=NAME).to_pylist() == [
        {"key": key, "partition": "eu", "ordering": None, "always": True} for key in ("a", "c")
    ]


def test_deletes_of_keys_alone() -> None:
    for config in (config_of(), EVENT_TIME):
        rows = prepared(["a", "b"], lakebed_is_delete=pa.array([True, True]))
        (deletes,) = appended(task_of(rows, context_of(config=config)))
        assert decode_deletes(deletes, path=NAME)["always"].to_pylist() == [True, True]


def test_deletes_by_event_time_come_apart_from_those_that_always_apply() -> None:
    base = context_of(config=EVENT_TIME)
    write_base(base, full(["a", "b", "c"]))
    rows = full(["a", "b", "c"], ts=pa.array([None, 9, 99], pa.int64()), lakebed_is_delete=pa.array([True] * 3))
    by_time, always = appended(task_of(rows, base))
    assert decode_deletes(by_time, path=NAME)["ordering"].to_pylist() == [9, 99]
    assert decode_deletes(always, path=NAME).to_pydict() == {
        "key": ["a"], "partition": ["eu"], "ordering": [None], "always": [True]
    }  # fmt: skip


def test_several_ordering_fields_are_as_apache_hudi_writes_them() -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("seq", pa.string())])
    rows = prepared(
        ["k0", "k1"],
        partition="",
        id=pa.array(["k0", "k1"]),
        ts=pa.array([10, 10]),
        seq=pa.array(["n", "a"]),
        lakebed_is_delete=pa.array([True, True]),
        lakebed_is_insert=pa.array([True, True]),
    )
    task = task_of(rows, context_of(schema, config_of("EVENT_TIME_ORDERING", "ts,seq")), None)
    (block,) = appended(task)
    # Apache Hudi 1.2.0, upsert of two rows with `_hoodie_is_deleted` on a table ordered by ts and seq.
    expected = "00000003 00000020 04 02046b300200 18020406140e026e00 02046b310200 18020406140e026100 00"
    assert bytes(block.content) == bytes.fromhex(expected)


def test_a_delete_without_one_of_several_ordering_values_always_applies() -> None:
    config = config_of("EVENT_TIME_ORDERING", "ts,price")
    rows = full(["a"], price=pa.array([None], pa.float64()), lakebed_is_delete=pa.array([True]))
    (block,) = appended(task_of(rows, context_of(config=config)))
    assert decode_deletes(block, path=NAME)["always"].to_pylist() == [True]


def test_partition_columns_that_files_drop_are_not_declared() -> None:
    drops = {"hoodie.datasource.write.drop.partition.columns": "true", "hoodie.table.partition.fields": "note"}
    for log_format in ("avro", "parquet"):
        context = context_of(config=config_of(**drops), files=FileSizing(log_format=log_format))
        (block,) = appended(task_of(full(["a"]), context))
        assert HeaderKey.IS_PARTIAL not in block.header
        assert '"note"' not in block.header[HeaderKey.SCHEMA]
        assert decode_records(block, path=NAME).column_names == [*META_COLUMNS, "id", "ts", "price"]


def test_no_rows_make_no_file() -> None:
    task = task_of(full([]))
    assert append_log_file(task) == ()
    assert task.context.storage.list("", recursive=True) == ()


def test_many_rows_make_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_blocks, "LOG_BLOCK_BYTES_MAX", 2000)
    keys = [f"k{number:02}" for number in range(50)]
    rows = full(keys, lakebed_position=pa.array(range(49, -1, -1), pa.int64()))
    task = task_of(rows)
    (written,) = append_log_file(task)
    blocks = blocks_of(task.context.storage)
    assert len(blocks) > 2
    assert written.stat.num_writes == 50
    found = [key for block in blocks for key in decode_records(block, path=NAME)[RECORD_KEY].to_pylist()]
    assert found == keys[::-1]
    assert [int(p) for block in blocks for p in decode_positions(block, path=NAME)] == list(range(50))
    stats = {stat.column: stat for stat in written.column_stats}
    assert (stats["ts"].min_value, stats["ts"].max_value, stats["ts"].value_count) == (10, 59, 50)


# Positions


def test_records_and_deletes_are_in_the_order_of_their_positions() -> None:
    rows = full(
        ["a", "b", "c", "d"],
        lakebed_is_delete=pa.array([False, True, False, True]),
        lakebed_position=pa.array([70_000, 9, 3, 4], pa.int64()),
    )
    data, deletes = appended(task_of(rows))
    assert decode_records(data, path=NAME)[RECORD_KEY].to_pylist() == ["c", "a"]
    assert decode_positions(data, path=NAME).tolist() == [3, 70_000]
    assert decode_deletes(deletes, path=NAME)["key"].to_pylist() == ["d", "b"]
    assert decode_positions(deletes, path=NAME).tolist() == [4, 9]
    for block in (data, deletes):
        assert block.header[HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS] == BASE_INSTANT


@pytest.mark.parametrize(
    ("positions", "file_slice", "files"),
    [
        ([3, -1], SLICE, FileSizing()),
        ([3, 3], SLICE, FileSizing()),
        ([4, 3], SLICE, FileSizing(record_positions=False)),
        ([4, 3], replace(SLICE, base=None), FileSizing()),
        ([4, 3], None, FileSizing()),
    ],
    ids=["one unknown", "not distinct", "not wanted", "no base file", "new file group"],
)
def test_no_positions(positions: list[int], file_slice: FileSlice | None, files: FileSizing) -> None:
    rows = full(["a", "b"], lakebed_position=pa.array(positions, pa.int64()))
    (block,) = appended(task_of(rows, context_of(files=files), file_slice))
    assert set(block.header) == {HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA}
    assert decode_records(block, path=NAME)[RECORD_KEY].to_pylist() == ["a", "b"]


def test_blocks_have_positions_on_their_own() -> None:
    rows = full(["a", "b"], lakebed_is_delete=pa.array([False, True]), lakebed_position=pa.array([-1, 7], pa.int64()))
    data, deletes = appended(task_of(rows))
    assert decode_positions(data, path=NAME) is None
    assert decode_positions(deletes, path=NAME).tolist() == [7]


# Partial updates


def test_a_partial_update_has_a_block_with_its_columns_alone() -> None:
    rows = prepared(["a"], ts=pa.array([20]), price=pa.array([9.0]), lakebed_position=pa.array([0], pa.int64()))
    (block,) = appended(task_of(rows, context_of(config=EVENT_TIME)))
    assert block.header[HeaderKey.IS_PARTIAL] == "true"
    assert decode_records(block, path=NAME).column_names == [*META_COLUMNS, "ts", "price"]
    record = json.loads(block.header[HeaderKey.SCHEMA])
    assert (record["name"], record["namespace"]) == ("t_record", "hoodie.t")
    assert decode_positions(block, path=NAME).tolist() == [0]


def test_the_schema_of_a_partial_update_is_spelled_as_in_apache_hudi(unpack) -> None:
    table = unpack("hudi120_mor_nonpart_sql_partial_update")
    headers = [block.header for path in logs_of(table) for block in decode_log_file(path.read_bytes(), path="")]
    (partial,) = [header[HeaderKey.SCHEMA] for header in headers if HeaderKey.IS_PARTIAL in header]
    whole = next(header[HeaderKey.SCHEMA] for header in headers if HeaderKey.IS_PARTIAL not in header)
    assert log_blocks.reduced_schema(whole, (*META_COLUMNS, "price", "ts")) == partial


def test_inserts_of_a_partial_update_have_all_columns() -> None:
    rows = prepared(
        ["a", "new"],
        price=pa.array([9.0, 8.0]),
        lakebed_is_insert=pa.array([False, True]),
        lakebed_position=pa.array([0, -1], pa.int64()),
    )
    task = task_of(rows)
    (written,) = append_log_file(task)
    inserts, updates = blocks_of(task.context.storage)
    assert HeaderKey.IS_PARTIAL not in inserts.header
    assert decode_records(inserts, path=NAME).select([RECORD_KEY, *SCHEMA.names]).to_pylist() == [
        {RECORD_KEY: "new", "id": None, "ts": None, "price": 8.0, "note": None}
    ]
    assert updates.header[HeaderKey.IS_PARTIAL] == "true"
    assert decode_records(updates, path=NAME)[RECORD_KEY].to_pylist() == ["a"]
    assert decode_positions(updates, path=NAME).tolist() == [0]
    seqnos = [seqno for block in (inserts, updates) for seqno in decode_records(block, path=NAME)[COMMIT_SEQNO]]
    assert len(set(seqnos)) == 2
    # A range of `ts` over the inserts alone would hide the row that the update completes.
    assert {stats.column for stats in written.column_stats} == {COMMIT_TIME, PARTITION_PATH, RECORD_KEY, "price"}


def test_a_partial_update_must_set_the_ordering_field() -> None:
    with pytest.raises(InvalidInputError, match="does not set ts"):
        append_log_file(task_of(prepared(["a"], price=pa.array([9.0])), context_of(config=EVENT_TIME)))


def test_an_insert_must_set_required_columns() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32())])
    for log_format in ("avro", "parquet"):
        context = context_of(schema, files=FileSizing(log_format=log_format))
        with pytest.raises(InvalidInputError, match="id"):
            append_log_file(task_of(prepared(["a"], n=pa.array([1], pa.int32())), context, None))


# What the commit is told


def test_write_stat_of_a_log_file() -> None:
    rows = full(
        ["a", "b", "c", "d"],
        lakebed_is_delete=pa.array([False, False, False, True]),
        lakebed_is_insert=pa.array([False, True, False, False]),
    )
    task = task_of(rows, file_slice=replace(SLICE, logs=(log_of(InstantTime("20261116000150000")),)))
    (written,) = append_log_file(task)
    size = len(task.context.storage.get(f"eu/{NAME}"))
    assert replace(written.stat, extra={}) == WriteStat(
        file_id="f1-0",
        path=f"eu/{NAME}",
        partition="eu",
        prev_commit=INSTANT,
        num_writes=3,
        num_deletes=1,
        num_updates=2,
        num_inserts=1,
        total_write_bytes=size,
        file_size=size,
        base_file="",
        log_files=(NAME,),
        log_version=1,
        log_offset=0,
    )
    assert written.inserted_keys.to_pylist() == ["b"]
    assert written.deleted_keys.to_pylist() == ["d"]
    assert load_markers(task.context.storage, INSTANT) == {f"eu/{NAME}"}


def test_write_stat_in_a_new_file_group() -> None:
    rows = full(["a", "b"], lakebed_is_delete=pa.array([False, True]))
    (written,) = append_log_file(task_of(rows, file_slice=None))
    assert (written.stat.num_inserts, written.stat.num_updates, written.stat.prev_commit) == (1, 0, INSTANT)
    assert written.inserted_keys.to_pylist() == ["a"]
    assert written.deleted_keys is None


def test_without_a_word_from_tagging_no_key_of_a_slice_is_new() -> None:
    rows = full(["a", "b"], lakebed_is_delete=pa.array([False, True]))
    (written,) = append_log_file(task_of(rows))
    assert (written.stat.num_inserts, written.stat.num_updates) == (0, 1)
    assert written.inserted_keys is None
    assert written.deleted_keys.to_pylist() == ["b"]


def test_with_change_data_the_stat_names_the_slice() -> None:
    # Apache Hudi lists earlier log files newest first, then its own.
    first, second = log_of(InstantTime("20261116000140000")), log_of(InstantTime("20261116000150000"))
    context = context_of(config=config_of(**{"hoodie.table.cdc.enabled": "true"}))
    (written,) = append_log_file(task_of(full(["a"]), context, replace(SLICE, logs=(first, second))))
    assert (written.stat.prev_commit, written.stat.base_file) == (BASE_INSTANT, BASE.name)
    assert written.stat.log_files == (second.name, first.name, NAME)
    (written,) = append_log_file(task_of(full(["a"]), replace(context, storage=context_of().storage), None))
    assert (written.stat.prev_commit, written.stat.base_file) == (INSTANT, "")


def test_deletes_alone_have_statistics_without_values() -> None:
    (written,) = append_log_file(task_of(prepared(["a"], lakebed_is_delete=pa.array([True]))))
    assert written.column_stats == tuple(
        ColumnStats(NAME, column, None, None, 0, 0, value_type=ValueType.NULL)
        for column in (COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *SCHEMA.names)
    )


def test_no_statistics_where_the_table_keeps_none() -> None:
    for rows in (full(["a"]), prepared(["a"], lakebed_is_delete=pa.array([True]))):
        (written,) = append_log_file(task_of(rows, context_of(stats_columns=())))
        assert written.column_stats == ()


def test_a_delete_that_comes_too_late_deletes_no_key() -> None:
    context = context_of(config=EVENT_TIME)
    write_base(context, full(["a", "b", "c"]))
    rows = full(["a", "b", "c"], ts=pa.array([10, 10, None], pa.int64()), lakebed_is_delete=pa.array([True] * 3))
    (written,) = append_log_file(task_of(rows, context))
    assert written.deleted_keys.to_pylist() == ["a", "c"]
    assert (written.stat.num_deletes, written.deleted) == (3, 2)


# The store


@pytest.mark.parametrize("fault", [Fault.LOST_AFTER, Fault.LOST_BEFORE])
def test_a_lost_answer_is_settled_by_reading_back(fault: Fault) -> None:
    context = context_of()
    faulty = FaultyStorage(context.storage, at({2: fault}))
    append_log_file(task_of(full(["a"]), replace(context, storage=faulty)))
    assert len(blocks_of(context.storage)) == 1


def test_a_file_of_another_attempt_is_left_alone() -> None:
    context = context_of()
    context.storage.create(f"eu/{NAME}", b"other")
    with pytest.raises(WriteConflictError, match="already exists"):
        append_log_file(task_of(full(["a"]), context))
    assert context.storage.get(f"eu/{NAME}") == b"other"


def test_a_store_that_does_not_answer() -> None:
    context = context_of()
    faulty = FaultyStorage(context.storage, at({2: Fault.UNAVAILABLE}))
    with pytest.raises(StorageUnavailableError):
        append_log_file(task_of(full(["a"]), replace(context, storage=faulty)))


@pytest.mark.parametrize("lot_bytes", [1, 1 << 20])
@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_log_files_of_one_write_are_noted_before_they_are_stored(
    monkeypatch: pytest.MonkeyPatch, lot_bytes: int, count: int
) -> None:
    monkeypatch.setattr(log_file, "_LOT_BYTES", lot_bytes)
    context = context_of()
    tasks = [
        replace(
            task_of(full(keys), context), number=number, token=f"{number}-7-8", group=FileGroupId("eu", f"f{number}-0")
        )
        for number, keys in enumerate([["a"], [], *(["b", "c"] for _ in range(7))][:count])
    ]
    tasks = [replace(task, file_slice=FileSlice(task.group, INSTANT, None)) for task in tasks]
    noted: list[frozenset[str]] = []
    create_all = type(context.storage).create_all

    def create(storage: Storage, files: Mapping[str, bytes]) -> dict[str, Outcome]:
        noted.append(load_markers(storage, INSTANT))
        assert noted[-1] >= files.keys()
        return create_all(storage, files)

    lot = begin_lot(tasks)
    assert not load_markers(context.storage, INSTANT)
    monkeypatch.setattr(type(context.storage), "create_all", create)
    written, beside = append_log_files(tasks, lot, lambda: load_markers(context.storage, INSTANT))
    assert len(beside) == len(written)
    assert [file.stat.num_writes for file in written] == [1, *[2] * (count - 2)]
    assert load_markers(context.storage, INSTANT) == {file.stat.path for file in written}
    assert len(noted) == (len(written) if lot_bytes == 1 else 1)


# What Apache Hudi wrote


HUDI_TABLES = [
    "hudi120_mor_part_compacted",
    "hudi120_mor_nonpart_event_time_deletes",
    "hudi120_mor_nonpart_sql_partial_update",
    "hudi120_mor_nonpart_all_indexes",
    "hudi111_mor_part_event_time",
    "hudi111_mor_part_commit_time",
    "hudi111_mor_part_cdc",
    "hudi111_mor_part_parquet_log_blocks",
    "hudi111_mor_part_bucket_complexkey",
    "hudi102_mor_nonpart_all_indexes",
]


@pytest.mark.parametrize("name", HUDI_TABLES)
def test_the_same_rows_make_the_log_files_that_apache_hudi_wrote(unpack, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(unpack(name).path, tmp_path / name)
    handle = open_handle(copy)
    state = handle.state()
    known, seen = known_stats(state.metadata), 0
    for instant in state.timeline.commits():
        snapshot = state.snapshot_at(InstantTime(str(int(instant.requested_at) - 1)))
        before = {file_slice.group: file_slice for file_slice in state.slices(snapshot)}
        for stat in state.documents.commit(instant).stats:
            path = copy / stat.path
            if ".log." in stat.path and path.exists():
                theirs = decode_log_file(path.read_bytes(), path=stat.path)
                path.unlink()
                task = task_like(handle.storage, state.config, stat, theirs, before, known)
                (written,) = append_log_file(task)
                check_blocks(decode_log_file(path.read_bytes(), path=stat.path), theirs)
                check_stat(written.stat, stat)
                assert {stats.column: stats for stats in written.column_stats} == known.get(path.name, {})
                seen += 1
    assert seen


def known_stats(metadata: object) -> dict[str, dict[str, ColumnStats]]:
    """Statistics of files by column, as the metadata table has them; none of V1, which has no types."""
    assert isinstance(metadata, MetadataTable)
    found: dict[str, dict[str, ColumnStats]] = {}
    table = read_column_stats(metadata, "column_stats")
    for row in table.filter(table["type_ordinal"].is_valid()).to_pylist():
        bounds = [next((value for value in row[end].values() if value is not None), None) for end in ("min", "max")]
        counts = row["value_count"], row["null_count"]
        value_type = ValueType(row["type_ordinal"])
        stats = ColumnStats(row["file_name"], row["column"], *bounds, *counts, value_type=value_type)
        found.setdefault(stats.file_name, {})[stats.column] = stats
    return found


def task_like(
    storage: Storage,
    config: TableConfig,
    stat: WriteStat,
    blocks: tuple[LogBlock, ...],
    before: dict[FileGroupId, FileSlice],
    known: dict[str, dict[str, ColumnStats]],
) -> WriteTask:
    """A task with the rows of a log file, in the state that its table had."""
    log = decode_data_file_name(stat.path.rpartition("/")[2])
    assert isinstance(log, LogFile)
    avro_json = blocks[0].header[HeaderKey.SCHEMA]
    if HeaderKey.IS_PARTIAL in blocks[0].header:  # It has some columns, so the table has another.
        avro_json = avro_json.replace('"fields":[', '"fields":[{"name":"other","type":["null","int"]},', 1)
    columns = [field for field in arrow_schema(avro_json, path="") if field.name not in META_COLUMNS]
    context = context_of(
        pa.schema(columns),
        config,
        storage=storage,
        avro_json=avro_json,
        instant=log.instant,
        stats_columns=tuple(known.get(log.name, ())),
        files=FileSizing(log_format="parquet" if blocks[0].kind is BlockKind.PARQUET_DATA else "avro"),
    )
    rows = pa.concat_tables([prepared_like(block, config) for block in blocks], promote_options="default")
    group = FileGroupId(stat.partition, stat.file_id)
    return WriteTask(context, 0, group, before.get(group), InMemory(rows), log.write_token)


def prepared_like(block: LogBlock, config: TableConfig) -> pa.Table:
    """Rows that could have made the block."""
    positions = decode_positions(block, path="")
    is_delete = block.kind is BlockKind.DELETE
    if is_delete:
        deletes = decode_deletes(block, path="")
        columns = {RECORD_KEY: deletes["key"], PARTITION_PATH: deletes["partition"]}
        if deletes["ordering"].type != pa.null():
            columns[config.ordering_fields[0]] = deletes["ordering"]
    else:
        records = decode_records(block, path="")
        kept = [name for name in records.column_names if name not in (COMMIT_TIME, COMMIT_SEQNO, FILE_NAME)]
        columns = {name: records[name] for name in kept}
    size = len(columns[RECORD_KEY])
    columns[IS_DELETE] = pa.array([is_delete] * size)
    columns[POSITION] = pa.array([-1] * size if positions is None else positions, pa.int64())
    return pa.table(columns)


def check_blocks(ours: tuple[LogBlock, ...], theirs: tuple[LogBlock, ...]) -> None:
    assert [block.kind for block in ours] == [block.kind for block in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.header == other.header
        if mine.kind is BlockKind.DELETE:
            assert mine.content == other.content
        else:  # Sequence numbers count what a JVM wrote.
            mine_rows, other_rows = (decode_records(block, path="").drop([COMMIT_SEQNO]) for block in (mine, other))
            assert mine_rows.equals(other_rows)


def check_stat(mine: WriteStat, other: WriteStat) -> None:
    """All is equal but sizes, which depend on sequence numbers, and how long it took."""
    size = {"total_write_bytes": mine.file_size, "file_size": mine.file_size}
    took = {"runtimeStats": mine.extra["runtimeStats"]}
    assert mine == replace(other, **size, extra={**other.extra, **took})
    assert mine.total_write_bytes == mine.file_size > 0


# A plain model


UTC = timezone.utc
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "small": (pa.int32(), [-(2**31), -1, 0, 2**31 - 1]),
    "large": (pa.int64(), [-(2**63), -1, 0, 2**63 - 1]),
    "ratio": (pa.float32(), [0.0, -1.5, float("inf")]),
    "amount": (pa.float64(), [0.0, -1e300, 0.1]),
    "text": (pa.string(), ["", "a", "é😀", "x" * 200]),
    "raw": (pa.binary(), [b"", b"\0\xff"]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2026, 11, 16)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, 1, 1, 1, UTC)]),
    "at_ms": (pa.timestamp("ms", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), datetime(1950, 1, 1, tzinfo=UTC)]),
    "wall": (pa.timestamp("us"), [datetime(2026, 1, 1, 0, 0, 0, 7)]),
    "wall_ms": (pa.timestamp("ms"), [datetime(1950, 1, 1), datetime(2950, 1, 1)]),
    "clock": (pa.time64("us"), [time(23, 59, 59, 999_999)]),
    "price": (pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.00")]),
    "wide": (pa.decimal128(38, 10), [Decimal("1e27"), Decimal("-1e-10")]),
    "code": (pa.binary(3), [b"abc", b"\0\0\0"]),
    "tags": (pa.list_(pa.string()), [[], ["a", None, ""], ["b"]]),
    "counts": (pa.map_(pa.string(), pa.int64()), [[], [("k", 1), ("l", None)]]),
    "place": (
        pa.struct([("city", pa.string()), ("spots", pa.list_(pa.struct([("x", pa.float64())])))]),
        [{"city": None, "spots": None}, {"city": "Oslo", "spots": [{"x": 1.0}, None, {"x": None}]}],
    ),
}
ORDERING = ("small", "large", "amount", "text", "day", "at", "at_ms", "wall_ms", "price")
KEYS = [f"k{number}" for number in range(6)]


@dataclass
class Model:
    """One dictionary of rows, one event at a time."""

    schema: pa.Schema
    ordering: tuple[str, ...]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    ranks: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)
    """Ordering values of the last event of a key that was accepted; None: a delete that always applies."""

    def put(self, key: str, values: dict[str, Any]) -> None:
        if self._accepts(key, values):
            older = self.rows.get(key, dict.fromkeys(self.schema.names))
            self.rows[key] = {**older, **values}

    def delete(self, key: str, values: dict[str, Any]) -> None:
        event_time = [values.get(name) for name in self.ordering]
        always = None in event_time or (self.ordering == ("small",) and event_time == [0])  # The int 0 says: always.
        if self._accepts(key, None if always else values):
            self.rows.pop(key, None)

    def _accepts(self, key: str, values: dict[str, Any] | None) -> bool:
        if not self.ordering:
            return True
        rank = None if values is None else tuple(_rank(values[name]) for name in self.ordering)
        current = self.ranks.get(key)
        if rank is None or current is None or rank >= current:
            self.ranks[key] = rank
            return True
        return False


def _rank(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


@st.composite
def histories(draw: st.DrawFn) -> tuple[pa.Schema, tuple[str, ...], list[tuple[str, list[str], list[dict[str, Any]]]]]:
    """A schema, the ordering fields, and batches: what they do, the columns they give, and their rows."""
    names = draw(st.lists(st.sampled_from(list(POOLS)), min_size=1, max_size=5, unique=True))
    ordering = tuple(draw(st.lists(st.sampled_from(ORDERING), max_size=2, unique=True)))
    names += [name for name in ordering if name not in names]
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["full", "full", "partial", "delete", "delete keys"]))
        given = names
        if kind == "partial":
            given = [name for name in names if name in ordering or draw(st.booleans())]
        keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=len(KEYS), unique=True))
        cells = {name: st.none() | st.sampled_from(POOLS[name][1]) for name in given}
        rows = [{**{name: draw(values) for name, values in cells.items()}, "key": key} for key in keys]
        deletes = [kind != "partial" and (kind != "full" or draw(st.booleans())) for _ in rows]
        batches.append((kind, given, [{**row, "delete": gone} for row, gone in zip(rows, deletes, strict=True)]))
    return pa.schema([(name, POOLS[name][0]) for name in names]), ordering, batches


@settings(max_examples=100)
@given(histories(), st.sampled_from(["avro", "parquet"]), st.booleans(), st.randoms(use_true_random=False))
def test_appended_rows_are_read_as_the_model_has_them(history, log_format, has_base, rng) -> None:
    schema, ordering, batches = history
    config = config_of("EVENT_TIME_ORDERING", ",".join(ordering)) if ordering else config_of()
    context = context_of(schema, config, files=FileSizing(log_format=log_format))
    model, file_slice, places = Model(schema, ordering), None, {}
    buried: set[str] = set()
    if has_base:
        first = [{**dict.fromkeys(schema.names), **row} for row in batches[0][2]]
        base = prepared_of(first, schema.names, schema)
        write_base(context, base)
        file_slice, places = SLICE, {row["key"]: place for place, row in enumerate(first)}
        for row in first:
            model.put(row["key"], {name: row[name] for name in schema.names})
    for number, (kind, columns, rows) in enumerate(batches):
        instant = InstantTime(str(int(INSTANT) + number))
        now = replace(context, instant=instant)
        alive = set(model.rows)
        table = prepared_of(rows, [] if kind == "delete keys" else columns, schema)
        table = table.append_column(IS_INSERT, pa.array([row["key"] not in alive for row in rows]))
        known = rng.random() < 0.7
        spots = [places.get(row["key"], -1) if known and row["key"] in alive else -1 for row in rows]
        spots = [DELETED if row["key"] in buried - alive else at for row, at in zip(rows, spots, strict=True)]
        buried |= {row["key"] for row in rows if row["delete"]}
        table = table.append_column(POSITION, pa.array(spots, pa.int64()))
        (written,) = append_log_file(WriteTask(now, number, GROUP, file_slice, InMemory(table), TOKEN))
        for row in rows:
            values = {} if kind == "delete keys" else {name: row[name] for name in columns}
            model.delete(row["key"], values) if row["delete"] else model.put(row["key"], values)
        name = written.stat.path.rpartition("/")[2]
        log = decode_data_file_name(name, size=written.stat.file_size)
        assert isinstance(log, LogFile)
        file_slice = FileSlice(GROUP, instant, None, (log,)) if file_slice is None else added(file_slice, log)
        check_read(now, file_slice, model)
        check_keys(written, rows, alive, model)


def added(file_slice: FileSlice, log: LogFile) -> FileSlice:
    return replace(file_slice, logs=(*file_slice.logs, log))


def prepared_of(rows: list[dict[str, Any]], given: list[str], schema: pa.Schema) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], schema.field(name).type) for name in given}
    table = prepared([row["key"] for row in rows], **columns)
    return table.append_column(IS_DELETE, pa.array([row["delete"] for row in rows]))


def check_read(context: WriteContext, file_slice: FileSlice, model: Model) -> None:
    columns = (RECORD_KEY, *context.schema.names)
    scan = SliceTask(context.storage, context.config, file_slice, with_meta(context.schema), columns, context.counts)
    found = read_slice(scan).sort_by(RECORD_KEY)
    expected = [{RECORD_KEY: key, **model.rows[key]} for key in sorted(model.rows)]
    assert found.to_pylist() == expected


def check_keys(written: Any, rows: list[dict[str, Any]], alive: set[str], model: Model) -> None:
    inserted = {row["key"] for row in rows if not row["delete"]} & set(model.rows) - alive
    assert set(written.inserted_keys.to_pylist() if written.inserted_keys else ()) == inserted
    assert set(written.deleted_keys.to_pylist() if written.deleted_keys else ()) == alive - set(model.rows)


# Helpers


def write_base(context: WriteContext, rows: pa.Table) -> None:
    """A base file with the rows, as far as reading needs one."""
    size = rows.num_rows
    meta = {name: pa.array([""] * size) for name in META_COLUMNS}
    meta[RECORD_KEY] = rows[RECORD_KEY]
    table = pa.table({**meta, **{name: rows[name] for name in context.schema.names}})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    context.storage.create(f"eu/{BASE.name}", sink.getvalue().to_pybytes())


def log_of(instant: InstantTime) -> LogFile:
    name = f".f1-0_{instant}.log.1_0-1-2"
    return LogFile(name, "f1-0", instant, 1, "0-1-2")


def logs_of(table: RealTable) -> list[Path]:
    return [path for path in sorted(table.path.rglob(".*.log.*")) if ".hoodie" not in path.parts]


def block_of(rows: int) -> log_blocks.RecordBlock:
    names = [str(number) for number in range(rows)]
    data = pa.table({"id": names, "ts": range(rows), "price": [0.5] * rows, "note": ["same"] * rows}, schema=SCHEMA)
    meta = dict.fromkeys(META_COLUMNS, names)
    return log_blocks.RecordBlock(
        pa.table({**meta, **dict(zip(data.column_names, data.columns, strict=True))}), None, False
    )


def test_how_columns_are_encoded_is_found_once_for_a_write_and_not_from_a_few_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = encoding.column_options

    def counted(rows: pa.Table, compression: str, *, is_log: bool) -> dict[str, Any]:
        asked.append(rows.num_rows)
        return real(rows, compression, is_log=is_log)

    monkeypatch.setattr(encoding, "column_options", counted)
    context = context_of(files=FileSizing(log_format="parquet"))
    task = WriteTask(context, 3, GROUP, SLICE, InMemory(SCHEMA.empty_table()), TOKEN)
    for rows in (1, 600, 700, 2):
        (block,) = decode_log_file(log_blocks.encode_record_block(task, block_of(rows)), path="log")
        assert decode_records(block, path="log").num_rows == rows
    assert asked == [1, 600]
