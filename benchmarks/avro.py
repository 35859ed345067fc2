"""Avro datums to Arrow and back, against fastavro to dicts: 100,000 rows of 13 columns.

Run with `python -m benchmarks.avro`. Times are the least of several runs, after a warm-up that loads compiled code.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa

from lakebed.format.avro.columns import decode_datums, encode_datums
from lakebed.format.avro.schema import avro_schema
from lakebed.model.words import META_COLUMNS

ROWS = 100_000
RUNS = 7
SAMPLE = 10_000
"""Rows given to fastavro, which is slow enough to be timed on fewer."""


def sample_batch(rows: int) -> pa.RecordBatch:
    """Five meta columns and eight of a table's own, one null in ten of those."""
    rng = np.random.default_rng(0)
    keys = [f"{value:032x}-key" for value in rng.integers(0, 2**62, rows)]
    nulls = rng.random(rows) < 0.1
    constant = ["20261115235530634", "20261115235530634_0_1", "", "region=eu", "9e1ff7e7-7578-4c65-9921-704ef5274d85-0"]
    columns = {name: pa.array([value] * rows) for name, value in zip(META_COLUMNS, constant, strict=True)}
    columns["_hoodie_record_key"] = pa.array(keys)
    columns |= {"id": pa.array(keys), "ts": pa.array(rng.integers(0, 2**48, rows))}
    columns |= {
        f"text{index}": pa.array([f"text {value}" for value in rng.integers(0, 9999, rows)]) for index in (1, 2)
    }
    columns |= {f"count{index}": pa.array(rng.integers(-5000, 5000, rows), mask=nulls) for index in (1, 2)}
    columns |= {f"amount{index}": pa.array(rng.random(rows), mask=nulls) for index in (1, 2)}
    return pa.RecordBatch.from_pydict(columns)


def least_seconds(run: Callable[[], object], runs: int) -> float:
    """The shortest of several runs."""
    spent = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        spent.append(time.perf_counter() - started)
    return min(spent)


def main() -> None:
    """Prints rows per second of both directions, and how fastavro compares."""
    batch = sample_batch(ROWS)
    avro_json = avro_schema(batch.schema, name="bench_record", namespace="hoodie.bench")
    data, offsets = encode_datums(batch, avro_json)
    raw, starts, ends = data.tobytes(), offsets[:-1], offsets[1:]
    assert decode_datums(raw, starts, ends, avro_json, path="bench").equals(batch)
    schema, rows = fastavro.parse_schema(json.loads(avro_json)), batch.slice(0, SAMPLE).to_pylist()
    print(f"{ROWS} rows, {len(raw) / 1e6:.1f} MB of Avro")
    report(
        "decode",
        lambda: decode_datums(raw, starts, ends, avro_json, path="bench"),
        lambda: read_rows(raw, schema),
    )
    report("encode", lambda: encode_datums(batch, avro_json), lambda: write_rows(rows, schema))


def report(name: str, ours: Callable[[], object], fastavro_sample: Callable[[], object]) -> None:
    """One line about one direction."""
    spent, reference = least_seconds(ours, RUNS), least_seconds(fastavro_sample, 2) * ROWS / SAMPLE
    print(f"{name}: {spent * 1e3:.1f} ms, {ROWS / spent / 1e6:.2f} M rows/s, {reference / spent:.0f} times fastavro")


def read_rows(raw: bytes, schema: Any) -> None:
    """The first rows as dicts."""
    stream = io.BytesIO(raw)
    for _ in range(SAMPLE):
        fastavro.schemaless_reader(stream, schema)


def write_rows(rows: list[dict[str, Any]], schema: Any) -> None:
    """Dicts as datums."""
    out = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(out, schema, row)


if __name__ == "__main__":
    main()
