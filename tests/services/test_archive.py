"""Archiving the timeline: it stays short, and nothing that anyone needs leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakebed
from commits import commit_files
from lakebed.errors import InvalidInputError
from lakebed.format.timeline.metadata import decode_commit
from lakebed.index.upkeep import maintain
from lakebed.model.commit import CommitMetadata
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.services.archive import ArchiveLimits, archive_timeline, parse_archive_limits
from lakebed.services.clean.plan import Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.clustering.run import execute_clustering, schedule_clustering
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.services.values import ServiceContext
from lakebed.storage import open_storage
from lakebed.storage.faults import Crash, Fault, FaultyStorage, at
from lakebed.table import open_handle
from lakebed.timeline import Archive
from lakebed.transaction.conflicts import WriteKind, WriteSet
from lakebed.transaction.markers import open_markers

from .serviced_tables import (
    Modelled,
    age_heartbeats,
    context_of,
    context_on,
    copy_of,
    crash_points,
    new_table,
    rows_of,
    without_metadata,
)

FEW = ArchiveLimits(min_commits=3, max_commits=4)
ONE = Retention(commits=1)


def clean(context: ServiceContext, retention: Retention = ONE) -> None:
    instant = schedule_clean(context, retention)
    if instant is not None:
        execute_clean(context, instant)


@pytest.fixture
def plain(tmp_path: Path) -> Modelled:
    """A table without a metadata table, whose compactions would otherwise decide when something is archived."""
    return without_metadata(new_table(tmp_path))


def active(table: Modelled) -> list[InstantTime]:
    return [i.requested_at for i in table.table.timeline.commits()]


def archived(table: Modelled) -> list[InstantTime]:
    return [a.instant.requested_at for a in Archive(table.storage, table.table.config).instants()]


def test_the_timeline_is_cut_back_once_it_is_long(plain: Modelled) -> None:
    instants = [plain.upsert([0], ts) for ts in range(4)]
    assert archive_timeline(context_of(plain.table), FEW, ONE) == 0
    instants.append(plain.upsert([0], 4))
    assert archive_timeline(context_of(plain.table), FEW, ONE) == 2
    assert active(plain) == instants[2:]
    assert archived(plain) == instants[:2]
    plain.check_now()
    plain.check_past(instants[2:])
    with pytest.raises(InvalidInputError, match="before the first commit"):
        rows_of(plain.table, as_of=instants[0])
    assert plain.table.changes("earliest", columns=["id"]).num_rows == 1


def test_what_an_instant_says_is_found_when_it_was_archived_meanwhile(plain: Modelled) -> None:
    """Readers and writers list the timeline without the lock, and then read what its instants say."""
    for ts in range(6):
        plain.upsert([0], ts)
    seen = open_handle(plain.path).state()
    expected = {i: seen.storage.get(seen.documents.path(i)) for i in seen.timeline.commits()}
    assert archive_timeline(context_of(plain.table), FEW, ONE) > 0
    gone = [instant for instant in expected if seen.storage.find(seen.documents.path(instant)) is None]
    assert gone
    for instant in gone:
        assert seen.documents.commit(instant) == decode_commit(expected[instant], path="")


def test_commits_that_cleaning_retains_stay(plain: Modelled) -> None:
    instants = [plain.upsert([0], ts) for ts in range(8)]
    assert archive_timeline(context_of(plain.table), FEW, Retention(commits=6)) == 2
    assert active(plain) == instants[2:]
    assert archive_timeline(context_of(plain.table), FEW, Retention(commits=9)) == 0


def test_nothing_goes_that_the_metadata_table_has_not_compacted(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert([0], ts) for ts in range(6)]
    context = context_of(table.table)
    assert archive_timeline(context, FEW, ONE) == 0
    instants += [table.upsert([0], ts) for ts in range(6, 10)]
    maintain(context.transactions, context.engine)
    assert archive_timeline(context, FEW, ONE) == 7
    assert active(table) == instants[7:]
    table.check_now()


def test_a_pending_instant_keeps_what_completed_after_it_began(plain: Modelled) -> None:
    instants = [plain.upsert([0], ts) for ts in range(2)]
    context = context_of(plain.table)
    attempt = context.transactions.begin(Action.COMMIT)
    instants += [plain.upsert([0], ts) for ts in range(2, 8)]
    assert archive_timeline(context, FEW, ONE) == 1, "what it saw last stays too"
    assert active(plain) == instants[1:]
    context.transactions.abandon(attempt)
    assert archive_timeline(context, FEW, ONE) == 4
    plain.check_now()


def test_what_goes_is_a_prefix_by_request_and_by_completion(plain: Modelled) -> None:
    """A write that was requested first and completed last keeps all on the timeline that completed before it."""
    instants = [plain.upsert([0], ts) for ts in range(2)]
    context = context_of(plain.table)
    early = context.transactions.begin(Action.COMMIT)
    instants += [plain.upsert([0], ts) for ts in range(2, 5)]
    empty = CommitMetadata(operation="UPSERT")
    context.transactions.declare(early, empty)
    commit_files(context.transactions, early, WriteSet(WriteKind.UPSERT), frozenset(), empty)
    plain.upsert([0], 9)
    assert archive_timeline(context, ArchiveLimits(min_commits=3, max_commits=4), ONE) == 2
    assert sorted(archived(plain)) == instants[:2]
    plain.check_now()


def test_a_replace_commit_stays_until_what_it_replaced_is_cleaned(plain: Modelled) -> None:
    plain.upsert(range(3), 0)
    plain.overwrite(range(3), 1)
    for ts in range(2, 7):
        plain.upsert([0], ts)
    context = context_of(plain.table)
    assert archive_timeline(context, FEW, ONE) == 1
    plain.check_now()
    clean(context)
    assert archive_timeline(context, FEW, ONE) > 1
    assert active(plain)[0] > archived(plain)[1]
    plain.check_now()


def test_a_savepoint_keeps_its_commit_and_all_after_it(plain: Modelled) -> None:
    instants = [plain.upsert([0], ts) for ts in range(7)]
    context = context_of(plain.table)
    savepoint(context, instants[1])
    assert archive_timeline(context, FEW, ONE) == 1
    assert active(plain) == instants[1:]
    delete_savepoint(context, instants[1])
    assert archive_timeline(context, FEW, ONE) == 3


def test_a_rollback_goes_after_a_last_sweep(plain: Modelled) -> None:
    plain.upsert([0], 0)
    context = context_of(plain.table)
    attempt = context.transactions.begin(Action.COMMIT)
    context.transactions.abandon(attempt)
    late = Path(plain.path, "oslo", f"late-0_0-0-0_{attempt.instant}.parquet")
    late.write_bytes(b"what a task made after its write was rolled back")
    open_markers(plain.storage, attempt.instant)
    for ts in range(1, 7):
        plain.upsert([0], ts)
    assert archive_timeline(context, FEW, ONE) == 4
    assert not late.exists()
    assert not Path(plain.path, ".hoodie/.temp", attempt.instant).exists()
    assert plain.table.timeline.completed()[0].action is Action.ROLLBACK, "it had a stray file"
    for ts in range(7, 11):
        plain.upsert([0], ts)
    archive_timeline(context, FEW, ONE)
    assert not [i for i in plain.table.timeline if i.action is Action.ROLLBACK]
    assert Action.ROLLBACK in [a.instant.action for a in Archive(plain.storage, plain.table.config).instants()]


def test_many_small_commits_leave_a_short_timeline(tmp_path: Path) -> None:
    table = new_table(tmp_path, "mor", partition_by=None)
    context = context_of(table.table)
    files, sizes = set(), []
    for ts in range(40):
        table.upsert([0, 3 + ts % 2], ts)
        clean(context, Retention(commits=2))
        archive_timeline(context, FEW, Retention(commits=2))
        sizes.append(len(list(Path(table.path, ".hoodie/timeline").glob("*"))))
        files.add(len(active(table)))
    # The metadata table is compacted every ten delta commits, and what comes after stays.
    assert max(files) <= FEW.max_commits + 10
    assert max(sizes[20:]) <= max(sizes[:20])
    assert len(active(table)) + len(archived(table)) == 40
    folder = Path(table.path, ".hoodie/timeline/history")
    assert len(manifest(folder, int((folder / "_version_").read_text()))) <= 10
    assert len(list(folder.iterdir())) <= 30
    rows = [{"id": "k0", "ts": 39}, {"id": "k3", "ts": 38}, {"id": "k4", "ts": 39}]
    found = table.table.to_arrow(columns=["id", "ts"]).sort_by("id").to_pylist()
    assert found == rows
    for ts, instant in list(enumerate(table.past))[-len(active(table)) :]:
        seen = table.table.to_arrow(columns=["ts"], where="id = 'k0'", as_of=instant).to_pylist()
        assert seen == [{"ts": ts}]
    assert table.table.changes("earliest", columns=["id"]).num_rows == 3


def test_history_files_are_merged_level_by_level(plain: Modelled) -> None:
    context = context_of(plain.table)
    closest = ArchiveLimits(min_commits=1, max_commits=2)
    plain.upsert([0], 0)
    for ts in range(1, 23):
        plain.upsert([0], ts)
        archive_timeline(context, closest, ONE)
    folder = Path(plain.path, ".hoodie/timeline/history")
    names = sorted(path.name for path in folder.glob("*.parquet"))
    version = int((folder / "_version_").read_text())
    listed = [entry["fileName"] for entry in manifest(folder, version)]
    assert [name[-9:] for name in listed if name.endswith("_1.parquet")] == ["1.parquet"]
    assert len(listed) <= 10
    assert {*listed} <= {*names}
    assert len(list(folder.glob("manifest_*"))) <= 4
    for name in names:
        assert any(name in str(manifest(folder, number)) for number in range(version - 3, version + 1) if number > 0)
    assert archived(plain) == sorted(plain.past)[: len(archived(plain))]
    assert len(archived(plain)) + len(active(plain)) == 23


def manifest(folder: Path, number: int) -> list[dict[str, str]]:
    import json

    path = folder / f"manifest_{number}"
    return json.loads(path.read_text())["files"] if path.exists() else []


def test_another_process_goes_on_wherever_an_archiver_dies(plain: Modelled, tmp_path: Path) -> None:
    instants = [plain.upsert([0], 0), plain.overwrite([0], 1)]
    context = context_of(plain.table)
    context.transactions.abandon(context.transactions.begin(Action.COMMIT))
    instants += [plain.upsert([0], ts) for ts in range(2, 7)]
    clean(context)

    def work(storage: object) -> int | None:
        return archive_timeline(context_on(storage), FEW, ONE) or None  # type: ignore[arg-type]

    for number in crash_points(plain, tmp_path / "dry", work):
        copy = copy_of(plain, tmp_path / f"{number}")
        with pytest.raises(Crash):
            work(FaultyStorage(copy.storage, at({number: Fault.CRASH_AFTER})))
        copy.check_now()
        copy.check_past(active(copy)[-2:])
        age_heartbeats(copy)
        archive_timeline(context_on(open_storage(copy.path)), FEW, ONE)
        copy.check_now()
        assert {*archived(copy)} >= {*instants[:3]}, number
        copy.upsert([0], 8)
        archive_timeline(context_on(open_storage(copy.path)), FEW, ONE)
        times = archived(copy)
        assert len(times) == len({*times}), "no instant is in the history twice"
        assert {*times} & {*active(copy)} == set(), number
        copy.check_now()
        shutil.rmtree(copy.path)


def test_limits_and_their_spellings() -> None:
    assert parse_archive_limits({}) == ArchiveLimits(min_commits=20, max_commits=30)
    asked = {"hoodie.keep.min.commits": "5", "hoodie.keep.max.commits": "8", "other": "x"}
    assert parse_archive_limits(asked) == ArchiveLimits(min_commits=5, max_commits=8)
    for bad in ({"hoodie.keep.min.commits": "30"}, {"hoodie.keep.min.commits": "0"}, {"hoodie.keep.max.commits": "x"}):
        with pytest.raises(InvalidInputError, match=r"hoodie\.keep"):
            parse_archive_limits(bad)
    assert lakebed.InvalidInputError is InvalidInputError


def test_files_of_a_late_attempt_go_with_the_commit_that_does_not_name_them(plain: Modelled) -> None:
    """Once the commit is forgotten a file is judged by its time alone."""
    plain.upsert([0], 0)
    context = context_of(plain.table)
    plan = schedule_clustering(context, order_by=["ts"])
    assert plan is not None
    executions = context.transactions.executions
    executions.give_up(executions.begin(plan), is_idle=True)
    execute_clustering(context, plan)
    [file] = [path for path in Path(plain.path).rglob("*.parquet") if plan in path.name]
    late = shutil.copy(file, file.with_name(f"late{file.name}"))
    plain.check_now()
    for ts in range(1, 5):
        plain.upsert([0], ts)
    clean(context)
    archive_timeline(context, FEW, ONE)
    assert plan in archived(plain)
    assert not Path(late).exists()
    plain.check_now()
