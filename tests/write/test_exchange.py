"""Writes whose rows are staged and exchanged, because they are too many for one process, leave what others leave.

A reader of record batches takes the way of a large DataFrame if it has more bytes than a limit, which is none here; a
table takes the short way. Files, batches and lots are made so small that a few hundred rows fill many.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.engine import exchange
from lakebed.engine.engines import InProcess
from lakebed.engine.exchange import Shelf
from lakebed.errors import InvalidInputError, WriteConflictError
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.instant import InstantTime
from lakebed.table import open_handle
from lakebed.write import assign, planner, staging
from lakebed.write.rows import input as write_input
from lakebed.write.rows.arrange import Arrangement
from lakebed.write.staged_plan import GroupRows

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
CITIES = ("oslo", "lima", "rome")
KINDS = ("cow", "mor")
INDEXES = {"global": ("record",), "ordered": ("record",), "partitioned": ("record_partitioned",), "none": ()}
ORDERED = {"lakebed.record.index.ordering": "current"}
MANY_FILES = {"hoodie.parquet.max.file.size": "8000", "hoodie.parquet.small.file.limit": "0"}
FILLED_FILES = {"hoodie.parquet.max.file.size": "15000", "hoodie.parquet.small.file.limit": "14000"}
FEW_SHARDS = {"hoodie.metadata.global.record.level.index.min.filegroup.count": "3"}
UNLIKE = ("_hoodie_commit_seqno", "_hoodie_file_name")

_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_input, "_READER_BYTES", -1)
    monkeypatch.setattr(staging, "CHUNK_BYTES", 8_000)
    monkeypatch.setattr(planner, "_LOT_BYTES", 6_000)
    monkeypatch.setattr(assign, "_ENCODED_SHARE", 1.5)
    monkeypatch.setattr(exchange, "_BATCH_BYTES", 1_000)


def new_table(folder: Path, table_type: str, indexes: tuple[str, ...] = (), **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "options": MANY_FILES} | given
    asked["options"] = asked["options"] | FEW_SHARDS
    path = folder / f"t{next(_NUMBERS)}"
    return lakebed.create_table(path, schema=SCHEMA, table_type=table_type, indexes=indexes, **asked)


def rows(numbers: Any, ts: int, *, shift: int = 0, note: str = "", deleted: Any = ()) -> pa.Table:
    """Rows of those numbers; `shift` moves them to other cities."""
    gone = set(deleted)
    found = [
        {
            "id": f"k{number}",
            "city": CITIES[(number + shift) % len(CITIES)],
            "ts": ts,
            "note": f"{note}{number}",
            "_hoodie_is_deleted": number in gone,
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def stream(given: pa.Table) -> pa.RecordBatchReader:
    """The rows as a reader, which is read once, in pieces."""
    return pa.RecordBatchReader.from_batches(given.schema, given.to_batches(max_chunksize=50))


def folder_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


def stored(table: lakebed.Table) -> list[dict[str, Any]]:
    numbers = {instant.requested_at: number for number, instant in enumerate(table.timeline.commits())}
    found = table.to_arrow().drop_columns(UNLIKE).to_pylist()
    for row in found:
        row["_hoodie_commit_time"] = numbers[row["_hoodie_commit_time"]]
    return sorted(found, key=lambda row: tuple(str(value) for value in row.values()))


def check_index(table: lakebed.Table) -> int:
    """Every row has its entry, and every entry its row; how many."""
    state = open_handle(folder_of(table)).state()
    assert isinstance(state.metadata, MetadataTable)
    entries = read_record_index(state.metadata)
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    scan = table.to_arrow(columns=columns).to_pylist()
    places = sorted((row[columns[0]], row[columns[1]], row[columns[2]].partition("_")[0]) for row in scan)
    named = sorted(tuple(row[name] for name in ("key", "partition", "file_id")) for row in entries.to_pylist())
    assert named == places
    return len(named)


def check_left_nothing(table: lakebed.Table) -> None:
    assert not table.timeline.pending()
    assert [path for path in Path(folder_of(table), ".hoodie/.temp").rglob("*") if path.is_file()] == []


def outcome(result: Any) -> tuple[str, int, int, int]:
    return result.operation, result.inserted, result.updated, result.deleted


def steps(index: str) -> Iterator[tuple[str, pa.Table, dict[str, Any]]]:
    """A history of writes: duplicates, updates, inserts, moves, late rows, deletes, keys that come back."""
    yield "bulk_insert", rows(range(300), 5), {}
    shift = int(index in ("global", "ordered"))
    parts = [
        rows(range(50), 6, note="first"),
        rows(range(280, 500), 6, note="new", deleted=range(490, 500)),
        rows(range(20, 70), 6, note="last"),
        rows(range(60, 80), 6, shift=shift, note="moved"),
        rows(range(80, 90), 1, shift=shift, note="late"),
        rows(range(100, 140), 7, deleted=range(100, 140)),
    ]
    yield "upsert", pa.concat_tables(parts), {}
    yield "insert", rows(range(1000, 1100), 1), {}
    yield "delete", rows([*range(150, 250), *range(5000, 5010)], 0).select(["id", "city"]), {}
    yield "overwrite", rows(range(3001, 3400, len(CITIES)), 9, note="over"), {}
    yield "upsert", rows(range(0, 600, 7), 10).select(["id", "city", "ts", "note"]), {"partial": True}
    yield "upsert", pa.concat_tables([rows(range(100, 120), 6, note="late"), rows(range(150, 180), 2, note="back")]), {}
    parts = [rows(range(100, 140), 8, note="back"), rows(range(160, 250), 1, note="back", deleted=range(160, 170))]
    yield "upsert", pa.concat_tables(parts), {}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_long_way_leaves_what_the_short_way_leaves(tmp_path: Path, kind: str, index: str) -> None:
    given_options = MANY_FILES | (ORDERED if index == "ordered" else {})
    tables = [new_table(tmp_path, kind, INDEXES[index], options=given_options) for _ in range(2)]
    groups = set()
    for number, (operation, given, asked) in enumerate(steps(index)):
        options = FILLED_FILES if number % 2 else MANY_FILES
        table, twin = (lakebed.open_table(folder_of(each), options=options) for each in tables)
        ours = getattr(table, operation)(stream(given), **asked)
        theirs = getattr(twin, operation)(given, **asked)
        assert outcome(ours) == outcome(theirs), operation
        assert stored(table) == stored(twin), operation
        check_left_nothing(table)
        if index != "none":
            check_index(table)
        groups.add(len(table.files()))
    assert min(groups) >= 2 * len(CITIES), "partitions have several file groups"
    assert len(groups) > 2, "files were filled, and new ones made"


@pytest.mark.parametrize("kind", KINDS)
def test_whole_tables_are_overwritten(tmp_path: Path, kind: str) -> None:
    table = new_table(tmp_path, kind, INDEXES["global"])
    table.bulk_insert(rows(range(300), 1))
    table.overwrite(stream(rows(range(250, 260), 2)), whole_table=True)
    assert [row["ts"] for row in stored(table)] == [2] * 10
    assert check_index(table) == 10


def test_generated_keys_have_the_number_of_their_task(tmp_path: Path) -> None:
    table = new_table(tmp_path, "cow")
    state = open_handle(folder_of(table)).state()
    shelf = Shelf(state.storage, "shelf")
    given = pa.table(
        {"_hoodie_record_key": [""] * 3, "_hoodie_partition_path": pa.array(["x"] * 3).dictionary_encode()}
    )
    file = shelf.put(given, ["x"], [0, 3])
    arrangement = Arrangement(state.config, generates=True)
    instant = InstantTime("20260101000000000")
    read = [GroupRows(shelf, arrangement, instant, task, "x", (), (file.range(0, 2),)).read() for task in (0, 7)]
    keys = [key for table in read for key in table["_hoodie_record_key"].to_pylist()]
    assert keys == [f"{instant}_{task}_{row}" for task in (0, 7) for row in (0, 1)]


def test_files_are_sorted_by_key_if_asked(tmp_path: Path) -> None:
    options = MANY_FILES | {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}
    table = new_table(tmp_path, "cow", options=options)
    order = np.random.default_rng(1).permutation(600).tolist()
    result = table.bulk_insert(stream(rows(order, 1)))
    for path in result.files:
        keys = pq.read_table(Path(folder_of(table), path))["_hoodie_record_key"].to_pylist()
        assert keys == sorted(keys)
        assert len(keys) > 1


def test_duplicates_among_inserts_are_combined_if_asked(tmp_path: Path) -> None:
    table = new_table(tmp_path, "cow", options=MANY_FILES | {"hoodie.combine.before.insert": "true"})
    given = pa.concat_tables([rows(range(200), 1), rows(range(100, 300), 2), rows(range(250, 260), 0)])
    assert table.insert(stream(given)).inserted == 300
    assert sorted((row["id"], row["ts"]) for row in stored(table)) == sorted(
        (f"k{number}", 1 if number < 100 else 2) for number in range(300)
    )


def test_a_row_without_a_key_ends_the_write(tmp_path: Path) -> None:
    table = new_table(tmp_path, "cow")
    given = rows(range(300), 1)
    broken = given.set_column(0, "id", pa.array([None if n == 290 else f"k{n}" for n in range(300)]))
    with pytest.raises(InvalidInputError, match="row 290"):
        table.upsert(stream(broken))
    check_left_nothing(table)
    assert table.to_arrow().num_rows == 0


class Interrupted(InProcess):
    """Lets another write complete before the tasks of the last job run."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self._between = between

    def map(self, tasks: Any, run: Any) -> list[Any]:
        results = super().map(tasks, run)
        if self._between is not None and any(hasattr(task, "token") for task in tasks):
            between, self._between = self._between, None
            between()
        return results


@pytest.mark.parametrize("index", ["global", "partitioned"])
def test_a_key_that_another_write_inserted_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    table = new_table(tmp_path, "mor", INDEXES[index], options=MANY_FILES)
    table.bulk_insert(rows(range(20), 1))
    rival = lakebed.open_table(folder_of(table), options=MANY_FILES)
    with monkeypatch.context() as patch:
        patch.setattr(write_input, "InProcess", lambda: Interrupted(lambda: rival.upsert(rows([250], 2))))
        with pytest.raises(WriteConflictError, match="1 of the same keys meanwhile, 'k250'"):
            table.upsert(stream(rows(range(10, 300), 3)))
    check_left_nothing(table)
    assert table.upsert(stream(rows(range(10, 300), 3))).updated == 11
    assert check_index(table) == 300


def test_shards_that_changed_meanwhile_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, "cow", INDEXES["global"])
    table.bulk_insert(rows(range(100), 1))
    rival = lakebed.open_table(folder_of(table))
    monkeypatch.setattr(
        write_input, "InProcess", lambda: Interrupted(lambda: rival.indexes.reshard("record_index", shards=5))
    )
    with pytest.raises(WriteConflictError, match="shards"):
        table.upsert(stream(rows(range(90, 300), 3)))
    assert check_index(table) == 100


def test_an_index_that_was_created_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, "cow")
    table.bulk_insert(rows(range(100), 1))
    rival = lakebed.open_table(folder_of(table))
    monkeypatch.setattr(
        write_input, "InProcess", lambda: Interrupted(lambda: rival.indexes.create("record_index", shards=3))
    )
    with pytest.raises(WriteConflictError, match="record_index was created"):
        table.upsert(stream(rows(range(90), 3)))
    assert check_index(table) == 100
