"""Apache Hudi executes clustering plans of lakebed, and lakebed those of Apache Hudi; all readers see the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from interop.write_peer import WITH_METADATA, WITHOUT_METADATA, HudiPeer, index_differences, running_peer
from lakebed.model.instant import InstantTime
from lakebed.services.clustering.plan import Layout
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from services.clustering_tables import INDEXES, content, fill, new_table, service_context

pytestmark = pytest.mark.interop

HUDI_INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


def rows_by_key(peer: HudiPeer, path: Path, options: dict[str, str]) -> list[dict[str, object]]:
    rows = peer.read(path, options).drop_columns(["_hoodie_file_name"]).to_pylist()
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


def call(peer: HudiPeer, path: Path, procedure: str) -> list[list[str]]:
    options = ",".join(f"{key}={value}" for key, value in HUDI_INDEXES.items())
    peer.sql("drop table if exists t", f"create table t using hudi location '{path}'")
    return peer.sql(f"call run_clustering(table => 't', {procedure}, options => '{options}')")


def pending(path: Path) -> list[InstantTime]:
    return [instant.requested_at for instant in lakebed.open_table(path).timeline.pending()]


@pytest.mark.parametrize("layout", ["linear", "hilbert"])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_apache_hudi_executes_our_plan(tmp_path: Path, table_type: str, layout: Layout) -> None:
    peer, path = running_peer(), tmp_path / "t"
    table = new_table(path, table_type)
    fill(table)
    before = content(path)
    instant = schedule_clustering(service_context(path), order_by=["zone", "fare"], layout=layout)
    assert instant is not None
    call(peer, path, f"op => 'execute', instants => '{instant}'")
    assert pending(path) == []
    assert table.timeline.completion_of(instant) is not None
    assert len(table.files()) == 2
    assert content(path) == before
    assert rows_by_key(peer, path, WITH_METADATA) == before
    table.upsert(table.to_arrow(columns=["id", "city", "ts", "fare", "zone"]))
    assert len(content(path)) == len(before)
    # Not earlier: Apache Hudi counts the rows of a clustered partition twice in its statistics.
    assert index_differences(path) == []


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_we_execute_a_plan_of_apache_hudi(tmp_path: Path, table_type: str) -> None:
    peer, path = running_peer(), tmp_path / "t"
    table = new_table(path, table_type, indexes=list(INDEXES))
    fill(table)
    before = content(path)
    call(peer, path, "op => 'schedule', order => 'zone,fare', order_strategy => 'z-order'")
    (instant,) = pending(path)
    result = execute_clustering(service_context(path), instant)
    assert result.counts["replaced_file_groups"] == 8
    assert content(path) == before
    assert index_differences(path) == []
    for options in (WITH_METADATA, WITHOUT_METADATA):
        assert rows_by_key(peer, path, options) == before
    where = "zone = 5"
    (filtered,) = peer.read_where(path, WITH_METADATA, [where])
    assert filtered.num_rows == table.to_arrow(where=where).num_rows > 0
    assert sorted(peer.read_rs(path)["id"].to_pylist()) == sorted(row["id"] for row in before)
