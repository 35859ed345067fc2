"""The tables that reads are measured on: made once by Apache Hudi, from a seed, and kept under .bench.

1,000,000 rows of about 90 bytes in 10 partitions, with a global record index. The merge-on-read table then gets an
update of every tenth row, which stays in log files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.codecs import uuids
from benchmarks.peer import HOME, Peer, PeerMissingError

ROWS, UPDATES, SEED = 1_000_000, 100_000, 20261116
CITIES = ("athens", "berlin", "cairo", "delhi", "lima", "london", "osaka", "paris", "quito", "tunis")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "heron", "inlet", "juniper")
OPTIONS = {
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.insert.shuffle.parallelism": "4",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.upsert.shuffle.parallelism": "4",
}
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}


@dataclass(frozen=True, slots=True)
class ReadTables:
    """The two tables and the rows that they were loaded with."""

    folder: Path

    @property
    def cow(self) -> str:
        """The copy-on-write table."""
        return str(self.folder / "cow")

    @property
    def mor(self) -> str:
        """The merge-on-read table, every tenth row updated in its logs."""
        return str(self.folder / "mor")

    def keys(self, count: int) -> list[str]:
        """Record keys at random, the same ones each time."""
        keys = pq.read_table(self.folder / "rows.parquet", columns=["uuid"])["uuid"]
        chosen = np.random.default_rng(SEED + 1).choice(len(keys), count, replace=False)
        return keys.take(pa.array(chosen)).to_pylist()


def read_tables(peer: Peer | None) -> ReadTables:
    """The tables, written now if this is the first time; without a peer that could, PeerMissingError."""
    recipe = json.dumps([ROWS, UPDATES, SEED, CITIES, WORDS, OPTIONS])
    folder = HOME.parent / ".bench" / f"reads-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    if not (folder / "done").exists():
        if peer is None:
            raise PeerMissingError("there is no table to read: Apache Hudi makes them, and `make interop` prepares it")
        _make(folder, peer)
    return ReadTables(folder)


def _make(folder: Path, peer: Peer) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = _rows()
    chosen = np.random.default_rng(SEED + 2).choice(ROWS, UPDATES, replace=False)
    pq.write_table(rows, folder / "rows.parquet")
    pq.write_table(_updated(rows.take(pa.array(chosen))), folder / "updates.parquet")
    for name in TYPES:
        spent = peer.ask("write", **_write_request(folder, name, "rows", "insert"))
        print(f"Apache Hudi wrote the table {name}: {spent['seconds']:.0f} s", flush=True)
    peer.ask("write", **_write_request(folder, "mor", "updates", "upsert"))
    (folder / "done").touch()


def _write_request(folder: Path, name: str, rows: str, operation: str) -> dict[str, Any]:
    named = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": TYPES[name],
        "hoodie.datasource.write.operation": operation,
    }
    mode = "append" if operation == "upsert" else "overwrite"
    rows_file = str(folder / f"{rows}.parquet")
    return {"path": str(folder / name), "rows": rows_file, "mode": mode, "options": {**OPTIONS, **named}}


def _rows() -> pa.Table:
    rng = np.random.default_rng(SEED)
    names = pa.array([f"customer-{number:06d}" for number in rng.integers(0, 10**6, ROWS)])
    return pa.table(
        {
            "uuid": pa.array(uuids(ROWS, rng)),
            "ts": pa.array(1_794_000_000_000 + rng.integers(0, 10**9, ROWS)),
            "name": names,
            "amount": pa.array(np.round(rng.random(ROWS) * 1000, 2)),
            "city": pa.array(CITIES).take(pa.array(rng.integers(0, len(CITIES), ROWS))),
            "note": _notes(rng, ROWS),
        }
    )


def _updated(rows: pa.Table) -> pa.Table:
    """The rows, later, with another note."""
    rng = np.random.default_rng(SEED + 3)
    later = pa.array(rows["ts"].to_numpy() + 10**9)
    fresh = rows.set_column(rows.schema.get_field_index("ts"), "ts", later)
    return fresh.set_column(rows.schema.get_field_index("note"), "note", _notes(rng, rows.num_rows))


def _notes(rng: np.random.Generator, count: int) -> pa.Array:
    chosen = rng.integers(0, len(WORDS), (3, count))
    return pa.array([f"{WORDS[a]} {WORDS[b]} {WORDS[c]}" for a, b, c in zip(*chosen.tolist(), strict=True)])
