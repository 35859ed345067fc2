"""A process that works on an index may die at any call to the store: nobody ever trusts half an index."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.api import Table, open_table
from lakebed.commit import entries as entries_module
from lakebed.errors import InvalidInputError, LakebedError, WriteConflictError
from lakebed.format.file_names import encode_instant_name
from lakebed.index.obliged import Obliged
from lakebed.metadata import MetadataTable
from lakebed.model.instant import Instant, InstantTime
from lakebed.model.words import Action, State
from lakebed.services.indexing import build as build_module
from lakebed.services.indexing import renew as renew_module
from lakebed.services.indexing.indexes import Indexes
from lakebed.storage.faults import NEVER_REFUSED, Call, Crash, Fault
from lakebed.transaction.section import Section
from services.worlds import contents, faulty, indexes_on, made, rows

Work = Callable[[Indexes], object]
WORKS: dict[str, Work] = {
    "create": lambda indexes: indexes.create("bloom", shards=2),
    "create_files": lambda indexes: indexes.create("files", rebuild=True),
    "create_record": lambda indexes: indexes.create("record_index", kind="record", shards=2, rebuild=True),
    "create_other": lambda indexes: indexes.create("record_index", kind="record_partitioned", rebuild=True),
    "drop": lambda indexes: indexes.drop("record_index"),
    "grow": lambda indexes: indexes.reshard(shards=3),
    "shrink": lambda indexes: indexes.reshard(shards=1),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "t"
    made(path, "mor", partitioned=False).indexes.create("record_index", kind="record", shards=2)
    return path


def nth_write(number: int, fault: Fault) -> Callable[[Call], Fault | None]:
    """A plan that strikes the nth call that changes the store: after each of them it is in another state."""
    seen = itertools.count(1)

    def decide(call: Call) -> Fault | None:
        return fault if call.possible >= NEVER_REFUSED and next(seen) == number else None

    return decide


@pytest.mark.parametrize("work", WORKS)
def test_a_crash_after_any_write_leaves_a_table_that_all_can_use(original: Path, tmp_path: Path, work: str) -> None:
    expected = contents(open_table(original))
    for number in itertools.count(1):
        path = tmp_path / f"{number}"
        shutil.copytree(original, path)
        try:
            WORKS[work](indexes_on(faulty(path, nth_write(number, Fault.CRASH_AFTER))))
        except Crash as crash:
            check_usable(path, expected, WORKS[work] if number % 2 else None, str(crash))
            shutil.rmtree(path)
            continue
        break
    assert number > 8


@pytest.mark.parametrize("work", ["grow", "shrink", "create_record"])
def test_a_crash_after_any_write_while_shards_catch_up_with_writers(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    before, publish = contents(open_table(original)), renew_module.publish_copy
    after = [(key, ts) for key, ts in before if key != "k001"] + [(f"k{n}", 3) for n in range(400, 430)]
    for number in itertools.count(1):
        path = tmp_path / f"{number}"
        shutil.copytree(original, path)

        def write_first(*arguments: object, of: Path = path) -> bool:
            open_table(of).upsert(rows(400, 30, ts=3))
            open_table(of).delete(["k001"])
            return publish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(renew_module, "publish_copy", write_first)
        try:
            WORKS[work](indexes_on(faulty(path, nth_write(number, Fault.CRASH_AFTER))))
        except Crash as crash:
            monkeypatch.setattr(renew_module, "publish_copy", publish)
            expected = after if contents(open_table(path)) != before else before
            check_usable(path, expected, WORKS[work] if number % 2 else None, str(crash))
            shutil.rmtree(path)
            continue
        break
    assert number > 8
    assert contents(open_table(path)) == after
    check_sound(open_table(path))
    assert newest_logs(path), "what was written meanwhile is in log files of its own"


@pytest.mark.parametrize("work", ["create", "create_other"])
def test_a_crash_after_any_write_while_a_build_catches_up_with_another_engine(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """That engine knows the config only: its commit has no entries, and says nothing of the index."""
    finish, find_obliged = build_module._finish, entries_module.find_obliged

    def of_the_config(section: Section, metadata: MetadataTable) -> Obliged:
        found = find_obliged(section, metadata)
        return Obliged({name: ids for name, ids in found.groups.items() if name not in found.building})

    for number in itertools.count(1):
        path = tmp_path / f"{number}"
        shutil.copytree(original, path)

        def write_first(*arguments: object, of: Path = path) -> None:
            with monkeypatch.context() as patched:
                patched.setattr(entries_module, "find_obliged", of_the_config)
                open_table(of).upsert(rows(400, 30, ts=3))
                open_table(of).delete(["k001"])
            finish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(build_module, "_finish", write_first)
        try:
            WORKS[work](indexes_on(faulty(path, nth_write(number, Fault.CRASH_AFTER))))
        except Crash as crash:
            monkeypatch.setattr(build_module, "_finish", finish)
            check_usable(path, contents(open_table(path)), WORKS[work] if number % 2 else None, str(crash))
            shutil.rmtree(path)
            continue
        break
    assert number > 8
    check_sound(open_table(path))
    assert len(contents(open_table(path))) == len(contents(open_table(original))) + 29


def newest_logs(path: Path) -> list[Path]:
    """The log files, but for placeholders, of the instant that the newest base files are of."""
    files = [*(path / ".hoodie/metadata/record_index").iterdir()]
    newest = max(file.name.split("_")[-1].split(".")[0] for file in files if file.suffix == ".hfile")
    return [file for file in files if f"_{newest}.log" in file.name and not file.name.endswith("_0-0-0")]


@pytest.mark.parametrize("work", WORKS)
def test_a_lost_answer_is_settled_or_told(original: Path, tmp_path: Path, work: str) -> None:
    expected = contents(open_table(original))
    faults = itertools.cycle([Fault.LOST_AFTER, Fault.UNAVAILABLE, Fault.LOST_BEFORE])
    for number in itertools.count(1, 3):
        path = tmp_path / f"{number}"
        shutil.copytree(original, path)
        storage = faulty(path, nth_write(number, next(faults)))
        try:
            WORKS[work](indexes_on(storage))
        except LakebedError as error:
            check_usable(path, expected, WORKS[work], str(error))
        else:
            check_usable(path, expected, None)
        shutil.rmtree(path)
        if all(traced.fault is None for traced in storage.trace):
            break
    assert number > 8


def check_usable(path: Path, expected: list[tuple[str, int]], work: Work | None, after: str = "") -> None:
    """Rows are what they were. Then either a write comes or the work is done again: indexes agree with the rows."""
    table = open_table(path)
    assert contents(table) == expected, after
    die(path)
    if work is not None:
        check_sound(table, "scheduled", "building")
        check_work_can_be_done(path, work, after)
    else:
        table.upsert(rows(900, 4, ts=9))
        check_sound(table, "scheduled", "building")
        table.services.rollback_failed_writes()
        assert contents(table) == sorted([*expected, *((f"k{n}", 9) for n in range(900, 904))]), after
        check_sound(table)


def die(path: Path) -> None:
    """Makes heartbeats too old to be alive."""
    for beat in (path / ".hoodie/.heartbeat").glob("*"):
        os.utime(beat, (1, 1))


def check_sound(table: Table, *more: str) -> None:
    for info in table.indexes.list():
        assert info.state in ("ready", "unfinished", *more), info
        if info.state == "ready" and info.name != "column_stats":  # Nothing is done to these.
            found = table.indexes.validate(info.name)
            assert found.is_sound, (found, found.examples)


def check_work_can_be_done(path: Path, work: Work, after: str) -> None:
    """The work can be done again, unless it was done; or the index be created, if resharding lost it."""
    indexes = open_table(path).indexes
    told = ""
    try:
        work(indexes)
    except InvalidInputError as error:
        told = str(error)
    assert any(text in told for text in ("already", "no index 'record_index'", "no record index")) or not told, after
    if "record_index" not in open_table(path).config.metadata_partitions:
        indexes.create("record_index", kind="record", shards=2)
    check_sound(open_table(path))
    assert not [i for i in open_table(path).timeline.pending() if i.action is Action.INDEXING], after


def test_readers_that_began_before_go_on_while_shards_become_more(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(original, path)
    reader = open_table(path)
    state = reader._handle.state()
    assert state.metadata is not None
    open_table(path).indexes.reshard(shards=5)
    from lakebed.read.lookup import lookup_keys

    keys = [key for key, _ in contents(reader)]
    assert sorted(lookup_keys(state, keys)["id"].to_pylist()) == keys, "as of the look from before"
    assert sorted(reader.lookup(keys)["id"].to_pylist()) == keys


def test_readers_that_began_before_do_without_the_index_when_shards_became_fewer(
    original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    shutil.copytree(original, path)
    state = open_table(path)._handle.state()
    assert state.metadata is not None
    open_table(path).indexes.reshard(shards=1)
    from lakebed.read.lookup import lookup_keys

    assert lookup_keys(state, ["k001"])["id"].to_pylist() == ["k001"]


def test_resharding_to_the_same_number_writes_nothing(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(original, path)
    before = sorted(file.name for file in path.rglob("*") if ".locks" not in file.parts)
    assert open_table(path).indexes.reshard(shards=2).shards == 2
    assert sorted(file.name for file in path.rglob("*") if ".locks" not in file.parts) == before


def test_resharding_keeps_every_entry(original: Path, tmp_path: Path) -> None:
    from lakebed.index.record.probe import read_record_index
    from lakebed.metadata import MetadataTable

    def entries(table: Table) -> list[tuple[object, ...]]:
        metadata = table._handle.state().metadata
        assert isinstance(metadata, MetadataTable)
        return sorted(tuple(row.values()) for row in read_record_index(metadata).to_pylist())

    path = tmp_path / "t"
    shutil.copytree(original, path)
    table = open_table(path)
    table.upsert(rows(500, 30, ts=5))
    expected = entries(table)
    for shards in (7, 3, 12, 1, 2):
        assert table.indexes.reshard("record_index", shards=shards).shards == shards
        assert entries(table) == expected
        table.upsert(rows(500, 30, ts=5))
        assert entries(table) == expected


def test_what_cannot_be_resharded_is_refused(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    shutil.copytree(original, path)
    indexes = open_table(path).indexes
    for call, message in (
        (lambda: indexes.reshard(shards=0), "0 shards"),
        (lambda: indexes.reshard("column_stats", shards=2), "column_stats cannot"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
    indexes.drop("record_index")
    with pytest.raises(InvalidInputError, match="no record index"):
        indexes.reshard(shards=2)


def test_a_write_with_entries_in_the_old_shards_is_waited_for(original: Path, tmp_path: Path) -> None:
    """As Apache Hudi's streaming writers have them: in the metadata table before the write is about to complete."""
    path = tmp_path / "t"
    shutil.copytree(original, path)
    table = open_table(path)
    attempt = table._transactions.begin(Action.DELTA_COMMIT)
    name = encode_instant_name(Instant(InstantTime(attempt.instant), Action.DELTA_COMMIT, State.REQUESTED), layout=2)
    (path / ".hoodie/metadata/.hoodie/timeline" / name).write_bytes(b"")
    with pytest.raises(WriteConflictError, match=attempt.instant):
        table.indexes.reshard(shards=3)
    table._transactions.abandon(attempt)
    assert table.indexes.reshard(shards=3).shards == 3
