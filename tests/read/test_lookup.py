"""Rows by record key: what a scan says, whatever lies in base files and logs, without compiled code or pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from conftest import REAL_TABLES, catalogue
from lakebed.format.arrow import text_array
from lakebed.model.source import BytesSource
from lakebed.read import file_slice, keyed_files
from lakebed.read.keyed_files import HeldBytes, KeyedFile, key_digests
from lakebed.storage.cache import FileCache
from rows import canonical

_PARTITIONS = {entry["zip"].removesuffix(".zip"): entry["metadata_partitions"] for entry in catalogue()}
_WITH_INDEX = [name for name in REAL_TABLES if "record_index" in _PARTITIONS[name]]
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(canonical(table.to_pylist()))


@pytest.mark.parametrize("name", _WITH_INDEX)
def test_every_key_of_real_tables(unpack, name: str) -> None:
    table = lakebed.open_table(unpack(name).path)
    scanned = table.to_arrow()
    keys = scanned["_hoodie_record_key"].to_pylist()
    for key in dict.fromkeys(keys):
        expected = scanned.filter(pa.array([other == key for other in keys]))
        assert rows_of(table.lookup([key])) == rows_of(expected)
    assert rows_of(table.lookup([*keys, "none"])) == rows_of(scanned)
    assert table.lookup(["none"]).num_rows == 0
    assert table.lookup(["none"]).schema == scanned.schema
    assert table.lookup(keys[:1], columns=["_hoodie_record_key"]).column_names == ["_hoodie_record_key"]


def row(number: int, ts: int) -> dict[str, Any]:
    note = None if number % 3 else f"note {ts}"
    return {"id": f"k{number}", "city": "ab"[number % 2], "ts": ts, "fare": number / 8, "at": None, "note": note}


def new_table(folder: Path, kind: str, log_format: str = "parquet", **given: Any) -> lakebed.Table:
    asked = {"schema": SCHEMA, "key": "id", "partition_by": "city", "ordering": "ts"} | given
    options = {"hoodie.logfile.data.block.format": log_format}
    return lakebed.create_table(folder / "t", table_type=kind, indexes=["record"], options=options, **asked)


STEPS = st.lists(
    st.tuples(st.sampled_from(["upsert", "late", "delete"]), st.sets(st.integers(0, 20), min_size=1, max_size=8)),
    min_size=1,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(steps=STEPS, kind=st.sampled_from(["cow", "mor"]), log_format=st.sampled_from(["parquet", "avro"]))
def test_histories(tmp_path_factory, steps, kind: str, log_format: str) -> None:
    """After every write, through one handle: each key alone, a few, and all at once."""
    table = new_table(tmp_path_factory.mktemp("t"), kind, log_format)
    table.upsert([row(number, 50) for number in range(12)])
    for step, (verb, numbers) in enumerate(steps):
        if verb == "delete":
            table.delete([f"k{number}" for number in sorted(numbers)])
        else:
            table.upsert([row(number, 100 + step if verb == "upsert" else step) for number in sorted(numbers)])
        scanned = table.to_arrow()
        keys = scanned["id"].to_pylist()
        for number in range(22):
            expected = scanned.filter(pa.array([key == f"k{number}" for key in keys], pa.bool_()))
            assert rows_of(table.lookup([f"k{number}"])) == rows_of(expected)
        few = [f"k{number}" for number in range(0, 22, 4)]
        expected = scanned.filter(pa.array([key in few for key in keys], pa.bool_()))
        assert rows_of(table.lookup(few)) == rows_of(expected)
        assert rows_of(table.lookup(f"k{number}" for number in range(22))) == rows_of(scanned)


def test_keys_that_digests_cannot_tell_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests only narrow the search: equal ones cost time, and too many are given up on."""
    monkeypatch.setattr(keyed_files, "_FACTORS", keyed_files._FACTORS * 0)
    table = new_table(tmp_path, "mor")
    table.upsert([row(number, 1) for number in range(300)])
    table.upsert([row(number, 2) for number in range(0, 300, 7)])
    for number in (0, 1, 7, 299):
        assert table.lookup([f"k{number}"])["ts"].to_pylist() == [1 if number % 7 else 2]


def test_a_key_that_stands_in_a_file_twice_gives_both_rows() -> None:
    """Plain inserts of some writers leave such files."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"_hoodie_record_key": ["a", "b", "a", "c"]}), sink, row_group_size=2)
    file = KeyedFile(BytesSource(sink.getvalue().to_pybytes(), "f.parquet"), "_hoodie_record_key")
    assert file.candidates(["a"]) == [0, 2]
    assert file.candidates(["c", "b"]) == [1, 3]
    assert file.pages.read_rows(["_hoodie_record_key"], [0, 2]).to_pylist() == [{"_hoodie_record_key": "a"}] * 2


def test_bounds_of_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path, "mor")
    table.upsert([row(number, 1) for number in range(40)])
    table.upsert([row(number, 2) for number in range(0, 40, 3)])
    wanted = [f"k{number}" for number in range(0, 40, 2)]
    answers = []
    for few in (0, 5, 1000):
        monkeypatch.setattr(file_slice, "LOOKUP_KEYS_MAX", few)
        answers.append(rows_of(table.lookup(wanted)))
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) == len(wanted)


_FRESH = """
import sys
from lakebed import open_table
before = set(sys.modules)
for key in sys.argv[2:]:
    print(open_table(sys.argv[1]).lookup([key])["ts"].combine_chunks().buffers()[1].to_pybytes()[:8].hex())
heavy = {"numba", "pandas", "llvmlite", "pyspark"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""


@pytest.mark.parametrize(("kind", "log_format"), [("cow", "parquet"), ("mor", "parquet"), ("mor", "avro")])
def test_a_fresh_process_loads_nothing_heavy(tmp_path: Path, kind: str, log_format: str) -> None:
    table = new_table(tmp_path, kind, log_format)
    table.upsert([row(number, 1) for number in range(3000)])
    table.upsert([row(number, 2) for number in range(0, 3000, 2)])
    table.delete(["k2999"])
    command = [sys.executable, "-c", _FRESH, str(tmp_path / "t"), "k1000", "k1001"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [(2).to_bytes(8, "little").hex(), (1).to_bytes(8, "little").hex()]


def test_warm_lookups_ask_little_of_the_store(tmp_path: Path) -> None:
    table = new_table(tmp_path, "mor")
    table.upsert([row(number, 1) for number in range(100)])
    table.upsert([row(number, 2) for number in range(0, 100, 3)])
    for number in range(100):
        table.lookup([f"k{number}"])
    counts = table._handle.storage.counts
    before = counts.snapshot()
    for number in range(100):
        assert table.lookup([f"k{number}"]).num_rows == 1
    spent = counts.snapshot() - before
    assert spent.lists == 100, "the timeline, to see whether the table has changed"
    assert spent.gets == 0
    assert spent.opens == 0


@given(keys=st.lists(st.text(max_size=40), max_size=20))
def test_digests_depend_on_the_key_alone(keys: list[str]) -> None:
    together = key_digests(text_array(keys)).tolist()
    assert together == [int(key_digests(text_array([key]))[0]) for key in keys]
    assert key_digests(text_array(["before", *keys]).slice(1)).tolist() == together


def test_held_files_are_bounded() -> None:
    held = FileCache(100)
    loads: list[int] = []

    def find(number: int, size: int = 40) -> int:
        return held.find((number,), HeldBytes, lambda: loads.append(number) or HeldBytes(bytes(size))).nbytes

    assert [find(number) for number in (1, 2, 1, 3, 1, 2)] == [40] * 6
    assert loads == [1, 2, 3, 2], "the least recently used one goes"
    assert find(4, 1000) == 1000
    assert find(4, 1000) == 1000
    assert loads[4:] == [4, 4], "what has no room is not kept"
