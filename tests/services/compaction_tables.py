"""Merge-on-read tables for tests of compactions, and what must hold of them whatever is compacted when."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.engines import Engine, InProcess
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.words import META_COLUMNS
from lakebed.options import WriteOptions, parse_write_options
from lakebed.read.scan import plan_scan, read_arrow
from lakebed.services.values import ServiceContext
from lakebed.storage import Storage, open_storage
from lakebed.table import TableHandle, open_handle
from lakebed.table.transactions import open_ports, open_transactions
from lakebed.timeline.config import load_config
from lakebed.transaction.transactions import Transactions
from tables import TRIPS as SCHEMA

CITIES = ("oslo", "lima")
STATISTICS = {"hoodie.metadata.index.column.stats.enable": "true"}
_NUMBERS = itertools.count()


def new_table(folder: Path, **given: Any) -> lakebed.Table:
    asked: dict[str, Any] = {"table_type": "mor", "indexes": ("record", "column_stats"), "ordering": "ts"}
    path = folder / f"t{next(_NUMBERS)}"
    return lakebed.create_table(path, schema=SCHEMA, key="id", partition_by="city", **asked | given)


def url_of(table: lakebed.Table) -> str:
    return str(table).partition("'")[2].rpartition("'")[0]


def context_of(
    table: lakebed.Table | str, *, storage: Storage | None = None, engine: Engine | None = None, **options: Any
) -> ServiceContext:
    """A process of its own that works on the table."""
    own = storage or open_storage(url_of(table) if isinstance(table, lakebed.Table) else table)
    given = WriteOptions(**options) if options else parse_write_options({})
    transactions = open_transactions(open_ports(own, {}), heartbeat_ms=60_000, heartbeat_misses=2)
    return ServiceContext(TableHandle(own, load_config(own)), transactions, engine or InProcess(), given)


def row(number: int, ts: int, fare: float | None = None) -> dict[str, Any]:
    return {"id": f"k{number}", "city": CITIES[number % 2], "ts": ts, "fare": float(ts) if fare is None else fare}


def rows(*pairs: tuple[int, int]) -> pa.Table:
    return pa.Table.from_pylist([row(*pair) for pair in pairs], SCHEMA)


def all_rows(table: lakebed.Table, *, kept: bool = True) -> list[dict[str, Any]]:
    """Everything that rows are, but for the file that they are in; without meta columns if these are not `kept`."""
    found = table.to_arrow()
    left_out = ["_hoodie_file_name"] if kept else list(META_COLUMNS)
    return sorted(found.drop_columns(left_out).to_pylist(), key=lambda each: (each["id"], each["city"]))


def values(table: lakebed.Table) -> dict[str, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len({each["id"] for each in found}) == len(found), "a key is there twice"
    return {each["id"]: each["ts"] for each in found}


def logs_of(table: lakebed.Table) -> list[int]:
    return [len(each.logs) for each in table.files()]


def die(table: lakebed.Table, instant: str) -> None:
    """Makes the heartbeat of an instant too old to be alive."""
    path = Path(url_of(table), ".hoodie/.heartbeat", instant)
    if path.exists():
        old = path.stat().st_mtime - 10_000
        os.utime(path, (old, old))


def check_table(table: lakebed.Table) -> None:
    """The metadata table agrees with the commits, with the files on disk and with the rows."""
    state = open_handle(url_of(table)).state()
    assert isinstance(state.metadata, MetadataTable)
    listed = {f"{partition}/{file.name}": file.size for partition, files in state.files.items() for file in files}
    named = {stat.path: stat.file_size for i in state.timeline.commits() for stat in state.documents.commit(i).stats}
    assert listed == named
    for path, size in listed.items():
        assert Path(url_of(table), path).stat().st_size == size
    scan = read_arrow(plan_scan(state))
    ids = [name.partition("_")[0] for name in scan["_hoodie_file_name"].to_pylist()]
    columns = (scan["_hoodie_record_key"].to_pylist(), scan["_hoodie_partition_path"].to_pylist(), ids)
    if state.metadata.has("record_index"):
        entries = read_record_index(state.metadata)
        found = zip(*(entries[name].to_pylist() for name in ("key", "partition", "file_id")), strict=True)
        assert sorted(found) == sorted(zip(*columns, strict=True))
    check_pruning(table)


def check_pruning(table: lakebed.Table) -> None:
    """Statistics leave out no row: each is found by its own values."""
    for each in table.to_arrow(columns=["id", "ts", "city"]).to_pylist():
        where = f"ts = {each['ts']} and city = '{each['city']}'"
        found = table.to_arrow(columns=["id"], where=where)["id"].to_pylist()
        assert each["id"] in found, where


def before_commit(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """The next write does some work once its files are there, before it commits."""
    complete = Transactions.complete

    def work_first(*arguments: Any, **named: Any) -> Any:
        monkeypatch.undo()
        work()
        return complete(*arguments, **named)

    monkeypatch.setattr(Transactions, "complete", work_first)
