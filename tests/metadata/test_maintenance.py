from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import create_table, open_table
from lakebed.engine.engines import InProcess
from lakebed.errors import InvalidInputError, StorageUnavailableError
from lakebed.format.timeline.metadata import decode_compaction_plan
from lakebed.index.upkeep import maintain
from lakebed.metadata.upkeep import compaction, maintenance
from lakebed.metadata.upkeep.maintenance import archivable
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


MERGED = {"hoodie.metadata.log.compaction.enable": "true", "hoodie.metadata.log.compaction.blocks.threshold": "3"}
MDT = ".hoodie/metadata"
ROWS = pa.table({"id": [f"k{number:02d}" for number in range(20)], "v": list(range(20))})


def small_table(path: Path) -> Path:
    create_table(path, schema=ROWS.schema, key="id", table_type="mor", indexes=["record"]).insert(ROWS)
    return path


def timeline_names(path: Path, ending: str) -> list[str]:
    return sorted(file.name[:17] for file in (path / MDT / ".hoodie/timeline").glob(f"*{ending}"))


def merges(path: Path) -> list[str]:
    """The log compactions that completed."""
    done = timeline_names(path, ".deltacommit")
    return [time for time in timeline_names(path, ".logcompaction.requested") if time in done]


def check_whole(path: Path, expected: int) -> None:
    table = open_table(path)
    assert (
        table.to_arrow().num_rows == open_table(path, options={"hoodie.metadata.enable": "false"}).to_arrow().num_rows
    )
    assert table.to_arrow().num_rows == expected
    assert table.indexes.validate("record_index").is_sound
    assert table.doctor() == ()


def test_log_files_are_merged_if_asked_for(tmp_path: Path) -> None:
    plain, merged = small_table(tmp_path / "plain"), small_table(tmp_path / "merged")
    for number in range(14):
        for path, options in ((plain, {}), (merged, MERGED)):
            table = open_table(path, options=options)
            table.upsert([{"id": f"a{number:02d}", "v": number}, {"id": "k00", "v": -number}])
            if number % 4 == 3:
                table.delete([f"k{number:02d}"])
    assert merges(plain) == []
    assert len(merges(merged)) >= 3
    assert timeline_names(merged, ".commit")  # It is compacted, too.
    check_whole(merged, 31)
    rows = [sorted(open_table(path).to_arrow(columns=["id", "v"]).to_pylist(), key=str) for path in (plain, merged)]
    assert rows[0] == rows[1]
    keys = [f"k{number:02d}" for number in range(20)]
    assert len(open_table(merged).lookup(keys)) == 17


def test_a_log_compaction_that_was_left_is_taken_up_by_anyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_table(tmp_path / "t")

    def die(*_: object) -> None:
        raise StorageUnavailableError("gone", hint="none")

    with monkeypatch.context() as broken:
        broken.setattr(maintenance, "_run_logs", die)
        for number in range(4):
            open_table(path, options=MERGED).upsert([{"id": f"a{number:02d}", "v": number}])
    (left,) = timeline_names(path, ".logcompaction.inflight")
    assert merges(path) == []
    stray = path / MDT / f"files/.files-0000-0_{left}.log.1_9-9-9"
    stray.write_bytes(b"what a dead attempt left")
    for file in (path / MDT / ".hoodie/timeline").glob(f"{left}.*"):
        os.utime(file, (1, 1))
    assert [(finding.place, finding.repair) for finding in open_table(path).doctor()] == [(left, "execute it")]
    open_table(path).upsert([{"id": "a99", "v": 9}])
    assert merges(path) == [left]
    assert not stray.exists()
    check_whole(path, 25)


def test_a_write_that_is_merged_cannot_be_rolled_back(tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")
    done = open_table(path).upsert([{"id": "a00", "v": 0}])
    open_table(path).rollback(done.instant)
    for number in range(9):
        done = open_table(path, options=MERGED).upsert([{"id": f"b{number:02d}", "v": number}])
        if merges(path):
            break
    with pytest.raises(InvalidInputError, match="compacted into the metadata table"):
        open_table(path).rollback(done.instant)
    done = open_table(path).upsert([{"id": "c00", "v": 0}])
    open_table(path).rollback(done.instant)
    check_whole(path, 20 + number + 1)


def test_a_restore_keeps_what_was_merged_before_and_nothing_after(tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")
    while not merges(path):
        target = open_table(path, options=MERGED).upsert([{"id": f"b{len(ROWS)}{merges(path)}", "v": 1}])
    open_table(path).savepoint(target.instant)
    before = open_table(path).to_arrow().num_rows
    open_table(path).upsert([{"id": "c00", "v": 0}])
    open_table(path).restore(target.instant)
    assert (path / MDT / ".hoodie/timeline").exists()  # The metadata table was carried along.
    assert len(merges(path)) == 1
    check_whole(path, before)
    for number in range(8):
        open_table(path, options=MERGED).upsert([{"id": f"d{number:02d}", "v": 0}])
    assert len(merges(path)) > 1
    open_table(path).restore(target.instant)
    assert open_table(path).to_arrow().num_rows == before


def test_a_partition_that_is_being_built_is_left_alone(tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")
    for number in range(3):
        open_table(path).upsert([{"id": f"a{number:02d}", "v": number}])
    properties = path / ".hoodie/hoodie.properties"
    text = properties.read_text()
    ready = next(line for line in text.splitlines() if line.startswith("hoodie.table.metadata.partitions="))
    names = [name for name in ready.partition("=")[2].split(",") if name != "record_index"]
    building = f"{ready.partition('=')[0]}={','.join(names)}\n{ready.partition('=')[0]}.inflight=record_index"
    properties.write_text(text.replace(ready, building))
    maintain(open_table(path)._transactions, InProcess(), 2)
    (merge,) = merges(path)
    plan_path = path / MDT / f".hoodie/timeline/{merge}.logcompaction.requested"
    plan = decode_compaction_plan(plan_path.read_bytes(), path=plan_path.name)
    assert {operation.partition for operation in plan.operations} == {*names} - {"bloom_filters"}
    assert not list((path / MDT / "record_index").glob(f".*_{merge}.log*"))


def test_readers_do_not_read_log_files_that_were_merged(tmp_path: Path) -> None:
    path = small_table(tmp_path / "t")
    often = {**MERGED, "hoodie.metadata.log.compaction.blocks.threshold": "2"}
    while len(merges(path)) < 2:
        open_table(path, options=often).upsert([{"id": f"a{len(timeline_names(path, '')):04d}", "v": 1}])
    first, last = merges(path)
    assert timeline_names(path, ".commit") == []  # The second has taken in what the first made.
    for log in (path / MDT / "files").glob(".*.log.*"):
        instant = log.name.partition("_")[2][:17]
        if instant < last and instant != first:
            log.write_bytes(bytes(log.stat().st_size))  # Whoever reads it finds nothing that makes sense.
    plain = open_table(path, options={"hoodie.metadata.enable": "false"}).to_arrow()
    assert open_table(path).to_arrow().num_rows == plain.num_rows
    assert len(open_table(path).to_arrow(where="id = 'k01'")) == 1
