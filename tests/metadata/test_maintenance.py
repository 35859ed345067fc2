from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import create_table, open_table
from lakebed.metadata import compaction
from lakebed.metadata.maintenance import archivable
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State


def _commit(requested: int, completed: int) -> Instant:
    times = (InstantTime(f"{20260101000000000 + time}") for time in (requested, completed))
    requested_at, completed_at = times
    return Instant(requested_at, Action.DELTA_COMMIT, State.COMPLETED, completed_at)


NEVER = InstantTime("9" * 17)


def test_the_oldest_instants_are_archived_once_there_are_many() -> None:
    commits = [_commit(10 * number, 10 * number + 5) for number in range(60)]
    assert archivable(commits[:44], NEVER) == []
    assert archivable(commits[:45], NEVER) == commits[:15]
    assert archivable(commits, commits[20].completed_at or NEVER) == commits[:20]


def test_an_instant_that_took_long_keeps_those_that_were_requested_after_it() -> None:
    """Its requested time is the first on the active timeline: what is archived is looked for before it."""
    slow = _commit(105, 405)
    commits = sorted([slow, *(_commit(10 * number, 10 * number + 5) for number in range(60))], key=_completion)
    gone = archivable(commits, NEVER)
    assert slow not in gone
    assert gone == [commit for commit in commits if commit.requested_at < slow.requested_at]


def _completion(instant: Instant) -> str:
    return instant.completed_at or ""


def test_shards_that_are_too_large_to_be_compacted_each_time_outlive_the_instants_of_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, shard = tmp_path / "t", ".hoodie/metadata/record_index"
    rows = pa.table({"id": [f"k{number:03d}" for number in range(100)], "v": list(range(100))})
    create_table(path, schema=rows.schema, key="id", table_type="mor", indexes=["record"]).insert(rows)
    for number in range(12):  # After ten of them every shard has a base file.
        open_table(path).upsert([{"id": f"a{number:03d}", "v": number}])
    bases = {file.name for file in (path / shard).glob("*.hfile")}
    assert bases
    monkeypatch.setattr(compaction, "LARGE_BYTES", 1)
    monkeypatch.setattr(compaction, "LOG_SHARE", 0)
    for number in range(60):
        open_table(path).upsert([{"id": f"b{number:03d}", "v": number}])
    assert {file.name for file in (path / shard).glob("*.hfile")} == bases
    assert list((path / ".hoodie/metadata/.hoodie/timeline/history").glob("*.parquet"))
    table = open_table(path)
    keys = [*(f"k{number:03d}" for number in range(100)), *(f"a{number:03d}" for number in range(12))]
    keys += [f"b{number:03d}" for number in range(60)]
    assert sorted(table.lookup(keys)["id"].to_pylist()) == sorted(keys)
    assert table.indexes.validate("record_index").is_sound
