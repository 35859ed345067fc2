"""Services that follow writes in their process, when options ask for them and they are due."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.model.config import TableConfig
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.due import parse_inline_services
from lakebed.services.table_services import TableServices
from lakebed.storage import open_storage
from lakebed.table import TableState
from lakebed.timeline import Documents, Timeline

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
NONE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def new_table(path: Path, table_type: str = "cow", options: dict[str, str] | None = None) -> lakebed.Table:
    return lakebed.create_table(
        path, schema=SCHEMA, key="id", ordering="ts", table_type=table_type, options=options or {}
    )


def rows(ts: int, first: int = 0) -> pa.Table:
    return pa.table([[f"k{n}" for n in range(first, first + 3)], [ts] * 3], schema=SCHEMA)


def actions(table: lakebed.Table) -> Counter[str]:
    return Counter(str(instant.action) for instant in table.timeline)


def operations(table: lakebed.Table) -> Counter[str]:
    state = table._handle.state()
    return Counter(str(state.documents.commit(instant).operation) for instant in state.timeline.commits())


@pytest.fixture
def due(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was found due, in the order of the writes that made it so."""
    seen: list[tuple[str, ...]] = []
    work = TableServices.run_after_write

    def spy(services: TableServices, due: Any) -> None:
        seen.append(due)
        work(services, due)

    monkeypatch.setattr(TableServices, "run_after_write", spy)
    return seen


def test_a_table_that_nobody_looks_after_stays_small(tmp_path: Path, due: list[tuple[str, ...]]) -> None:
    few = {"hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "8", "hoodie.clean.commits.retained": "3"}
    table = new_table(tmp_path, options={**few, "hoodie.clean.trigger.max.commits": "3"})
    written = [table.upsert(rows(ts)).instant for ts in range(25)]
    assert {name for names in due for name in names} == {"clean", "archive"}
    # What the metadata table has not compacted yet, ten commits at most, stays on the timeline.
    assert len(table.timeline.commits()) <= 8 + 10
    assert len(list(tmp_path.glob("*.parquet"))) <= 3 + 3
    assert not table.timeline.pending()
    for ts, instant in list(enumerate(written))[-3:]:
        assert set(table.to_arrow(as_of=instant)["ts"].to_pylist()) == {ts}


def test_when_options_say_nothing(tmp_path: Path) -> None:
    """Every ten writes a clean, once there are more than it retains; from thirty writes on the timeline is cut back."""
    storage = open_storage(tmp_path)
    config = TableConfig({"hoodie.table.name": "t", "hoodie.table.type": "MERGE_ON_READ", "hoodie.table.version": "9"})
    inline, found = parse_inline_services({}), {}
    for count in range(1, 45):
        times = [InstantTime(f"{20261116000000000 + 10 * n}") for n in range(count)]
        done = (Instant(time, Action.DELTA_COMMIT, State.COMPLETED, InstantTime(f"{int(time) + 1}")) for time in times)
        state = TableState(storage, config, Timeline.of(done), Documents(storage, config))
        found[count] = inline.due(state, InstantTime(f"{int(times[-1]) + 1}"))
    wanted = {20: ("clean",), 30: ("clean",), 31: ("archive",), 40: ("clean",), 41: ("archive",)}
    assert {count: names for count, names in found.items() if names} == wanted


def test_finding_out_costs_no_request(tmp_path: Path) -> None:
    options = {"hoodie.clustering.inline": "true", "hoodie.compact.inline": "true", **NONE}
    table = new_table(tmp_path, "mor", options)
    table.overwrite(rows(0), whole_table=True)
    result = table.upsert(rows(1))
    before = table._handle.storage.counts.snapshot()
    assert parse_inline_services(options).due(table._handle.last_look, result.completed_at) == ()
    assert table._handle.storage.counts.snapshot() == before


def test_a_service_with_nothing_to_do_is_not_asked_at_every_write(tmp_path: Path, due: list[tuple[str, ...]]) -> None:
    """No file of a table that is only added to is ever old."""
    table = new_table(tmp_path, options={"hoodie.clean.commits.retained": "1", "hoodie.clean.trigger.max.commits": "3"})
    for number in range(8):
        table.bulk_insert(rows(0, first=3 * number))
    assert due == [("clean",), ("clean",)]
    assert actions(table) == {"commit": 8}


def test_nothing_follows_where_it_is_not_wanted(tmp_path: Path, due: list[tuple[str, ...]]) -> None:
    few = {"hoodie.clean.commits.retained": "1", "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
    table = new_table(tmp_path, "mor", {**NONE, **few, "hoodie.clean.trigger.max.commits": "1"})
    for ts in range(6):
        table.upsert(rows(ts))
    assert due == []
    assert actions(table) == {"deltacommit": 6}


def test_compaction(tmp_path: Path) -> None:
    options = {**NONE, "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
    table = new_table(tmp_path, "mor", options)
    for ts in range(5):
        table.upsert(rows(ts))
    assert actions(table) == {"deltacommit": 5, "commit": 2}
    assert [bool(file_slice.logs) for file_slice in table.files()] == [True]
    assert set(table.to_arrow()["ts"].to_pylist()) == {4}


def test_log_compaction(tmp_path: Path) -> None:
    options = {**NONE, "hoodie.log.compaction.inline": "true", "hoodie.log.compaction.blocks.threshold": "3"}
    table = new_table(tmp_path, "mor", options)
    for ts in range(4):
        table.upsert(rows(ts))
    assert operations(table) == {"UPSERT": 4}
    for ts in range(4, 6):
        table.upsert(rows(ts))
    assert operations(table) == {"UPSERT": 6, "LOG_COMPACT": 1}


@pytest.mark.parametrize("spelling", ["hoodie.clustering.inline", "hoodie.datasource.clustering.inline.enable"])
def test_clustering(tmp_path: Path, spelling: str) -> None:
    table = new_table(tmp_path, options={**NONE, spelling: "true", "hoodie.clustering.inline.max.commits": "2"})
    for number in range(5):
        table.bulk_insert(rows(0, first=3 * number))
    assert operations(table) == {"BULK_INSERT": 5, "CLUSTER": 2}
    assert len(table.files()) == 2
    assert table.to_arrow().num_rows == 15


def test_a_plan_whose_process_died_is_executed(tmp_path: Path) -> None:
    """Else a clustering that nobody executes would refuse writers for ever."""
    table = new_table(tmp_path, options=NONE)
    for number in range(2):
        table.bulk_insert(rows(0, first=3 * number))
    assert table.services.schedule("clustering") is not None
    keeper = lakebed.open_table(tmp_path, options={**NONE, "hoodie.clustering.inline": "true"})
    keeper.bulk_insert(rows(0, first=6))
    assert not table.timeline.pending()
    assert operations(table)["CLUSTER"] == 1


def test_what_goes_wrong_does_not_fail_the_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = new_table(tmp_path)
    table.upsert(rows(0))
    Path(tmp_path, ".hoodie/timeline/20200101000000000.clean.requested").write_bytes(b"no plan")
    with caplog.at_level(logging.INFO, "lakebed"):
        assert table.upsert(rows(1)).updated == 3
    [record] = [record for record in caplog.records if "after a write" in record.message]
    assert record.levelname == "WARNING"
    assert "20200101000000000.clean.requested" in record.message
    assert set(table.to_arrow()["ts"].to_pylist()) == {1}


def test_wrong_options_show_before_anything_is_written(tmp_path: Path) -> None:
    new_table(tmp_path)
    for key, value in (("hoodie.keep.min.commits", "50"), ("hoodie.clean.automatic", "maybe")):
        with pytest.raises(lakebed.InvalidInputError, match=key.rpartition(".")[0]):
            lakebed.open_table(tmp_path, options={key: value}).upsert(rows(0))
    assert len(lakebed.open_table(tmp_path).timeline) == 0


def test_passes_cluster_if_asked_to(tmp_path: Path) -> None:
    table = new_table(tmp_path, options=NONE)
    for number in range(4):
        table.bulk_insert(rows(0, first=3 * number))
    assert "clustering" not in {done.service for done in table.services.run()}
    asked = lakebed.open_table(tmp_path, options={"hoodie.clustering.async.enabled": "true"})
    assert "clustering" in {done.service for done in asked.services.run()}
    assert "clustering" not in {done.service for done in asked.services.run()}
    assert len(table.files()) == 1
    assert Action.CLUSTERING not in {i.action for i in table.timeline}


@pytest.mark.spark
def test_services_on_spark(spark, tmp_path: Path) -> None:
    new_table(tmp_path, "mor", NONE)
    table = lakebed.open_table(tmp_path, spark=spark)
    for ts in range(3):
        table.upsert(rows(ts))
    services = table.services.on_spark()
    result = services.compact()
    assert result is not None
    assert services._context.engine.jobs == 1
    assert set(table.to_arrow()["ts"].to_pylist()) == {2}
    assert not any(file_slice.logs for file_slice in table.files())
