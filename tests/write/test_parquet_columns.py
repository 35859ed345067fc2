from __future__ import annotations

import uuid
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.write.files.encoding import Encodings, cached_options, column_options

RANDOM = Random(0)
ROWS = 5000
COLUMNS = {
    "uuid": pa.array([str(uuid.UUID(int=RANDOM.getrandbits(128))) for _ in range(ROWS)]),
    "noise": pa.array([RANDOM.random() for _ in range(ROWS)]),
    "city": pa.array([RANDOM.choice(["lima", "oslo", None]) for _ in range(ROWS)]),
    "word": pa.array([f"word-{RANDOM.randrange(800)}" for _ in range(ROWS)]),
    "seqno": pa.array([f"20261115235530634_3_{number}" for number in range(ROWS)]),
    "ts": pa.array([1_794_000_000_000 + RANDOM.randrange(10**9) for _ in range(ROWS)]),
    "flag": pa.array([RANDOM.random() < 0.5 for _ in range(ROWS)]),
    "constant": pa.array(["x"] * ROWS).dictionary_encode(),
    "nothing": pa.nulls(ROWS, pa.string()),
}


@pytest.mark.parametrize(
    ("column", "has_dictionary", "is_compressed"),
    [
        ("uuid", False, False),
        ("noise", False, False),
        ("city", True, True),
        ("word", True, True),
        ("seqno", False, True),
        ("ts", False, True),
        ("constant", True, True),
        ("nothing", True, True),
    ],
)
def test_columns_get_what_pays(column, has_dictionary, is_compressed):
    options = column_options(pa.table(COLUMNS), "zstd")
    assert (column in options["use_dictionary"]) == has_dictionary
    assert options["compression"][column] == ("ZSTD" if is_compressed else "NONE")


@pytest.mark.parametrize(("column", "is_compressed"), [("seqno", True), ("ts", False), ("small", True)])
def test_numbers_that_shrink_little_are_not_worth_the_quickest_codec(column, is_compressed):
    rows = pa.table({**COLUMNS, "small": pa.array([RANDOM.randrange(5000) for _ in range(ROWS)])})
    assert column_options(rows, "snappy")["compression"][column] == ("SNAPPY" if is_compressed else "NONE")


def test_no_compression_at_all():
    assert set(column_options(pa.table(COLUMNS), "none")["compression"].values()) == {"NONE"}


def test_booleans_have_no_dictionary():
    assert "flag" not in (column_options(pa.table(COLUMNS), "zstd")["use_dictionary"] or ())


@pytest.mark.parametrize("rows", [0, 1, 100])
def test_the_writer_knows_every_leaf_by_the_names_given(rows):
    inner = pa.struct([("x", pa.int32()), ("ys", pa.list_(pa.string()))])
    kinds = {
        "st": inner,
        "arr": pa.list_(pa.field("element", inner, nullable=False)),
        "m": pa.map_(pa.string(), pa.list_(pa.int64())),
        "flat": pa.int64(),
    }
    value = {"x": 1, "ys": ["a", "b"]}
    row = {"st": value, "arr": [value, value], "m": [("k", [1, 2])], "flat": 1}
    table = pa.Table.from_pylist([row] * rows, pa.schema(kinds.items()))
    options = column_options(table, "zstd")
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, **options)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))
    leaves = {metadata.schema.column(index).path for index in range(metadata.num_columns)}
    assert leaves == set(options["compression"])


def test_pages_of_wide_values_stay_small():
    table = pa.table({"wide": pa.array([str(number) * 2000 for number in range(3000)])})
    narrow = pa.table({"narrow": pa.array(range(100_000))})
    assert column_options(table, "none")["write_batch_size"] == 1024
    assert column_options(narrow, "none")["write_batch_size"] == 65536


def test_statistics_are_kept_where_queries_have_ranges():
    table = pa.table({"_hoodie_commit_seqno": ["1", "2"], "_hoodie_record_key": ["a", "b"], "x": [1, 2]})
    for options, expected in (
        (column_options(table, "zstd"), [False, True, True]),
        (column_options(table, "zstd", is_log=True), [False, False, False]),
    ):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
        assert [group.column(at).is_stats_set for at in range(3)] == expected


def test_files_of_a_write_share_what_is_found_but_not_how_wide_values_are() -> None:
    known: Encodings = {}
    narrow = pa.table({"text": [str(number) for number in range(5000)]})
    wide = pa.table({"text": ["x" * 20_000] * 50})
    assert cached_options(wide, "zstd", known)["use_dictionary"] == ["text"]
    assert not known, "few rows say little"
    found = cached_options(narrow, "zstd", known)
    assert found == column_options(narrow, "zstd")
    shared = cached_options(wide, "zstd", known)
    assert shared == {**found, "write_batch_size": 1024}
    assert cached_options(narrow, "zstd", known, is_log=True)["write_statistics"] is False
