"""Statistics of partitions when writes overtake each other, ours and those of another engine: they cover every row.

Readers go by the entry of the newest instant, whenever it completed; one that is not marked as tight widens older ones.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.commit.entries import metadata_commit
from lakebed.format.metadata.datum import committed_schema, stored_schema
from lakebed.format.timeline.metadata import encode_commit
from lakebed.index.column_stats.ranges import PARTITION_STATS, find_column_ranges
from lakebed.index.partition_stats.entries import partition_stats_entries
from lakebed.metadata import MetadataTable
from lakebed.metadata import shard_writes as entries
from lakebed.metadata.shard_writes import ShardWrite, write_shards
from lakebed.model.instant import InstantTime
from lakebed.model.metadata import ColumnStats, ValueType
from lakebed.storage import open_storage
from lakebed.table import open_handle
from lakebed.transaction.transactions import Transactions
from services.compaction_tables import before_commit

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])
NEW_FILES = {"hoodie.parquet.small.file.limit": "0"}
FOREIGN = "20990101000000000"
TIMELINES = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")


def rows(*times: int) -> list[dict[str, Any]]:
    return [{"id": f"k{ts}", "city": "oslo", "ts": ts} for ts in times]


@pytest.fixture(params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakebed.Table:
    made = lakebed.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        table_type=request.param,
        options=NEW_FILES,
    )
    made.upsert(rows(10, 20))
    return made


def opened(tmp_path: Path) -> lakebed.Table:
    return lakebed.open_table(tmp_path / "t", options=NEW_FILES)


def bounds(tmp_path: Path) -> tuple[int, int]:
    """What a reader takes for the least and the greatest value in the one partition."""
    metadata = open_handle(tmp_path / "t").state().metadata
    assert isinstance(metadata, MetadataTable)
    (entry,) = find_column_ranges(metadata, PARTITION_STATS, "ts", pa.int64()).to_pylist()
    return entry["min"], entry["max"]


def say(tmp_path: Path, instant: str, low: int, high: int) -> None:
    """A delta commit of the metadata table that says so, marked as tight."""
    storage = open_storage(str(tmp_path / "t"))
    stats = ColumnStats("oslo", "ts", low, high, 1, 0, 8, 8, is_tight_bound=True, value_type=ValueType.LONG)
    found = partition_stats_entries({"oslo": [stats]}, columns=["ts"], version="V2")
    write = ShardWrite(PARTITION_STATS, "partition-stats-0000-0", found)
    written = write_shards(storage, [write], instant=InstantTime(instant), token="1-2-3", created_ms=0)
    metadata = metadata_commit(written, {"schema": committed_schema()})
    path = f"{TIMELINES[1]}/{instant}_{int(instant) + 1}.deltacommit"
    storage.create(path, encode_commit(metadata, replace=False))


def begin_foreign(tmp_path: Path, instant: str) -> None:
    """What another engine leaves when it begins to write: its heartbeat is an empty file."""
    beats = tmp_path / "t/.hoodie/.heartbeat"
    beats.mkdir(exist_ok=True)
    (beats / instant).write_bytes(b"")
    for state in ("requested", "inflight"):
        (tmp_path / "t" / TIMELINES[0] / f"{instant}.deltacommit.{state}").write_bytes(b"")


def end_foreign(tmp_path: Path, instant: str, low: int, high: int) -> None:
    """It completes, with statistics that it worked out before other writes did; its rows are no matter here."""
    for state in ("requested", "inflight"):
        (tmp_path / "t" / TIMELINES[0] / f"{instant}.deltacommit.{state}").unlink()
    say(tmp_path, instant, low, high)


def after_newest(tmp_path: Path) -> str:
    """A time that nobody has drawn yet, before any that will be."""
    newest = open_handle(tmp_path / "t").state().timeline.last_completed_at
    assert newest is not None
    return str(int(newest) + 1)


def test_a_foreign_write_that_began_before_ours_and_ends_after_it_counts(table: lakebed.Table, tmp_path: Path) -> None:
    earlier = after_newest(tmp_path)
    begin_foreign(tmp_path, earlier)
    opened(tmp_path).upsert(rows(30))
    end_foreign(tmp_path, earlier, 5, 20)
    assert bounds(tmp_path) == (5, 30)
    opened(tmp_path).upsert(rows(40))
    assert bounds(tmp_path) == (10, 40), "taken anew from files: no file has a row of the foreign write"


def test_a_foreign_write_that_began_after_ours_and_knows_nothing_of_it_hides_nothing(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[str] = []

    def begin() -> None:
        (own,) = (i.requested_at for i in open_handle(tmp_path / "t").state().timeline.pending())
        later.append(str(int(own) + 1))
        begin_foreign(tmp_path, later[0])

    before_commit(monkeypatch, begin)
    opened(tmp_path).upsert(rows(30))
    end_foreign(tmp_path, later[0], 10, 20)
    assert bounds(tmp_path) == (10, 30)


def test_what_another_engine_left_too_narrow_is_taken_anew_by_the_next_write(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = json.dumps({**json.loads(stored_schema()), "doc": "A record saved within the Metadata Table"})
    with monkeypatch.context() as patch:
        patch.setattr(entries, "stored_schema", lambda **_: foreign)
        say(tmp_path, after_newest(tmp_path), 20, 20)
    assert bounds(tmp_path) == (20, 20)
    opened(tmp_path).upsert(rows(30))
    assert bounds(tmp_path) == (10, 30)


def test_reads_lose_no_row_by_statistics_that_are_too_narrow(table: lakebed.Table, tmp_path: Path) -> None:
    say(tmp_path, FOREIGN, 20, 20)
    found = opened(tmp_path).to_arrow(where="ts = 10")["id"].to_pylist()
    assert found == ["k10"]


def test_a_write_is_seen_though_one_that_was_overtaken_added_statistics_ahead_of_it(
    table: lakebed.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requested in the order 1, 2, 3 they complete in the order 2, 1, 3."""
    complete, gates = Transactions.complete, {name: (threading.Event(), threading.Event()) for name in ("1", "3")}

    def gated(*arguments: Any, **named: Any) -> Any:
        reached, go = gates.get(threading.current_thread().name, (None, None))
        if reached is not None and go is not None:
            reached.set()
            assert go.wait(60)
        return complete(*arguments, **named)

    monkeypatch.setattr(Transactions, "complete", gated)
    threads = {}
    for name, ts in (("1", 30), ("2", 40), ("3", 50)):
        threads[name] = threading.Thread(target=lambda ts=ts: opened(tmp_path).upsert(rows(ts)), name=name)
        threads[name].start()
        if name in gates:
            assert gates[name][0].wait(60)
        else:
            threads[name].join()
    for name, (_, go) in gates.items():
        go.set()
        threads[name].join()
    assert opened(tmp_path).to_arrow().num_rows == 5
    assert bounds(tmp_path) == (10, 50)
