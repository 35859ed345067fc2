"""Tables of lakebed's own for lookups, kept under .bench: 1,000,000 rows, and the same under larger record indexes.

A larger index has base files of made-up keys below the entries of the rows: every lookup searches them first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.codecs import uuids
from benchmarks.peer import HOME
from benchmarks.tables import CITIES, ROWS, SEED, WORDS
from lakebed.format.metadata.datum import stored_schema
from lakebed.format.metadata.record_index import RecordLocation, encode_record_index_value
from lakebed.format.metadata.shard_files import encode_shard_base

LOOKUPS = 200
_RECIPE = 1
_HEX = np.array([f"{number:02x}".encode() for number in range(256)], "S2")
_DASHES = np.array([8, 13, 18, 23])


def loaded_rows() -> pa.Table:
    """The rows of a first load."""
    rng = np.random.default_rng(SEED)
    columns = {
        "uuid": uuids(ROWS, rng),
        "city": np.array(CITIES)[rng.integers(0, len(CITIES), ROWS)],
        "name": np.array(WORDS)[rng.integers(0, len(WORDS), ROWS)],
        "amount": rng.random(ROWS),
        "ts": np.arange(ROWS),
    }
    return pa.table(columns)


def own_table(kind: str) -> tuple[str, list[str]]:
    """A copy-on-write or merge-on-read table, every tenth row updated, and some of its keys."""
    folder = _folder(kind, ROWS)
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        rows = loaded_rows()
        table = lakebed.create_table(
            folder / "t",
            schema=rows.schema,
            key="uuid",
            partition_by="city",
            ordering="ts",
            table_type=kind,
            indexes=["record"],
        )
        table.insert(rows)
        updated = rows.take(pa.array(np.arange(0, ROWS, 10)))
        table.upsert(updated.set_column(4, "ts", pa.array(np.full(updated.num_rows, 2 * ROWS))))
        (folder / "done").touch()
    keys = uuids(ROWS, np.random.default_rng(SEED))
    chosen = np.random.default_rng(SEED + 1).choice(ROWS, LOOKUPS, replace=False)
    return str(folder / "t"), [keys[row] for row in chosen]


def grown_table(count: int, kind: str = "cow") -> tuple[str, list[str]]:
    """A table of that kind, under a record index of `count` keys."""
    small, keys = own_table(kind)
    if count == ROWS:
        return small, keys
    folder = _folder(f"grown-{kind}", count)
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(small, folder / "t", copy_function=os.link)
        index = folder / "t" / ".hoodie" / "metadata" / "record_index"
        shards = sorted(index.glob(".record-index-*_0*.log.1_*"))
        for number, placeholder in enumerate(shards):
            file_id, _, instant = placeholder.name.removeprefix(".").partition(".log")[0].partition("_")
            data = _made_up_base((count - ROWS) // len(shards), SEED + number)
            (index / f"{file_id}_0-0-0_{instant}.hfile").write_bytes(data)
        (folder / "done").touch()
    return str(folder / "t"), keys


def _made_up_base(count: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    texts = np.full((count, 36), ord("-"), np.uint8)
    digits = _HEX[rng.integers(0, 256, count * 16, dtype=np.uint8)].view(np.uint8).reshape(count, 32)
    texts[:, np.delete(np.arange(36), _DASHES)] = digits
    offsets = (np.arange(count + 1) * 36).astype(np.int32)
    keys = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
    locations = [
        RecordLocation(city, f"{uuid}-0", 1) for city, uuid in zip(CITIES, uuids(len(CITIES), rng), strict=True)
    ]
    values = pa.array([encode_record_index_value(location) for location in locations], pa.binary())
    ids = pa.array(rng.integers(0, len(locations), count, dtype=np.int32))
    return encode_shard_base(keys, pa.DictionaryArray.from_arrays(ids, values), schema=stored_schema(), created_ms=0)


def _folder(kind: str, count: int) -> Path:
    recipe = hashlib.sha256(json.dumps([_RECIPE, ROWS, SEED, CITIES, WORDS]).encode()).hexdigest()[:12]
    return HOME.parent / ".bench" / f"lookup-{kind}-{count}-{recipe}"
