"""Reports of tables: what they say, of those that Apache Hudi wrote too."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from lakebed.api import open_table
from lakebed.errors import InvalidInputError
from lakebed.reports import table as table_module
from lakebed.reports.table import config_report, files_report, indexes_report, lookup_report, rows_report
from lakebed.reports.timeline import TimelineEntry, WriteSummary, parse_instant, timeline_report

COMPACTED = "hudi120_mor_part_compacted"
EVERY_INDEX = "hudi120_mor_nonpart_all_indexes"


def test_every_real_timeline_can_be_told(real_table) -> None:
    report = timeline_report(open_table(real_table.path))
    assert report.instants
    assert not [entry.problem for entry in report.instants if entry.problem]
    assert all((entry.written is not None) == _is_completed_write(entry) for entry in report.instants)


def _is_completed_write(entry: TimelineEntry) -> bool:
    return entry.state == "completed" and entry.action in ("commit", "deltacommit", "replacecommit")


def test_the_timeline_says_what_writes_wrote(unpack) -> None:
    instants = timeline_report(open_table(unpack(COMPACTED).path)).instants
    assert instants[0] == TimelineEntry(
        requested_at="20261116000129585",
        requested_time="2026-11-16T00:01:29.585",
        action="deltacommit",
        state="completed",
        completed_at="20261116000135938",
        completed_time="2026-11-16T00:01:35.938",
        duration_s=6.353,
        written=WriteSummary("insert", 6, 0, 0, files=2, bytes=870862, replaced_file_groups=0),
    )
    assert [entry.written and entry.written.operation for entry in instants] == [
        "insert",
        "upsert",
        "delete",
        "upsert",
        "compact",
        "upsert",
        None,
    ]
    assert (instants[-1].action, instants[-1].state, instants[-1].completed_at) == ("compaction", "requested", None)


def test_a_version_6_table_records_no_completion_times(unpack) -> None:
    instants = timeline_report(open_table(unpack("hudi015_mor_part_event_time").path)).instants
    assert {(entry.state, entry.completed_at, entry.duration_s) for entry in instants} == {("completed", None, None)}


def test_a_broken_commit_does_not_hide_the_others(unpack, tmp_path: Path) -> None:
    path = shutil.copytree(unpack(COMPACTED).path, tmp_path / "broken")
    (commit,) = (path / ".hoodie/timeline").glob("20261116000136151_*.deltacommit")
    commit.write_bytes(b"Obj\x01 this is no commit")
    instants = timeline_report(open_table(path)).instants
    assert [entry.requested_at for entry in instants if entry.problem] == ["20261116000136151"]
    assert sum(entry.written is not None for entry in instants) == 5


def test_files_of_now_and_then(unpack) -> None:
    table = open_table(unpack(COMPACTED).path)
    now, then = files_report(table).slices, files_report(table, "20261116000129585").slices
    assert [(s.partition, s.base_instant, len(s.log_files)) for s in now] == [
        ("eu", "20261116000145386", 2),
        ("us", "20261116000145386", 2),
    ]
    assert [(s.base_instant, len(s.log_files), s.log_bytes) for s in then] == [("20261116000129585", 0, 0)] * 2
    assert all(s.base_bytes > 400_000 for s in (*now, *then))


def test_config_of_real_tables(unpack) -> None:
    config = config_report(open_table(unpack(COMPACTED).path))
    assert (config.table, config.table_type, config.table_version) == ("mor_part_compacted", "MERGE_ON_READ", 9)
    assert (config.key_fields, config.partition_fields, config.ordering_fields) == (("id",), ("region",), ("ts",))
    assert list(config.properties) == sorted(config.properties)
    assert "record_index" in config.metadata_partitions


def test_indexes_and_why_there_are_none(unpack) -> None:
    path = unpack(EVERY_INDEX).path
    report = indexes_report(open_table(path))
    assert report.unusable is None
    assert {index.name for index in report.indexes} >= {"record_index", "secondary_index_idx_name", "bloom_filters"}
    without = indexes_report(open_table(path, options={"hoodie.metadata.enable": "false"}))
    assert without.indexes == ()
    assert "hoodie.metadata.enable" in (without.unusable or "")


def test_lookup_tells_which_keys_are_missing(unpack) -> None:
    table = open_table(unpack(EVERY_INDEX).path)
    report = lookup_report(table, ["k001", "nope", "k009", "nope"], ["name", "id"])
    assert sorted(map(json.dumps, report.rows.to_pylist())) == [
        '{"name": "u1", "id": "k001"}',
        '{"name": "x4", "id": "k009"}',
    ]
    assert report.missing == ("nope",)


def test_rows_up_to_the_limit(unpack) -> None:
    real = unpack(COMPACTED)
    table = open_table(real.path)
    everything = rows_report(table, limit=5)
    assert (everything.rows.num_rows, everything.more) == (len(real.rows), False)
    some = rows_report(table, limit=4, columns=["id"])
    assert (some.rows.num_rows, some.more, some.rows.column_names) == (4, True, ["id"])
    filtered = rows_report(table, limit=4, where="region = 'eu'", columns=["id"])
    assert sorted(filtered.rows["id"].to_pylist()) == ["k001", "k003"]
    then = rows_report(table, limit=100, as_of="20261116000129585", mode="read_optimized")
    assert then.rows.num_rows == 6
    with pytest.raises(InvalidInputError, match="no column"):
        rows_report(table, limit=1, columns=["nope"])


def test_slices_beyond_the_limit_stay_closed(unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    read_slice = table_module.read_slice
    monkeypatch.setattr(table_module, "read_slice", lambda task: opened.append(task) or read_slice(task))
    rows_report(open_table(unpack(COMPACTED).path), limit=1)
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("instant", "at"),
    [
        ("20261116000129585", datetime(2026, 11, 16, 0, 1, 29, 585_000)),
        ("20261116000129", datetime(2026, 11, 16, 0, 1, 29)),
        ("20261116000129585010", datetime(2026, 11, 16, 0, 1, 29, 585_000)),
        ("00000000000000", None),
        ("99999999999999999", None),
    ],
)
def test_the_moment_of_an_instant(instant: str, at: datetime | None) -> None:
    assert parse_instant(instant) == at
