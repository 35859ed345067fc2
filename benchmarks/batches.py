"""What is written: 1,000,000 rows of about 90 bytes in 10 partitions, then batches, half updates and half inserts.

All of it comes from a seed, is made once and kept under .bench as Parquet files, so that every writer gets the same.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.peer import HOME
from benchmarks.tables import CITIES, SEED, WORDS

KEY, PARTITION, ORDERING = "uuid", "city", "ts"
BENCH = HOME.parent / ".bench"
_FIRST_TS, _TS_RANGE = 1_794_000_000_000, 10**9
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_DIGITS = np.array([at for at in range(36) if at not in (8, 13, 18, 23)])


@dataclass(frozen=True, slots=True)
class Batches:
    """Files with the rows of a first load and of the batches after it."""

    folder: Path
    rows: int
    batch_rows: int

    @property
    def load(self) -> str:
        """The rows of the first load."""
        return str(self.folder / "rows.parquet")

    def batch(self, number: int) -> str:
        """A batch: half updates of loaded rows, at random and later than all before, half rows with new keys."""
        path = self.folder / f"batch-{number}.parquet"
        if not path.exists():
            _store(_make_batch(pq.read_table(self.load), self.batch_rows, number), path)
        return str(path)


def make_batches(rows: int, batch_rows: int) -> Batches:
    """The input of a run; what is not there yet is made."""
    recipe = json.dumps([rows, batch_rows, SEED, CITIES, WORDS])
    batches = Batches(BENCH / f"writes-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}", rows, batch_rows)
    if not Path(batches.load).exists():
        batches.folder.mkdir(parents=True, exist_ok=True)
        _store(make_rows(rows, np.random.default_rng(SEED)), Path(batches.load))
    return batches


def make_rows(count: int, rng: np.random.Generator) -> pa.Table:
    """Rows with new keys."""
    numbers = pa.array(rng.integers(0, 10**6, count)).cast(pa.string())
    return pa.table(
        {
            KEY: _uuids(count, rng),
            ORDERING: pa.array(_FIRST_TS + rng.integers(0, _TS_RANGE, count)),
            "name": pc.binary_join_element_wise("customer", pc.utf8_lpad(numbers, 6, "0"), "-"),
            "amount": pa.array(np.round(rng.random(count) * 1000, 2)),
            PARTITION: pa.array(CITIES).take(pa.array(rng.integers(0, len(CITIES), count))),
            "note": _notes(count, rng),
        }
    )


def _make_batch(loaded: pa.Table, count: int, number: int) -> pa.Table:
    rng = np.random.default_rng([SEED, number])
    chosen = loaded.take(pa.array(rng.choice(loaded.num_rows, count // 2, replace=False)))
    later = pa.array(chosen[ORDERING].to_numpy() + (number + 1) * _TS_RANGE)
    updates = chosen.set_column(chosen.schema.get_field_index(ORDERING), ORDERING, later)
    updates = updates.set_column(updates.schema.get_field_index("note"), "note", _notes(updates.num_rows, rng))
    mixed = pa.concat_tables([updates, make_rows(count - updates.num_rows, rng)])
    return mixed.take(pa.array(rng.permutation(count)))


def _uuids(count: int, rng: np.random.Generator) -> pa.Array:
    """Random version 4 uuids."""
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _UUID_DIGITS] = _HEX[rng.integers(0, 16, (count, 32), dtype=np.uint8)]
    text[:, 14], text[:, 19] = ord("4"), ord("a")
    offsets = np.arange(count + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


def _notes(count: int, rng: np.random.Generator) -> pa.Array:
    words = [pa.array(WORDS).take(pa.array(rng.integers(0, len(WORDS), count))) for _ in range(3)]
    return pc.binary_join_element_wise(*words, " ")


def _store(rows: pa.Table, path: Path) -> None:
    """Writes a file whole or not at all; in several row groups, so that Spark reads it on all cores."""
    unfinished = path.with_suffix(".unfinished")
    pq.write_table(rows, unfinished, row_group_size=max(rows.num_rows // 8, 1))
    unfinished.rename(path)
