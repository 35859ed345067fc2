"""The doctor: every illness is named, a look writes nothing, a repair cures, and what lives is left alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import lakebed
from conftest import RealTable
from lakebed.format.file_names import decode_data_file_name
from lakebed.metadata.upkeep.compaction import DELTA_COMMITS
from lakebed.model.files import BaseFile
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.options import parse_write_options
from lakebed.services.doctor import doctor as doctor_module
from lakebed.services.doctor.doctor import open_doctor_at
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from lakebed.services.restore import restore
from lakebed.services.savepoint import savepoint
from lakebed.services.table_services import TableServices
from lakebed.storage import Storage, open_storage
from lakebed.storage.faults import Call, Crash, Fault, FaultyStorage
from lakebed.storage.port import Ticket
from lakebed.transaction.heartbeats import heartbeat_path
from lakebed.transaction.leases import FOLDER as LEASES
from lakebed.transaction.locks.lease import LOCK_FILE as LEASE_FILE
from lakebed.transaction.locks.lease import Lease, encode_lease
from lakebed.transaction.markers import marker_folder, open_markers
from lakebed.transaction.plans import cancel_marker
from lakebed.write.verbs import TableWrites

from .serviced_tables import context_of, context_on, new_table, without_metadata
from .worlds import contents, indexes_on, made, rows

OVER = InstantTime("20240101000000000")
"""A time of which no table here has an instant."""
LOCK_EXPIRES = {"hoodie.write.lock.filesystem.expire": "5"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    found = {}
    for table_type in ("cow", "mor"):
        found[table_type] = root / table_type
        made(root / table_type, table_type, partitioned=table_type == "mor")
    found["indexed"] = root / "indexed"
    made(root / "indexed", "mor", partitioned=False, indexes=("record", "bloom", "column_stats"))
    return found


@pytest.fixture
def mor(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["mor"], tmp_path / "mor"))


@pytest.fixture
def indexed(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["indexed"], tmp_path / "indexed"))


@pytest.fixture
def copied(originals: dict[str, Path], tmp_path: Path) -> Callable[[Any], Path]:
    """A table that an illness can befall."""
    kinds = {dead_clean: "cow"} | dict.fromkeys(OF_INDEXES, "indexed")
    return lambda illness: Path(shutil.copytree(originals[kinds.get(illness, "mor")], tmp_path / "t"))


def examine(path: Path, *, quick: bool = False, **options: str) -> tuple[Finding, ...]:
    return open_doctor_at(path, options).examine(quick=quick)


def age(path: Path, seconds: int = 10_000) -> None:
    """Makes everything that lies there that much older."""
    for file in [path, *path.rglob("*")]:
        if file.is_file():
            when = file.stat().st_mtime - seconds
            os.utime(file, (when, when))


def bytes_of(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder, and when it was written."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def crash(
    path: Path, verb: str, part: str, work: Callable[[Storage], object], fault: Fault = Fault.CRASH_BEFORE
) -> None:
    """Runs the work of a process that dies at the first call of a verb on a path that begins or ends with `part`."""

    def decide(call: Call) -> Fault | None:
        return fault if call.verb == verb and (call.path.startswith(part) or call.path.endswith(part)) else None

    with pytest.raises(Crash):
        work(FaultyStorage(open_storage(path), decide))


def write(storage: Storage, first: int = 0, prefix: str = "k") -> None:
    """An upsert by a process of its own."""
    context, options = context_on(storage), parse_write_options({})
    TableWrites(context.handle, context.transactions, options).upsert(rows(first, 6, ts=9, prefix=prefix))


def services(storage: Storage) -> TableServices:
    return TableServices(context_on(storage), {})


def newest_file(path: Path, kind: type = BaseFile) -> str:
    """A data file of the newest slices."""
    slices = lakebed.open_table(path).files()
    return next(s.paths[0] for s in slices if isinstance(s.base, kind))


# One function per illness: makes it, with the code that may leave it behind, and says what the doctor must say.


@dataclass
class Expected:
    kind: FindingKind
    place: str
    says: str
    blocks: str = ""
    remedy: Remedy = Remedy.BY_HAND
    options: dict[str, str] = field(default_factory=dict)


def dead_write(path: Path) -> Expected:
    crash(path, "create", ".inflight", write)
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path), "is gone", "archiving", Remedy.ROLL_BACK)


def dead_write_with_entries(path: Path) -> Expected:
    crash(path, "publish", ".hoodie/timeline/", write)
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path), "is gone", "compaction of the metadata table", Remedy.ROLL_BACK)


def interrupted_rollback(path: Path) -> Expected:
    dead = dead_write(path)
    crash(path, "create", ".rollback.inflight", lambda storage: context_on(storage).transactions.rollbacks.run())
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path, Action.ROLLBACK), dead.place, "archiving", Remedy.ROLL_BACK)


def dead_compaction(path: Path) -> Expected:
    crash(path, "publish", ".commit", lambda storage: services(storage).compact())
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path), "is gone", "rewriting 3 file groups", Remedy.EXECUTE)


def waiting_compaction(path: Path) -> Expected:
    instant = services(open_storage(path)).schedule("compaction")
    assert instant is not None
    assert examine(path) == (), "it was planned this moment"
    age(path / ".hoodie/timeline")
    return Expected(FindingKind.PENDING, instant, "nobody executes", "archiving", Remedy.EXECUTE)


def waiting_removable_clustering(path: Path) -> Expected:
    crash(path, "create", ".clustering.inflight", lambda s: services(s).cluster("fare", removable=True))
    age(path / ".hoodie/.heartbeat")
    age(path / ".hoodie/timeline")
    # Only its own time tells when a removable plan is overdue.
    for file in (path / ".hoodie/timeline").glob("*.clustering.requested"):
        file.rename(file.with_name(f"{OVER}.clustering.requested"))
    for file in (path / ".hoodie/.heartbeat").glob("*"):
        file.rename(file.with_name(OVER))
    shutil.rmtree(path / ".hoodie/.tickets")
    return Expected(FindingKind.PENDING, OVER, "nobody executes", "rewriting", Remedy.ROLL_BACK)


def dead_clean(path: Path) -> Expected:
    for number in range(4):
        write(open_storage(path), number)
    plan = {"hoodie.clean.commits.retained": "1"}
    crash(path, "publish", ".clean", lambda storage: TableServices(context_on(storage), plan).clean())
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path), "is gone", "archiving", Remedy.EXECUTE)


def interrupted_restore(path: Path) -> Expected:
    target = savepoint(context_on(open_storage(path)))
    write(open_storage(path))
    crash(path, "create", ".restore.inflight", lambda storage: restore(context_on(storage), target))
    age(path / ".hoodie/.heartbeat")
    return Expected(FindingKind.PENDING, pending(path, Action.RESTORE), target, "every write", Remedy.FINISH_RESTORE)


def unfinished_savepoint(path: Path) -> Expected:
    crash(path, "publish", ".savepoint", lambda storage: savepoint(context_on(storage)))
    instant = pending(path)
    for file in (path / ".hoodie/timeline").glob("*.savepoint.inflight"):
        age(file)
        os.utime(file, (1, 1))
    shutil.rmtree(path / ".hoodie/.tickets")
    return Expected(FindingKind.PENDING, instant, "not finished", "", Remedy.CLEAR)


def unfinished_indexing(path: Path) -> Expected:
    crash(path, "publish", ".indexing", lambda storage: indexes_on(storage).create("bloom", rebuild=True))
    shutil.rmtree(path / ".hoodie/.tickets")
    shutil.rmtree(path / ".hoodie/.leases")
    age(path / ".hoodie")
    return Expected(FindingKind.PENDING, pending(path), "has not completed", "archiving", Remedy.FINISH_INDEXING)


def unreadable_plan(path: Path) -> Expected:
    instant = services(open_storage(path)).schedule("compaction")
    plan = next((path / ".hoodie/timeline").glob("*.compaction.requested"))
    plan.write_bytes(plan.read_bytes()[:40])
    return Expected(FindingKind.PENDING, str(instant), "cannot be read", "archiving")


def stopped_heartbeat(path: Path) -> Expected:
    crash(path, "create", ".requested", write)
    shutil.rmtree(path / ".hoodie/.tickets")
    age(path / ".hoodie/.heartbeat")
    (beat,) = (path / ".hoodie/.heartbeat").iterdir()
    return Expected(FindingKind.LEFTOVER, f".hoodie/.heartbeat/{beat.name}", "expired", "", Remedy.ROLL_BACK)


def markers_of_nobody(path: Path) -> Expected:
    open_markers(open_storage(path), OVER)
    age(path / marker_folder(OVER))
    return Expected(FindingKind.LEFTOVER, marker_folder(OVER), "markers", "", Remedy.CLEAR)


def ticket_of_nobody(path: Path) -> Expected:
    open_storage(path).open_ticket(Ticket(OVER, "left"))
    return Expected(FindingKind.LEFTOVER, OVER, "ticket", "", Remedy.CLEAR)


def cancellation_of_nobody(path: Path) -> Expected:
    open_storage(path).create(cancel_marker(OVER), b"")
    age(path / cancel_marker(OVER))
    return Expected(FindingKind.LEFTOVER, cancel_marker(OVER), "cancellation", "", Remedy.CLEAR)


def lease_of_a_dead_reader(path: Path) -> Expected:
    open_storage(path).create(f"{LEASES}/reader", f"reader 3 {OVER}".encode())
    age(path / LEASES)
    return Expected(FindingKind.LEFTOVER, f"{LEASES}/reader", "reader", "", Remedy.CLEAR)


def lease_of_the_dead(path: Path) -> Expected:
    open_storage(path).create(LEASE_FILE, encode_lease(Lease("somebody", 1_700_000_000_000)))
    return Expected(FindingKind.LOCK, LEASE_FILE, "somebody died with the lock", "", Remedy.RELEASE)


def lease_that_cannot_be_read(path: Path) -> Expected:
    open_storage(path).create(LEASE_FILE, b"{")
    return Expected(FindingKind.LOCK, LEASE_FILE, "lock", "every writer")


def hudi_lock_that_never_expires(path: Path) -> Expected:
    open_storage(path).create(".hoodie/lock", b"{}")
    age(path / ".hoodie/lock")
    return Expected(FindingKind.LOCK, ".hoodie/lock", "exists since", "every writer")


def hudi_lock_that_expires(path: Path) -> Expected:
    hudi_lock_that_never_expires(path)
    return Expected(FindingKind.LOCK, ".hoodie/lock", "exists since", "every writer", Remedy.RELEASE, LOCK_EXPIRES)


def file_of_a_zombie(path: Path) -> Expected:
    """A task of a write that was rolled back goes on writing."""
    transactions = context_on(open_storage(path)).transactions
    attempt = transactions.begin(Action.COMMIT)
    transactions.abandon(attempt)
    file = path / f"oslo/{'0' * 32}-0_0-1-1_{attempt.instant}.parquet"
    file.write_bytes(b"late")
    age(file)
    os.utime(file, (1, 1))
    return Expected(FindingKind.STRAY_FILE, attempt.instant, "rolled back", "", Remedy.DELETE)


def file_of_a_task_that_ran_twice(path: Path) -> Expected:
    source = path / newest_file(path)
    file = decode_data_file_name(source.name)
    assert isinstance(file, BaseFile)
    twin = Path(shutil.copy(source, source.with_name(source.name.replace(file.write_token, "9-9-9"))))
    os.utime(twin, (1, 1))
    return Expected(FindingKind.STRAY_FILE, file.instant, "ran twice", "", Remedy.DELETE)


def file_of_the_metadata_table(path: Path) -> Expected:
    file = path / f".hoodie/metadata/files/.files-0000-0_{shifted(path)}.log.1_0-1-1"
    file.write_bytes(b"late")
    os.utime(file, (1, 1))
    return Expected(FindingKind.STRAY_FILE, shifted(path), "rolled back", "", Remedy.DELETE)


def lost_file(path: Path) -> Expected:
    name = newest_file(path)
    (path / name).unlink()
    return Expected(FindingKind.LOST_FILE, name, "newest snapshot", "every read")


def torn_file(path: Path) -> Expected:
    name = newest_file(path)
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2])
    return Expected(FindingKind.LOST_FILE, name, "another size than written", "every read")


def commit_that_cannot_be_read(path: Path) -> Expected:
    (file,) = (path / ".hoodie/timeline").glob(f"{newest(path)}_*")
    file.write_bytes(file.read_bytes()[:50])
    return Expected(FindingKind.LOST_FILE, f".hoodie/timeline/{file.name}", file.name, "everything that reads")


def hole_in_the_list(path: Path) -> Expected:
    instant = newest(path)
    (log,) = (path / ".hoodie/metadata/files").glob(f".files-0000-0_{instant}.log*")
    log.unlink()
    return Expected(FindingKind.METADATA, "files", "does not list", "do not see", Remedy.REBUILD)


def index_that_misses_keys(path: Path) -> Expected:
    write(open_storage(path), 0, prefix="new")
    for log in (path / ".hoodie/metadata/record_index").glob(f".*_{newest(path)}.log*"):
        log.unlink()
    return Expected(FindingKind.INDEX, "record_index", "6 missing", "miss rows", Remedy.REBUILD)


def statistics_that_miss_files(path: Path) -> Expected:
    for log in (path / ".hoodie/metadata/column_stats").glob(f".*_{newest(path)}.log*"):
        log.unlink()
    return Expected(FindingKind.INDEX, "column_stats", "missing", "miss rows", Remedy.REBUILD)


def index_without_a_shard(path: Path) -> Expected:
    for file in (path / ".hoodie/metadata/record_index").glob("*record-index-0000-0*"):
        file.unlink()
    return Expected(FindingKind.INDEX, "record_index", "missing", "every write", Remedy.REBUILD)


def unfinished_reshard(path: Path) -> Expected:
    crash(path, "replace", ".hoodie/hoodie.properties", lambda s: indexes_on(s).reshard(shards=12), Fault.CRASH_AFTER)
    context_on(open_storage(path)).transactions.rollbacks.run()
    return Expected(FindingKind.INDEX, "record_index", "lost it", "takes longer", Remedy.REBUILD)


def outgrown_shards(path: Path) -> Expected:
    small = {"hoodie.metadata.record.index.max.filegroup.size": "5000"}
    return Expected(FindingKind.INDEX, "record_index", "10 of 10 shards exceed 5,000 bytes", "slower", options=small)


def metadata_table_without_properties(path: Path) -> Expected:
    (path / ".hoodie/metadata/.hoodie/hoodie.properties").unlink()
    return Expected(FindingKind.METADATA, ".hoodie/metadata", "is missing", "every write")


def half_an_index(path: Path) -> Expected:
    lakebed.open_table(path).indexes.drop("bloom_filters")
    crash(path, "publish", ".hoodie/metadata/", lambda s: indexes_on(s).create("bloom"))
    shutil.rmtree(path / ".hoodie/.tickets")
    shutil.rmtree(path / ".hoodie/.leases")
    age(path / ".hoodie")
    return Expected(FindingKind.PENDING, pending(path), "is gone", "archiving", Remedy.ROLL_BACK)


def config_in_the_backup(path: Path) -> Expected:
    (path / ".hoodie/hoodie.properties").rename(path / ".hoodie/hoodie.properties.backup")
    return Expected(
        FindingKind.CONFIG, ".hoodie/hoodie.properties", "backup is intact", "backup", Remedy.RESTORE_CONFIG
    )


def half_a_config(path: Path) -> Expected:
    config = path / ".hoodie/hoodie.properties"
    shutil.copy(config, f"{config}.backup")
    config.write_bytes(b"#Updated\nhoodie.table.na")
    return Expected(
        FindingKind.CONFIG, ".hoodie/hoodie.properties", "backup is intact", "backup", Remedy.RESTORE_CONFIG
    )


def backup_left(path: Path) -> Expected:
    backup = shutil.copy(path / ".hoodie/hoodie.properties", path / ".hoodie/hoodie.properties.backup")
    os.utime(backup, (1, 1))
    return Expected(FindingKind.CONFIG, ".hoodie/hoodie.properties.backup", "left", "", Remedy.RESTORE_CONFIG)


def no_config(path: Path) -> Expected:
    (path / ".hoodie/hoodie.properties").unlink()
    return Expected(FindingKind.CONFIG, ".hoodie/hoodie.properties", "not there; it has no backup", "every read")


CURED = [
    dead_write,
    dead_write_with_entries,
    interrupted_rollback,
    dead_compaction,
    waiting_compaction,
    waiting_removable_clustering,
    dead_clean,
    interrupted_restore,
    unfinished_savepoint,
    unfinished_indexing,
    stopped_heartbeat,
    markers_of_nobody,
    ticket_of_nobody,
    cancellation_of_nobody,
    lease_of_a_dead_reader,
    lease_of_the_dead,
    hudi_lock_that_expires,
    file_of_a_zombie,
    file_of_a_task_that_ran_twice,
    file_of_the_metadata_table,
    hole_in_the_list,
    index_that_misses_keys,
    statistics_that_miss_files,
    index_without_a_shard,
    unfinished_reshard,
    half_an_index,
    config_in_the_backup,
    half_a_config,
    backup_left,
]
TOLD = [
    unreadable_plan,
    lease_that_cannot_be_read,
    commit_that_cannot_be_read,
    hudi_lock_that_never_expires,
    lost_file,
    torn_file,
    outgrown_shards,
    metadata_table_without_properties,
    no_config,
]


OF_FILES = (dead_clean, hole_in_the_list, lost_file, torn_file)
OF_INDEXES = (
    unfinished_indexing,
    index_that_misses_keys,
    statistics_that_miss_files,
    index_without_a_shard,
    unfinished_reshard,
    half_an_index,
    outgrown_shards,
)


def pending(path: Path, action: Action | None = None) -> InstantTime:
    found = lakebed.open_table(path).timeline.pending()
    return next(i.requested_at for i in found if action is None or i.action is action)


def newest(path: Path) -> InstantTime:
    return lakebed.open_table(path).timeline.commits()[-1].requested_at


def shifted(path: Path) -> InstantTime:
    """A time just after a write, at which there was none."""
    return InstantTime(f"{int(newest(path)) + 1}")


def named(illness: Callable[[Path], Expected]) -> str:
    return illness.__name__


@pytest.mark.parametrize("illness", CURED, ids=named)
def test_an_illness_is_named_looked_at_without_a_trace_and_cured(copied: Any, illness: Any) -> None:
    path, quick = copied(illness), is_quick(illness)
    before = contents(lakebed.open_table(path))
    expected = illness(path)
    check_named(path, expected, quick=quick)
    cured = open_doctor_at(path, expected.options).cure(quick=quick)
    assert [finding.outcome for finding in cured] == ["repaired"]
    assert examine(path, quick=quick, **expected.options) == ()
    if illness is not index_that_misses_keys and illness is not dead_clean:
        assert contents(lakebed.open_table(path)) == before, "what had completed is there, and nothing else"


@pytest.mark.parametrize("illness", TOLD, ids=named)
def test_what_cannot_be_repaired_safely_is_told_and_left_alone(copied: Any, illness: Any) -> None:
    path, quick = copied(illness), is_quick(illness)
    expected = illness(path)
    check_named(path, expected, quick=quick)
    before = bytes_of(path)
    (finding,) = open_doctor_at(path, expected.options).cure(quick=quick)
    assert finding.outcome is None
    assert bytes_of(path) == before


def is_quick(illness: Any) -> bool:
    """Whether indexes have nothing to do with it."""
    return illness not in (*OF_FILES, *OF_INDEXES)


def check_named(path: Path, expected: Expected, *, quick: bool) -> None:
    before = bytes_of(path)
    (finding,) = examine(path, quick=quick, **expected.options)
    assert bytes_of(path) == before, "a look writes nothing"
    assert (finding.kind, finding.remedy) == (expected.kind, expected.remedy)
    assert finding.place.startswith(expected.place)
    assert expected.says in finding.problem
    assert expected.blocks in finding.blocks
    assert bool(finding.blocks) == bool(expected.blocks)
    assert finding.repair
    assert finding.outcome is None


def test_a_healthy_table_has_no_findings(originals: dict[str, Path], tmp_path: Path) -> None:
    for table_type, path in originals.items():
        assert lakebed.open_table(path).doctor() == (), table_type
    table = lakebed.open_table(shutil.copytree(originals["mor"], tmp_path / "t"))
    table.services.compact()
    table.services.cluster("ts")
    table.savepoint()
    table.upsert(rows(0, 9, ts=5))
    assert table.doctor() == ()


def test_a_table_that_was_kept_for_long_has_no_findings(tmp_path: Path) -> None:
    """Cleaned, archived, compacted, with a write that was rolled back on the way; the same without a metadata table."""
    options = {
        "hoodie.clean.commits.retained": "2",
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
        "hoodie.compact.inline.max.delta.commits": "3",
    }
    table = made(tmp_path / "t", "mor")
    kept = lakebed.open_table(tmp_path / "t", options=options)
    for number in range(12):
        table.upsert(rows(number, 9, ts=number + 3))
        if number % 5 == 4:
            kept.services.run()
        if number == 6:
            table.rollback(newest(tmp_path / "t"))
    assert kept.timeline.commits()[0].requested_at > table._handle.state().archive.first_requested_at  # type: ignore[operator]
    age(tmp_path / "t")
    assert table.doctor() == ()


@pytest.fixture
def tables_with_honest_findings() -> dict[str, tuple[str, str]]:
    return {
        "hudi111_mor_part_crashed_commit": ("20261115235147398", "the process of this deltacommit is gone"),
        # What Hudi's rollback of that write left.
        "hudi111_mor_part_crashed_then_rolled_back": ("20261115235147398", "3 files of an instant that is neither"),
        **{
            f"hudi{each}_mor_part_compacted": ("2026111", "nobody executes this plan")
            for each in (111, 120, "015", 102)
        },
        # A log compaction of the metadata table by Hudi counts rows twice: see tests/metadata/test_compaction.py.
        "hudi111_mor_nonpart_mdt_logcompacted": ("column_stats", "24 different"),
        # Of a file that lacks a column Hudi stores nothing, and then leaves it out by `a = 1 and column is null`.
        **{f"hudi{each}_cow_nonpart_schema_evolution": ("column_stats", "1 missing") for each in (111, 102)},
    }


def test_tables_of_apache_hudi(
    real_table: RealTable, tables_with_honest_findings: dict[str, Any], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(real_table.path, tmp_path / "t"))
    age(path)
    found = examine(path)
    if real_table.name not in tables_with_honest_findings:
        assert found == ()
        return
    place, says = tables_with_honest_findings[real_table.name]
    (finding,) = found
    assert finding.place.startswith(place)
    assert says in finding.problem


def test_a_crashed_write_of_apache_hudi_is_rolled_back(unpack: Any, tmp_path: Path) -> None:
    table = unpack("hudi111_mor_part_crashed_commit")
    path = Path(shutil.copytree(table.path, tmp_path / "t"))
    (finding,) = lakebed.open_table(path).doctor(repair=True)
    assert finding.is_repaired
    assert lakebed.open_table(path).doctor() == ()
    assert lakebed.open_table(path).to_arrow().num_rows == len(table.rows)


def test_findings_of_other_versions_are_told_alone(unpack: Any, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpack("hudi102_mor_part_event_time").path, tmp_path / "t"))
    stopped = path / heartbeat_path(OVER)
    stopped.parent.mkdir(exist_ok=True)
    stopped.write_bytes(b"")
    os.utime(stopped, (1, 1))
    before = bytes_of(path)
    (finding,) = lakebed.open_table(path).doctor(repair=True)
    assert finding.place == heartbeat_path(OVER)
    assert "version 9" in finding.repair
    assert bytes_of(path) == before


@pytest.mark.parametrize("state", ["begun", "in flight with files", "about to complete"])
def test_a_write_under_way_is_left_alone(originals: dict[str, Path], tmp_path: Path, state: str) -> None:
    """Its heart beats. Everything else of it, its files too, may be as old as it likes."""
    table = lakebed.open_table(shutil.copytree(originals["cow"], tmp_path / "t"))
    verb, part = {
        "begun": ("create", ".inflight"),
        "in flight with files": ("create", ".parquet"),
        "about to complete": ("publish", ".hoodie/timeline/"),
    }[state]
    crash(tmp_path / "t", verb, part, write, Fault.CRASH_AFTER if verb == "create" else Fault.CRASH_BEFORE)
    age(tmp_path / "t")
    (beat,) = (tmp_path / "t/.hoodie/.heartbeat").iterdir()
    os.utime(beat)
    before = bytes_of(tmp_path / "t")
    assert table.doctor() == ()
    assert table.doctor(repair=True) == ()
    assert bytes_of(tmp_path / "t") == before
    age(beat)
    (finding,) = table.doctor()
    assert finding.place == beat.name


def test_repairs_of_something_else_leave_a_write_under_way_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(range(6), 0)
    context = context_of(table.table)
    attempt = context.transactions.begin(Action.COMMIT)
    mine = table.path / f"oslo/{'1' * 32}-0_0-1-1_{attempt.instant}.parquet"
    mine.write_bytes(b"being written")
    os.utime(mine, (1, 1))
    open_markers(table.storage, attempt.instant)
    dead = file_of_a_zombie(table.path)
    (finding,) = table.table.doctor(repair=True)
    assert (finding.place, finding.is_repaired) == (dead.place, True)
    assert mine.exists()
    assert attempt.heartbeat.is_certain()
    assert table.storage.find_tickets(attempt.instant)
    assert table.storage.list(marker_folder(attempt.instant))
    mine.unlink()
    context.transactions.abandon(attempt)
    assert table.table.doctor() == ()


def test_a_write_that_completes_between_two_looks_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that saw half of what others did is not believed."""
    table = new_table(tmp_path)
    table.upsert(range(6), 0)
    real, looks = doctor_module.list_files, []

    def late(state: Any) -> Any:
        looks.append(state)
        if len(looks) == 1:  # The state was taken before this write, the files are listed after it.
            table.upsert(range(6), 1)
            age(table.path)
        return real(state)

    monkeypatch.setattr(doctor_module, "list_files", late)
    assert table.table.doctor() == ()
    assert len(looks) == 2


def test_young_files_of_nobody_wait(mor: Path) -> None:
    stray = file_of_a_zombie(mor)
    (file,) = mor.glob(f"oslo/*{stray.place}*")
    os.utime(file)
    assert examine(mor) == ()


def test_files_that_readers_may_count_are_never_deleted(tmp_path: Path) -> None:
    """Without a metadata table, readers go by the folders."""
    table = without_metadata(new_table(tmp_path))
    table.upsert(range(6), 0)
    source = table.path / newest_file(table.path)
    copy = source.with_name(f"{'2' * 32}-0_0-1-1_{newest(table.path)}.parquet")
    shutil.copy(source, copy)
    os.utime(copy, (1, 1))
    (finding,) = table.table.doctor(repair=True)
    assert (finding.kind, finding.remedy, finding.outcome) == (FindingKind.STRAY_FILE, Remedy.BY_HAND, None)
    assert copy.exists()


def test_several_illnesses_are_cured_in_the_right_order(mor: Path) -> None:
    """With the configuration gone nothing else can be seen; a list is only made anew once strays are gone."""
    hole_in_the_list(mor)
    file_of_a_task_that_ran_twice(mor)
    markers_of_nobody(mor)
    config_in_the_backup(mor)
    cured = open_doctor_at(mor, {}).cure()
    kinds = sorted((finding.kind.value, finding.outcome or "") for finding in cured)
    assert kinds == [
        ("configuration", "repaired"),
        ("leftover", "repaired"),
        ("metadata table", "repaired"),
        ("stray file", "repaired"),
    ]
    assert examine(mor) == ()


def test_a_lost_file_keeps_the_list_from_being_made_anew(mor: Path) -> None:
    hole_in_the_list(mor)
    lost = lost_file(mor)
    cured = open_doctor_at(mor, {}).cure()
    assert all(finding.outcome is None for finding in cured)
    assert {finding.place for finding in cured} >= {lost.place, "files"}


def test_what_fails_is_told(indexed: Path) -> None:
    """A record key that is in two rows: the index cannot be built anew, and the doctor says why."""
    lakebed.open_table(indexed).insert(rows(0, 3, ts=50))
    found = {finding.problem: finding for finding in open_doctor_at(indexed, {}).cure()}
    assert all(finding.kind is FindingKind.INDEX and finding.place == "record_index" for finding in found.values())
    assert any("more than one row" in problem for problem in found)
    assert not any(finding.is_repaired for finding in found.values())


def test_the_write_that_blocks_compaction_of_the_metadata_table_is_named(
    originals: dict[str, Path], tmp_path: Path
) -> None:
    table = lakebed.open_table(shutil.copytree(originals["cow"], tmp_path / "t"))
    crash(tmp_path / "t", "publish", ".hoodie/timeline/", write)
    blocker = pending(tmp_path / "t")
    (beat,) = (tmp_path / "t/.hoodie/.heartbeat").iterdir()
    for number in range(2 * DELTA_COMMITS):
        table.bulk_insert(rows(number, 1, prefix="more"))
    (finding,) = table.doctor()
    assert (finding.kind, finding.place, finding.remedy) == (FindingKind.METADATA, blocker, Remedy.BY_HAND)
    assert "is in flight" in finding.problem
    age(beat)
    (finding,) = table.doctor()
    assert (finding.kind, finding.place, finding.remedy) == (FindingKind.PENDING, blocker, Remedy.ROLL_BACK)
    assert "compaction of the metadata table" in finding.blocks
    assert [each.is_repaired for each in table.doctor(repair=True)] == [True, True]
    assert table.doctor() == ()
    assert any(i.action is Action.COMMIT for i in table._handle.state().metadata._snapshot.timeline.commits())  # type: ignore[union-attr]


def test_there_must_be_a_table(tmp_path: Path) -> None:
    with pytest.raises(lakebed.InvalidInputError, match="not a Hudi table"):
        examine(tmp_path / "nothing")


def test_quick_leaves_out_the_rows(indexed: Path) -> None:
    index_that_misses_keys(indexed)
    table = lakebed.open_table(indexed)
    assert table.doctor(quick=True) == ()
    assert [finding.place for finding in table.doctor()] == ["record_index"]
