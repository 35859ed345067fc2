"""Bytes of a record-index entry in base files, by the shape of the keys, beside Apache Hudi's for the same entries.

Hudi loads rows and then builds the index on them; lakebed builds it anew on a copy of that table, in as many shards.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from benchmarks.batches import BENCH, KEY, make_rows
from benchmarks.report import Bar, Line, print_lines
from benchmarks.settings import Settings
from benchmarks.tables import SEED
from benchmarks.writers import TITLES, Writer, running_writers

ROWS_MAX = 300_000
_INDEX = Path(".hoodie/metadata/record_index")
SHAPES: dict[str, str] = {
    "uuid": "",
    "order-000000123456": "order-{number:012d}",
    "1000123456": "{id}",
    "customer_id:4711,order_id:1000123456": "customer_id:{customer},order_id:{id}",
}
"""Keys as they look, and how they are made; the first as all benchmarks have them."""


def main(settings: Settings) -> None:
    """Prints one table."""
    count = min(settings.rows, ROWS_MAX)
    with running_writers(("hudi",), on_spark=True) as writers, tempfile.TemporaryDirectory(dir=BENCH) as made:
        if "hudi" not in writers:
            return
        lines = [_compare(writers["hudi"], Path(made), shape, count) for shape in SHAPES]
    print_lines(f"bytes of an entry in base files of the record index, {count:,} keys", lines)


def _compare(hudi: Writer, folder: Path, shape: str, count: int) -> Line:
    """One shape of keys."""
    rng = np.random.default_rng([SEED, count])
    rows = make_rows(count, rng)
    if SHAPES[shape]:
        rows = rows.set_column(0, KEY, pa.array(_keys(SHAPES[shape], rng.integers(1, 100_000, count).tolist())))
    theirs, ours = folder / f"hudi-{len(shape)}", folder / f"lakebed-{len(shape)}"
    for name, part in (("load", rows), ("first", rows.slice(0, 1))):
        pq.write_table(part, folder / f"{name}.parquet", row_group_size=max(count // 8, 1))
    hudi.first_load(str(theirs), str(folder / "load.parquet"), "cow", record_index=False)
    hudi.upsert(str(theirs), str(folder / "first.parquet"), "cow", record_index=True)
    shutil.copytree(theirs, ours)
    shards = len({path.name.partition("_")[0] for path in (theirs / _INDEX).glob("*.hfile")})
    lakebed.open_table(ours).indexes.create("record_index", kind="record", rebuild=True, shards=shards)
    own, other = _bytes(ours) / count, _bytes(theirs) / count
    bar = Bar("<= Hudi's", own <= other)
    return Line(shape, f"{own:.2f} B", TITLES["hudi"], f"{other:.2f} B", f"{own / other:.2f}x", bar)


def _keys(text: str, customers: list[int]) -> list[str]:
    return [text.format(number=n, id=10**9 + n, customer=customer) for n, customer in enumerate(customers)]


def _bytes(table: Path) -> int:
    """Of the base files of the index, the newest of each shard."""
    newest: dict[str, Path] = {}
    for path in sorted((table / _INDEX).glob("*.hfile"), key=lambda path: path.name.rpartition("_")[2]):
        newest[path.name.partition("_")[0]] = path
    return sum(path.stat().st_size for path in newest.values())
