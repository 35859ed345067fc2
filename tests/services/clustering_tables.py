"""Tables for tests of clustering: many small files, and what must hold after each step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from interop.write_peer import index_differences
from lakebed.engine.engines import Engine, InProcess
from lakebed.options import parse_write_options
from lakebed.services.values import ServiceContext
from lakebed.storage import Storage
from lakebed.table import TableHandle, open_handle
from lakebed.table.transactions import open_ports
from lakebed.timeline.config import load_config
from lakebed.transaction.heartbeats import Timing
from lakebed.transaction.transactions import Transactions

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()), ("zone", pa.int32())]
)
CITIES = ("oslo", "rome")
INDEXES = ("record", "column_stats", "bloom")
SMALL_FILES = {"hoodie.parquet.small.file.limit": "0"}
"""Every write makes files of its own."""


def new_table(path: Path, table_type: str = "cow", **given: Any) -> lakebed.Table:
    asked = {"schema": SCHEMA, "key": "id", "partition_by": "city", "ordering": "ts", "table_type": table_type}
    return lakebed.create_table(path, **(asked | {"indexes": list(INDEXES), "options": SMALL_FILES} | given))


def rows_of(numbers: range, ts: int = 1) -> pa.Table:
    """A row per number; `fare` and `zone` are in no order."""
    rows = [
        {"id": f"k{n}", "city": CITIES[n % 2], "ts": ts, "fare": float(n * 37 % 101), "zone": n * 11 % 29}
        for n in numbers
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def fill(table: lakebed.Table, writes: int = 4, rows: int = 10) -> None:
    """A few writes with new keys, each of which also updates a key of the one before."""
    for write in range(writes):
        first = max(0, write * rows - 1)
        table.upsert(rows_of(range(first, (write + 1) * rows), ts=write + 1))


def service_context(
    path: Path | str,
    *,
    storage: Storage | None = None,
    options: Mapping[str, str] | None = None,
    engine: Engine | None = None,
    timing: Timing | None = None,
) -> ServiceContext:
    """What a service of another process would be given."""
    handle = open_handle(path) if storage is None else TableHandle(storage, load_config(storage))
    wanted = parse_write_options({**SMALL_FILES, **(options or {})})
    transactions = Transactions(open_ports(handle.storage, wanted.lock), timing or Timing())
    return ServiceContext(handle, transactions, engine or InProcess(), wanted)


def content(path: Path | str) -> list[dict[str, Any]]:
    """All rows with who wrote them when; not with their files, which clustering changes."""
    rows = lakebed.open_table(path).to_arrow().drop_columns(["_hoodie_file_name"]).to_pylist()
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"], row["ts"]))


def check_sound(path: Path | str) -> None:
    """Indexes say what a scan says, and a reader without them sees the same rows."""
    assert index_differences(Path(path)) == []
    without = lakebed.open_table(path, options={"hoodie.metadata.enable": "false"}).to_arrow()
    assert without.num_rows == len(content(path))
