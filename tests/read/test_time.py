"""Time travel and incremental reads go by completion time."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest

import lakebed
from lakebed.read.snapshot import parse_time


def keys(table) -> dict[str, int]:
    return {row["_hoodie_record_key"]: row["ts"] for row in table.to_pylist()}


@pytest.fixture(params=["hudi120_mor_part_compacted", "hudi015_mor_part_compacted", "hudi102_mor_part_compacted"])
def compacted(request, unpack) -> lakebed.Table:
    """insert 6, update 3, delete 1, compaction scheduled, update 2, compaction run, update 2, compaction scheduled."""
    return lakebed.open_table(unpack(request.param).path)


def test_every_instant_shows_the_table_right_after_it(compacted: lakebed.Table) -> None:
    commits = sorted(instant.requested_at for instant in compacted.timeline.commits())
    inserted = {f"k{i:03d}": 10 for i in range(6)}
    updated = {**inserted, "k000": 20, "k001": 20, "k002": 20}
    deleted = {key: ts for key, ts in updated.items() if key != "k005"}
    during = {**deleted, "k001": 30, "k002": 30}
    # The compaction was requested before, but in layout 2 completed after, the write that went on beside it.
    compaction = during if compacted.config.timeline_layout == 2 else deleted
    last = {**during, "k000": 40, "k001": 40}
    expected = (inserted, updated, deleted, compaction, during, last)
    for requested_at, rows in zip(commits, expected, strict=True):
        assert keys(compacted.to_arrow(as_of=requested_at)) == rows


def test_a_moment_shows_what_had_completed_by_then(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_cow_part_upsert").path)
    first, second, _ = table.timeline.commits()
    assert first.completed_at is not None
    assert keys(table.to_arrow(as_of=first.completed_at)) == keys(table.to_arrow(as_of=first.requested_at))
    at = datetime.strptime(first.completed_at + "000", "%Y%m%d%H%M%S%f")
    for spelled in (at, at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S.%f"), second.requested_at[:14]):
        assert keys(table.to_arrow(as_of=spelled)) == keys(table.to_arrow(as_of=first.requested_at)), spelled


def test_changes_since_each_instant(compacted: lakebed.Table) -> None:
    commits = sorted(instant.requested_at for instant in compacted.timeline.commits())
    since = {requested_at: keys(compacted.changes(requested_at)) for requested_at in commits}
    assert since[commits[0]] == since[commits[1]] == {"k000": 40, "k001": 40, "k002": 30}
    assert since[commits[4]] == {"k000": 40, "k001": 40}
    assert since[commits[5]] == {}
    assert keys(compacted.changes("earliest")) == keys(compacted.to_arrow())
    between = compacted.changes(commits[0], commits[1])
    assert keys(between) == {"k000": 20, "k001": 20, "k002": 20}


def test_changes_reach_into_the_archive(unpack) -> None:
    for name in ("hudi120_cow_part_clean_archive", "hudi015_cow_part_clean_archive"):
        table = lakebed.open_table(unpack(name).path)
        assert keys(table.changes("earliest")) == keys(table.to_arrow())
        assert len(table.timeline.commits()) < 10


def test_cleaned_snapshots_are_refused_and_the_hint_is_true(unpack) -> None:
    table = lakebed.open_table(unpack("hudi120_cow_part_clean_archive").path)
    first = table.timeline.commits()[0]
    with pytest.raises(lakebed.InvalidInputError, match="have been cleaned") as caught:
        table.to_arrow(as_of=first.requested_at)
    earliest = caught.value.hint.rpartition(" ")[2]
    assert table.to_arrow(as_of=earliest).num_rows == 4


def test_nothing_changed_since_a_moment_after_the_last_commit(compacted: lakebed.Table) -> None:
    assert compacted.changes("2099-01-01").num_rows == 0


def test_since_after_until(compacted: lakebed.Table) -> None:
    first, *_, last = sorted(instant.requested_at for instant in compacted.timeline.commits())
    with pytest.raises(lakebed.InvalidInputError, match="is after until"):
        compacted.changes(last, first)


@pytest.mark.parametrize(
    ("value", "digits"),
    [
        ("20261116", "20261116000000000"),
        ("2026-11-16", "20261116000000000"),
        (date(2026, 11, 16), "20261116000000000"),
        ("20261116093000", "20261116093000000"),
        ("2026-11-16 09:30", "20261116093000000"),
        ("2026-11-16T09:30:00.123456", "20261116093000123"),
        ("2026-11-16T09:30:00Z", "20261116093000000"),
        (datetime(2026, 11, 16, 9, 30, tzinfo=timezone(timedelta(hours=2))), "20261116073000000"),
    ],
)
def test_moments(value: object, digits: str) -> None:
    assert parse_time(value, utc=True) == digits
