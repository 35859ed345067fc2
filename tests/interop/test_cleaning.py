"""Cleaning, archiving, savepoints and restores by lakebed, on tables that Apache Hudi works on too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interop.write_peer import WITH_METADATA, WITHOUT_METADATA, HudiPeer, index_differences, running_peer
from lakebed import Table, create_table, open_table
from lakebed.engine.engines import InProcess
from lakebed.format.timeline.archive import encode_history_name
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.options import parse_write_options
from lakebed.services.archive import ArchiveLimits, archive_timeline
from lakebed.services.clean.plan import Retention
from lakebed.services.clean.run import execute_clean, schedule_clean
from lakebed.services.restore import restore
from lakebed.services.savepoint import delete_savepoint, savepoint
from lakebed.services.values import ServiceContext
from lakebed.timeline import Archive
from lakebed.transaction import archive as archiving
from tables import TRIPS as SCHEMA

pytestmark = pytest.mark.interop

CITIES = ("oslo", "lima", "rome")
FRUGAL = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.commits.archival.batch": "1",
}
LASTING = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
Row = dict[str, Any]


class Shared:
    """A table of both engines, and what each commit left in it."""

    def __init__(self, path: Path, table_type: str, indexes: tuple[str, ...]) -> None:
        self.peer: HudiPeer = running_peer()
        self.path, self.table_type = path, table_type
        self.rows: dict[str, Row] = {}
        self.past: dict[InstantTime, list[Row]] = {}
        self.options = {
            "hoodie.table.name": path.name,
            "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[table_type],
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.compact.inline": "false",
            "hoodie.metadata.index.column.stats.enable": "true",
        }
        if "record" in indexes:
            self.options["hoodie.metadata.global.record.level.index.enable"] = "true"
            self.options["hoodie.index.type"] = "GLOBAL_RECORD_LEVEL_INDEX"
        asked: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "indexes": indexes}
        create_table(path, schema=SCHEMA, table_type=table_type, **asked)

    @property
    def table(self) -> Table:
        return open_table(self.path)

    @property
    def context(self) -> ServiceContext:
        table = self.table
        return ServiceContext(table._handle, table._transactions, InProcess(), parse_write_options({}))

    def upsert(self, numbers: Iterable[int], ts: int) -> InstantTime:
        self.table.upsert(self._take(numbers, ts))
        return self._noted()

    def hudi_upsert(self, numbers: Iterable[int], ts: int, options: dict[str, str] = LASTING) -> InstantTime:
        self.peer.write(self.path, self._take(numbers, ts), "upsert", {**self.options, **options})
        return self._noted()

    def overwrite(self, number: int, ts: int) -> InstantTime:
        city = CITIES[number % 3]
        self.rows = {key: row for key, row in self.rows.items() if row["city"] != city}
        self.table.overwrite(self._take([number], ts))
        return self._noted()

    def call(self, procedure: str) -> list[list[str]]:
        name = f"t_{self.path.name}"
        known = f"create table if not exists {name} using hudi location '{self.path}'"
        return self.peer.sql(known, f"refresh table {name}", f"call {procedure.replace('TABLE', name)}")

    def clean(self, commits: int) -> None:
        instant = schedule_clean(self.context, Retention(commits=commits))
        assert instant is not None
        assert execute_clean(self.context, instant).counts["files"] > 0

    def set_back(self, instant: InstantTime) -> None:
        self.rows = {row["id"]: row for row in self.past[instant]}

    def check(self) -> None:
        for options in (WITH_METADATA, WITHOUT_METADATA):
            assert in_order(self.peer.read(self.path, options)) == self.expected(), options
            assert in_order(open_table(self.path, options=options).to_arrow()) == self.expected(), options
        assert in_order(self.peer.read_rs(self.path)) == self.expected()
        if self.table.config.metadata_partitions:
            assert index_differences(self.path) == []

    def check_past(self, instants: Iterable[InstantTime]) -> None:
        for instant in instants:
            assert in_order(self.table.to_arrow(as_of=instant)) == self.past[instant], instant
            asked = {**WITH_METADATA, "as.of.instant": instant}
            assert in_order(self.peer.read(self.path, asked)) == self.past[instant], instant

    def check_changes(self, since: InstantTime) -> None:
        """Incremental reads of both engines: rows of writes that completed after a time."""
        ours = in_order(self.table.changes(since))
        asked = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": since}
        assert in_order(self.peer.read(self.path, asked)) == ours
        assert ours

    def expected(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: row["id"])

    def _take(self, numbers: Iterable[int], ts: int) -> pa.Table:
        rows = [{"id": f"k{n}", "city": CITIES[n % 3], "ts": ts, "fare": float(ts)} for n in numbers]
        self.rows |= {row["id"]: row for row in rows}
        return pa.Table.from_pylist(rows, SCHEMA)

    def _noted(self) -> InstantTime:
        instant = self.table.timeline.commits()[-1].requested_at
        self.past[instant] = self.expected()
        return instant


def in_order(rows: pa.Table) -> list[Row]:
    return sorted(rows.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"]) if rows.num_rows else []


def names_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of the history finds its name taken by what another process left, and gets one of a wider range."""
    real = archiving._create_file

    def create(section: Any, folder: str, file: Any, data: bytes) -> str:
        wanted = encode_history_name(file)
        section.ports.storage.create(f"{folder}/{wanted}", b"what another process left")
        name = real(section, folder, file, data)
        assert name > wanted
        return name

    monkeypatch.setattr(archiving, "_create_file", create)


@pytest.mark.parametrize(("table_type", "are_taken"), [("cow", False), ("mor", False), ("mor", True)])
def test_both_clean_and_archive_one_table(
    tmp_path: Path, table_type: str, are_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if are_taken:
        names_are_taken(monkeypatch)
    shared = Shared(tmp_path / f"both_{table_type}_{int(are_taken)}", table_type, ("record",))
    shared.upsert(range(6), 0)
    shared.overwrite(3, 1)
    for ts in range(2, 9):
        shared.upsert([0, 3, 4 + ts], ts)
    if table_type == "mor":
        shared.call(
            "run_compaction(op => 'schedule', table => 'TABLE', options => 'hoodie.compact.inline.max.delta.commits=1')"
        )
        shared.call("run_compaction(op => 'execute', table => 'TABLE')")
    instants = [shared.upsert([0, 1, 2], ts) for ts in range(9, 13)]
    shared.clean(3)
    limits = ArchiveLimits(min_commits=4, max_commits=5)
    assert archive_timeline(shared.context, limits, Retention(commits=3)) > 0
    shared.check()
    shared.check_past(instants[1:])
    shared.check_changes(instants[1])
    instants = [shared.hudi_upsert([0, 1, 30 + ts], ts, FRUGAL) for ts in range(13, 19)]
    shared.check()
    shared.check_past(instants[-2:])
    instants += [shared.upsert([0, 1, 2], ts) for ts in range(19, 24)]
    shared.clean(2)
    archive_timeline(shared.context, limits, Retention(commits=2))
    instants.append(shared.hudi_upsert([5, 50], 30))
    shared.check()
    shared.check_past(instants[-2:])
    history = Archive(shared.table._handle.storage, shared.table.config).instants()
    times = [archived.instant.requested_at for archived in history]
    assert len(times) == len({*times})


def test_apache_hudi_archives_on_behind_a_manifest_that_was_renewed(tmp_path: Path) -> None:
    """As a restore or a rollback leaves it under a lock that can be lost; the first ones name no file."""
    shared = Shared(tmp_path / "renewed", "cow", ("record",))
    shared.upsert(range(6), 0)

    def renew() -> None:
        with shared.context.transactions.section() as section:
            archiving._renew_manifest(section)

    def archived() -> list[InstantTime]:
        history = Archive(shared.table._handle.storage, shared.table.config).instants()
        return [each.instant.requested_at for each in history]

    renew()
    renew()
    shared.check()
    assert not archived()
    for ts in range(1, 8):
        shared.hudi_upsert([0, 1, 30 + ts], ts, FRUGAL)
    first = archived()
    assert first
    renew()
    assert archived() == first
    for ts in range(8, 12):
        shared.hudi_upsert([0, 1, 30 + ts], ts, FRUGAL)
    shared.upsert([0, 1, 2], 13)
    shared.check()
    times = archived()
    assert len(first) < len(times) == len({*times})


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_savepoints_of_both_and_a_restore(tmp_path: Path, table_type: str) -> None:
    shared = Shared(tmp_path / f"saved_{table_type}", table_type, ())
    shared.upsert(range(6), 0)
    ours = shared.upsert([0, 1], 1)
    savepoint(shared.context, ours)
    theirs = shared.hudi_upsert([0, 2], 2)
    shared.call(f"create_savepoint(table => 'TABLE', commit_time => '{theirs}')")
    assert sorted(row[0] for row in shared.call("show_savepoints(table => 'TABLE')")) == [ours, theirs]
    shared.overwrite(0, 3)
    shared.hudi_upsert([1, 4], 4)
    shared.upsert([0, 1, 2], 5)
    instant = schedule_clean(shared.context, Retention(commits=1))
    if instant is not None:
        execute_clean(shared.context, instant)
    shared.call("run_clean(table => 'TABLE', clean_policy => 'KEEP_LATEST_COMMITS', retain_commits => 1)")
    shared.check()
    restore(shared.context, theirs)
    shared.set_back(theirs)
    shared.check()
    for instant in (ours, theirs):  # Apache Hudi reads nothing from before its last clean, savepoint or not.
        assert in_order(shared.table.to_arrow(as_of=instant)) == shared.past[instant]
    shared.hudi_upsert([0, 7], 6)
    shared.upsert([0, 8], 7)
    shared.check()
    shared.call(f"delete_savepoint(table => 'TABLE', instant_time => '{theirs}')")
    shared.call(f"rollback_to_savepoint(table => 'TABLE', instant_time => '{ours}')")
    shared.set_back(ours)
    shared.check()
    delete_savepoint(shared.context, ours)
    shared.upsert([0], 9)
    shared.check()


def test_apache_hudi_builds_a_metadata_table_that_a_restore_gave_up(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "given_up", "cow", ("record",))
    shared.upsert(range(6), 0)
    target = shared.upsert([0, 1], 1)
    savepoint(shared.context, target)
    for ts in range(2, 12):
        shared.upsert([0, 6 + ts], ts)
    restore(shared.context, target)
    shared.set_back(target)
    assert not shared.table.config.metadata_partitions
    shared.check()
    shared.hudi_upsert([0, 7], 20)
    assert "record_index" in shared.table.config.metadata_partitions
    shared.check()
    shared.upsert([1, 8], 21)
    shared.check()
    assert not [i for i in shared.table.timeline if i.action is Action.RESTORE and not i.is_completed]
