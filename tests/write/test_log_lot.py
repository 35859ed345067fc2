"""Log files that are encoded from the rows of a write say what those say whose rows were brought together first."""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakebed.api import create_table, open_table
from lakebed.format.log.blocks import decode_records
from lakebed.format.log.file import BlockKind, HeaderKey, decode_log_file
from lakebed.model.index import EntryOrdering
from lakebed.model.words import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from lakebed.write import execute
from lakebed.write.files import log as log_file
from lakebed.write.files import log_blocks
from lakebed.write.files.log_blocks import prepare_lot
from lakebed.write.plan import Picked
from lakebed.write.values import IS_DELETE, WriteTask

pytestmark = pytest.mark.usefixtures("compiled_kernels")

COUNT = 3000
NAN = float("nan")


def rows(numbers: range, ts: int) -> pa.Table:
    some = lambda values: [None if n % 7 == 3 else value for n, value in zip(numbers, values, strict=True)]  # noqa: E731
    return pa.table(
        {
            "id": [f"key-{n:05}" for n in numbers],
            "city": [("oslo", "lima")[n % 2] for n in numbers],
            "ts": pa.array([ts] * len(numbers), pa.int64()),
            "word": pa.array(some([f"word {n % 5}" for n in numbers]), pa.string()),
            "text": pa.array(some([f"text {n * 7919 % 1000}" for n in numbers]), pa.string()),
            "fare": pa.array([NAN if n == numbers[-1] else n / 8 for n in numbers], pa.float64()),
            "price": pa.array(some([decimal.Decimal(n - 500) / 100 for n in numbers]), pa.decimal128(10, 2)),
            "day": pa.array(some([dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in numbers]), pa.date32()),
            "ok": pa.array(some([n % 3 == 0 for n in numbers]), pa.bool_()),
            "none": pa.nulls(len(numbers), pa.string()),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("lots") / "table")
    first = rows(range(COUNT), 1)
    table = create_table(
        where, schema=first.schema, key="id", partition_by="city", ordering="ts", table_type="mor", indexes=["record"]
    )
    table.upsert(first)
    return where


@pytest.fixture
def tasks(path: str, monkeypatch: pytest.MonkeyPatch) -> list[WriteTask]:
    """Those of an upsert, half of whose keys are new, which ends before it has written anything."""
    seen: list[WriteTask] = []

    def stop(given: list[WriteTask], *_: Any) -> None:
        seen.extend(given)
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "append_log_files", stop)
    with pytest.raises(KeyboardInterrupt):
        open_table(path).upsert(rows(range(COUNT // 2, COUNT // 2 + COUNT), 2))
    return seen


def records(draft: log_file.LogDraft | None) -> pa.Table:
    assert draft is not None
    (block,) = decode_log_file(draft.data, path="log")
    assert block.kind is BlockKind.PARQUET_DATA
    return decode_records(block, path="log")


def test_files_are_the_same_either_way(tasks: list[WriteTask]) -> None:
    lot = prepare_lot(tasks)
    assert lot is not None
    assert len(tasks) == 2
    for task in tasks:
        one, other = log_file._draft(task, lot), log_file._draft(task)
        assert one is not None
        assert other is not None
        assert repr(records(one).to_pylist()) == repr(records(other).to_pylist())  # NaN differs from itself.
        assert records(one).schema.equals(records(other).schema)
        assert repr(one.stats) == repr(other.stats)
        assert {stats.column for stats in one.stats.columns} > {"id", "fare", "price", "none", RECORD_KEY}
        headers = [next(iter(decode_log_file(draft.data, path="log"))).header for draft in (one, other)]
        assert headers[0] == headers[1]
        assert HeaderKey.SCHEMA in headers[0]
        written = [log_file._written(replace(draft, log=one.log)) for draft in (one, other)]
        assert written[0].stat == replace(written[1].stat, file_size=len(one.data), total_write_bytes=len(one.data))
        assert written[0].inserted_keys.equals(written[1].inserted_keys)
        assert one.count == COUNT // 2


def test_rows_are_written_in_their_order_with_numbers(tasks: list[WriteTask]) -> None:
    for task in tasks:
        found = records(log_file._draft(task, prepare_lot(tasks)))
        assert isinstance(task.rows, Picked)
        assert found["id"].to_pylist() == task.rows.table["id"].take(pa.array(task.rows.assignment.rows)).to_pylist()
        prefix = f"{task.context.instant}_{task.number}_"
        assert found[COMMIT_SEQNO].to_pylist() == [f"{prefix}{n}" for n in range(found.num_rows)]
        assert found.column_names[:5] == [*META_COLUMNS]


def test_a_table_reads_what_was_written_so(path: str) -> None:
    table = open_table(path)
    table.upsert(rows(range(COUNT // 2, COUNT // 2 + COUNT), 2))
    found = table.to_arrow().select(rows(range(1), 1).column_names).sort_by("id")
    expected = pa.concat_tables(
        [rows(range(COUNT), 1).slice(0, COUNT // 2), rows(range(COUNT // 2, COUNT * 3 // 2), 2)]
    )
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    "what", ["few rows", "avro", "deletes", "other tables", "positions", "some columns", "ordering"]
)
def test_what_is_encoded_one_by_one(tasks: list[WriteTask], what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tasks
    assert isinstance(first.rows, Picked)
    context, table, own = first.context, first.rows.table, first.rows.assignment
    if what == "few rows":
        monkeypatch.setattr(log_blocks, "serves_pages", lambda rows: rows > COUNT)
    elif what == "avro":
        first = replace(first, context=replace(context, files=replace(context.files, log_format="avro")))
    elif what == "ordering":
        first = replace(first, context=replace(context, entry_ordering=EntryOrdering("ts", is_current=False)))
    else:
        changed = {
            "deletes": replace(first.rows, table=table.append_column(IS_DELETE, pa.repeat(False, table.num_rows))),
            "other tables": replace(first.rows, table=table.slice(0)),
            "positions": replace(first.rows, assignment=replace(own, positions=np.arange(len(own.updates)))),
            "some columns": replace(first.rows, table=table.drop_columns(["fare"])),
        }
        first = replace(first, rows=changed[what])
    assert prepare_lot([first, second]) is None
