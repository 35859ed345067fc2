"""A record index of the newest partitions, of which Apache Hudi is not told: it goes on as if there were none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from interop.test_indexing import HUDI, PARTITIONED
from interop.write_peer import WITH_METADATA, HudiPeer, running_peer
from lakebed.api import create_table, open_table
from lakebed.table import open_handle

pytestmark = pytest.mark.interop


def rows(first: int, count: int, ts: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n:04d}" for n in numbers],
            "city": [f"2026-11-{1 + n % 5:02}" for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [float(n) for n in numbers],
        }
    )


def check(peer: HudiPeer, path: Path, count: int) -> None:
    """Both read the same rows, each key once, and Apache Hudi also by filters on keys outside the window."""
    ours = sorted(map(str, open_table(path).to_arrow(columns=["id", "city", "ts"]).to_pylist()))
    theirs = peer.read(path, WITH_METADATA).select(["id", "city", "ts"])
    assert sorted(map(str, theirs.to_pylist())) == ours
    assert len({*theirs["id"].to_pylist()}) == len(ours) == count
    found = peer.read_where(path, {**WITH_METADATA, **PARTITIONED}, ["id = 'k0000'", "id = 'k0004'"])
    assert [each.num_rows for each in found] == [1, 1]


def state_of(path: Path) -> str:
    return next(info.state for info in open_table(path).indexes.list() if info.name == "record_index")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_apache_hudi_is_not_misled_by_an_index_that_knows_some_keys(tmp_path: Path, table_type: str) -> None:
    path, peer = tmp_path / "trips", running_peer()
    schema = rows(0, 1, 0).schema
    table = create_table(path, schema=schema, key="id", partition_by="city", ordering="ts", table_type=table_type)
    table.upsert(rows(0, 50, 1))
    table.indexes.create("record_index", kind="record_windowed", window=2)
    table.upsert(rows(0, 60, 2))
    assert (state_of(path), table.indexes.validate("record_index").is_sound) == ("ready", True)
    check(peer, path, 60)

    kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[table_type]
    options = {**HUDI, "hoodie.table.name": path.name, "hoodie.datasource.write.table.type": kind}
    options |= {"hoodie.metadata.enable": "true", "hoodie.index.type": "SIMPLE"}
    for ts in (3, 4, 5):  # Its compaction of the metadata table runs on the way.
        peer.write(path, rows(0, 50 + 10 * ts, ts), "upsert", options)
        check(peer, path, 50 + 10 * ts)
    assert open_handle(path).config.own_partitions == ("record_index",)
    assert state_of(path) == "stale"
    open_table(path).upsert(rows(0, 110, 6))
    check(peer, path, 110)

    open_table(path).indexes.create("record_index", kind="record_windowed", window=2, rebuild=True)
    assert (state_of(path), open_table(path).indexes.validate("record_index").is_sound) == ("ready", True)
    open_table(path).upsert(rows(0, 120, 7))
    check(peer, path, 120)

    peer.write(path, rows(0, 130, 8), "upsert", {**options, **PARTITIONED})  # It builds an index of its own.
    check(peer, path, 130)
    assert open_handle(path).config.own_partitions == ()
    assert open_table(path).indexes.validate("record_index").is_sound
