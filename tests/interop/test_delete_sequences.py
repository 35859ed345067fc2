"""Deleted keys that come back: Apache Hudi and lakebed keep one row of each, the same, on every kind of table.

Files are not shared between small ones here: a new key would have its file group rewritten, and deletes forgotten.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from delete_sequences import DESIGNS, EVERY, OUTCOMES, SHOWN_AGAIN, Design, batches, seen
from interop.write_peer import WITH_METADATA, HudiPeer, readers, running_peer
from lakebed.api import create_table, open_table

pytestmark = pytest.mark.interop

LAKEBED = {"hoodie.parquet.small.file.limit": "1"}
READ_OPTIMIZED = {**WITH_METADATA, "hoodie.datasource.query.type": "read_optimized"}


def hudi_options(design: Design) -> dict[str, str]:
    kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[design.table_type]
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING" if design.by_event_time else "COMMIT_TIME_ORDERING",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.compact.inline": "false",
        "hoodie.parquet.small.file.limit": "0",
        **{f"hoodie.{kind}.shuffle.parallelism": "2" for kind in ("upsert", "insert", "bulkinsert", "delete")},
    }
    if design.by_event_time:
        options["hoodie.datasource.write.precombine.field"] = "ts"
    if design.indexes:
        options |= {"hoodie.metadata.global.record.level.index.enable": "true", "hoodie.index.type": "RECORD_INDEX"}
    return options


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_both_have_the_same_rows_after_every_step(tmp_path: Path, design: Design) -> None:
    peer, theirs, ours, options = running_peer(), tmp_path / "theirs", tmp_path / "ours", hudi_options(design)
    create_table(ours, **design.create_arguments)
    for step in range(3):
        upserted, deleted = batches(EVERY, step)
        peer.write(theirs, upserted, "upsert", options)
        peer.write(theirs, deleted, "delete", options)
        table = open_table(ours, options=LAKEBED)
        table.upsert(upserted)
        table.delete(deleted.select(["id"]))
        by_hudi, by_lakebed = seen(peer.read(theirs, WITH_METADATA)), seen(table.to_arrow())
        is_last = step == 2
        again = SHOWN_AGAIN if is_last and str(design) == "mor-event" else ()
        assert {key: by_hudi[key] for key in again} == dict.fromkeys(again, 0)
        assert {**by_hudi, **{key: by_lakebed[key] for key in again}} == by_lakebed
        across = seen(peer.read(ours, WITH_METADATA))
        assert {**across, **{key: by_lakebed[key] for key in again}} == by_lakebed, "Apache Hudi reads our files alike"
    assert {key: by_lakebed.get(key) for key in OUTCOMES} == {key: design.outcome(key) for key in OUTCOMES}


MOR = DESIGNS[1]


def row(ts: int, key: str = "a") -> pa.Table:
    return pa.table({"id": [key], "ts": [ts], "step": [ts], "_hoodie_is_deleted": [False]})


SIMPLE: dict[str, str] = {"hoodie.index.type": "SIMPLE"}
DEFAULT: dict[str, str] = {}


@pytest.mark.parametrize(
    ("writer", "index", "small_files", "marked"),
    [
        ("lakebed", SIMPLE, {}, False),
        ("lakebed", SIMPLE, LAKEBED, True),
        ("lakebed", DEFAULT, LAKEBED, False),
        ("lakebed", DEFAULT, {}, True),
        ("hudi", SIMPLE, {}, False),
        ("hudi", DEFAULT, {}, True),
    ],
)
def test_a_key_that_came_back_is_one_row_when_apache_hudi_goes_on(
    tmp_path: Path, writer: str, index: dict[str, str], small_files: dict[str, str], marked: bool
) -> None:
    """Where Apache Hudi is the `writer`, it is the control."""
    path, peer, options = tmp_path / "t", running_peer(), {**hudi_options(MOR), **index}
    create_table(path, **MOR.create_arguments)
    table = open_table(path, options=small_files)
    table.upsert(pa.concat_tables([row(1), row(1, "b")]))
    delete = row(2).set_column(3, "_hoodie_is_deleted", pa.array([True])) if marked else row(2)
    for verb, rows in (("upsert" if marked else "delete", delete), ("upsert", row(3))):
        if writer == "hudi":
            peer.write(path, rows, verb, options)
        elif verb == "upsert":
            assert table.upsert(rows).inserted == (0 if marked and rows is delete else 1)
        else:
            table.delete(["a"])
    check(peer, path, {"a": 3, "b": 1}, read_optimized={"a": 1, "b": 1})
    peer.write(path, row(4), "upsert", options)
    assert seen(peer.read(path, WITH_METADATA)) == seen(table.to_arrow()) == {"a": 4, "b": 1}
    assert open_table(path).upsert(row(5)).updated == 1
    assert seen(peer.read(path, WITH_METADATA)) == seen(table.to_arrow()) == {"a": 5, "b": 1}
    open_table(path).services.compact()
    peer.write(path, row(6), "upsert", options)
    check(peer, path, {"a": 6, "b": 1}, read_optimized={"a": 5, "b": 1})


def check(peer: HudiPeer, path: Path, expected: dict[str, int], *, read_optimized: dict[str, int]) -> None:
    """Every reader has one row of each key."""
    for name, read in readers(peer, path).items():
        assert seen(read()) == expected, name
    assert seen(open_table(path).to_arrow(mode="read_optimized")) == read_optimized
    assert seen(peer.read(path, READ_OPTIMIZED)) == read_optimized
