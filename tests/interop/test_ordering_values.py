"""Ordering values in the record index: Apache Hudi reads, writes and compacts a table whose entries carry them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from interop.test_indexing import GLOBAL, HUDI
from interop.write_peer import WITH_METADATA, HudiPeer, running_peer
from lakebed.api import Table, create_table, open_table
from lakebed.index.record.definition import are_current
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.index import EntryOrdering
from lakebed.table import open_handle

pytestmark = pytest.mark.interop

KEYS = 60


def rows(first: int, count: int, ts: int, city: str | None = None) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": [f"k{n:04d}" for n in numbers],
            "city": [city or ("oslo", "lima", "rome")[n % 3] for n in numbers],
            "ts": pa.array([ts] * count, pa.int64()),
            "fare": [float(n) for n in numbers],
        }
    )


def bounds(path: Path) -> dict[str, int | None]:
    """The ordering value in each entry."""
    metadata = open_handle(path).state().metadata
    assert isinstance(metadata, MetadataTable)
    found = read_record_index(metadata)
    return dict(zip(found["key"].to_pylist(), found["ordering_value"].to_pylist(), strict=True))


def is_current(path: Path) -> bool:
    metadata = open_handle(path).state().metadata
    assert isinstance(metadata, MetadataTable)
    return are_current(metadata, EntryOrdering("ts", is_current=True))


def metadata_compactions(path: Path) -> int:
    return len(list((path / ".hoodie/metadata/.hoodie/timeline").glob("*_*.commit")))


def check(peer: HudiPeer, path: Path) -> None:
    """Both read the same rows, Apache Hudi also through the index, and the index says what the rows say."""
    table = open_table(path)
    found = table.indexes.validate("record_index")
    assert found.is_sound, found.examples[:5]
    columns = ["id", "city", "ts"]
    ours = sorted(map(str, table.to_arrow(columns=columns).to_pylist()))
    theirs = peer.read(path, WITH_METADATA).select(columns)
    assert sorted(map(str, theirs.to_pylist())) == ours
    keys = ["k0000", "k0030", "none"]
    by_index = peer.read_where(path, {**WITH_METADATA, **GLOBAL}, [f"id = '{key}'" for key in keys])
    assert [rows.num_rows for rows in by_index] == [sum(f"'{key}'" in row for row in ours) for key in keys]


def made(path: Path, table_type: str, mode: str) -> Table:
    options = {"lakebed.record.index.ordering": mode, "hoodie.datasource.write.hive_style_partitioning": "false"}
    return create_table(
        path,
        schema=rows(0, 1, 0).schema,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        indexes=["record"],
        options=options,
    )


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("mode", ["on", "current"])
def test_apache_hudi_goes_on_with_entries_that_carry_values(tmp_path: Path, table_type: str, mode: str) -> None:
    path, peer = tmp_path / "trips", running_peer()
    made(path, table_type, mode).upsert(rows(0, KEYS, 5))
    open_table(path).upsert(rows(0, 10, 6))
    expected = {f"k{n:04d}": 6 if mode == "current" and n < 10 else 5 for n in range(KEYS)}
    assert bounds(path) == expected
    assert is_current(path) == (mode == "current")
    check(peer, path)
    kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[table_type]
    options = {**HUDI, **GLOBAL, "hoodie.table.name": path.name, "hoodie.datasource.write.table.type": kind}

    open_table(path).upsert(rows(10, 3, 7, "nuuk"))  # Now these keys have two entries.
    check(peer, path)
    before = metadata_compactions(path)
    keys = {*bounds(path)}
    for ts in (9, 10, 11):  # Updates in place, new keys; the metadata table is compacted on the way.
        batch = pa.concat_tables([rows(20, 10, ts), rows(100 + ts, 1, ts)])
        peer.write(path, batch, "upsert", options)
        keys.add(f"k{100 + ts:04d}")
        check(peer, path)
    assert metadata_compactions(path) > before
    assert bounds(path).keys() == keys
    assert {*bounds(path).values()} <= {None, 5, 6, 7}, "its compaction keeps entries, not their values"
    assert not is_current(path)

    peer.write(path, rows(50, 5, 12), "delete", options)
    keys -= {f"k{n:04d}" for n in range(50, 55)}
    check(peer, path)
    assert bounds(path).keys() == keys

    # Entries without a value, of late rows and of a newer one: what is stored is read.
    late = pa.concat_tables([rows(30, 1, 4, "lund"), rows(20, 1, 8, "lund"), rows(109, 1, 8, "lund")])
    result = open_table(path).upsert(pa.concat_tables([late, rows(40, 1, 7, "lund")]))
    assert result.metrics["rows_late"] == 3
    assert bounds(path)["k0040"] == 7
    assert open_table(path).upsert(rows(40, 1, 6, "oslo")).metrics["rows_late"] == 1
    check(peer, path)

    for turn in range(11):  # Ours compacts in its turn what Apache Hudi compacted.
        open_table(path).upsert(rows(200 + turn, 1, turn))
    assert bounds(path).items() >= {"k0040": 7, **{f"k{200 + turn:04d}": turn for turn in range(11)}}.items()
    peer.write(path, rows(200, 11, 50), "upsert", options)
    check(peer, path)
    open_table(path, options={"lakebed.record.index.ordering": mode}).indexes.create("record_index", rebuild=True)
    assert bounds(path)["k0200"] == 50
    assert is_current(path) == (mode == "current")
    assert open_table(path).upsert(rows(200, 1, 49, "lund")).metrics["rows_late"] == 1
    check(peer, path)
