"""Writers go on while the record index gets other shards or is built anew: whatever they do meanwhile, it is right."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import Table, open_table
from lakebed.errors import CorruptTableError, SnapshotExpiredError
from lakebed.index.kinds import merge_shard
from lakebed.index.layout import ShardLayout
from lakebed.index.record.definition import are_current
from lakebed.index.stored import data_partition
from lakebed.metadata import MetadataTable
from lakebed.metadata.upkeep import maintenance as maintenance_module
from lakebed.model.index import IndexDefinition
from lakebed.model.words import Action
from lakebed.observe import SILENT, Observer
from lakebed.services.indexing import changes as changes_module
from lakebed.services.indexing import rebuild as rebuild_module
from lakebed.services.indexing import renew as renew_module
from lakebed.table import open_handle
from lakebed.write.columnar import ColumnarPlane
from observers import Recorded
from services.worlds import made, rows
from tables import copied

MDT = ".hoodie/metadata"
GLOBAL, PARTITIONED, WINDOWED = "record", "record_partitioned", "record_windowed"
LAYOUTS = [(kind, shards) for kind in (GLOBAL, PARTITIONED) for shards in (5, 1)]
RESHARD, REBUILD = "reshard", "rebuild"
BOTH = pytest.mark.parametrize("how", [RESHARD, REBUILD])
SECONDS = 60
"""After so long a test gives up waiting for a thread."""


ORIGINALS: dict[str, Path] = {}
"""Tables without a record index, by type."""


@pytest.fixture(scope="module", autouse=True)
def originals(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("originals")
    for table_type in ("cow", "mor"):
        made(root / table_type, table_type)
        ORIGINALS[table_type] = root / table_type


class World:
    """A table with a record index of two shards, and a model of its rows; keys move to another city if it is global."""

    def __init__(self, path: Path, kind: str, table_type: str = "mor", ordering: str = "off") -> None:
        self.path, self.is_global = copied(ORIGINALS, table_type, path), kind == GLOBAL
        self.asked: str | None = None
        indexes = open_table(path, options={"lakebed.record.index.ordering": ordering}).indexes
        indexes.create("record_index", kind=kind, shards=2, window=3 if kind == WINDOWED else None)
        found = self.table.to_arrow(columns=["id", "city", "ts"]).to_pylist()
        self.model = {self._place(row["id"], row["city"]): (row["city"], row["ts"]) for row in found}

    @property
    def table(self) -> Table:
        """The table as another process opens it."""
        return open_table(self.path)

    def upsert(self, changes: pa.Table, table: Table | None = None) -> None:
        (table or self.table).upsert(changes)
        for row in changes.to_pylist():
            self.model[self._place(row["id"], row["city"])] = (row["city"], row["ts"])

    def delete(self, *numbers: int) -> None:
        keys = {f"k{number:03d}" for number in numbers}
        self.table.delete(sorted(keys))
        self.model = {place: row for place, row in self.model.items() if place[0] not in keys}

    def renew(self, how: str, shards: int, observer: Observer = SILENT) -> None:
        """Gives the index so many shards."""
        indexes = self.table.indexes
        if how == RESHARD:
            indexes.reshard(shards=shards, observer=observer)
        else:
            indexes.create("record_index", kind=self.asked, shards=shards, rebuild=True, observer=observer)

    def check(self, shards: int) -> None:
        """The index has its shards and is right; so it is after all that a write can do."""
        self.check_now(shards)
        self.upsert(rows(700, 9, ts=8))
        self.upsert(rows(40, 9, ts=8))
        self.delete(41, 702)
        self.check_now(shards)

    def check_now(self, shards: int) -> None:
        table = self.table
        found = table.indexes.validate("record_index")
        assert found.is_sound, (found, found.examples)
        stored = table.to_arrow(columns=["id", "city", "ts"]).to_pylist()
        assert sorted((row["id"], row["city"], row["ts"]) for row in stored) == self.rows()
        keys = sorted({key for key, _ in self.model})
        looked_up = table.lookup([*keys, "absent"], columns=["id", "city", "ts"]).to_pylist()
        assert sorted((row["id"], row["city"], row["ts"]) for row in looked_up) == self.rows()
        assert len(self.file_ids()) == shards * (
            1 if self.is_global else len({city for city, _ in self.model.values()})
        )

    def rows(self) -> list[tuple[str, str, int]]:
        return sorted((key, city, ts) for (key, _), (city, ts) in self.model.items())

    def file_ids(self) -> set[str]:
        metadata = self.table._handle.state().metadata
        assert isinstance(metadata, MetadataTable)
        return {file_slice.group.file_id for file_slice in metadata.slices("record_index")}

    def metadata_actions(self) -> list[Action]:
        metadata = self.table._handle.state().metadata
        assert isinstance(metadata, MetadataTable)
        return [instant.action for instant in metadata.timeline.completed()]

    def _place(self, key: str, city: str) -> tuple[str, str]:
        return key, "" if self.is_global else city


class Between:
    """Runs something once, between the copy and the end of the next reshard; counts the copies that were made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copies = 0
        self.action: Callable[[], None] | None = None
        publish, copy = renew_module.publish_copy, renew_module.make_copy

        def counted(*arguments: object) -> object:
            self.copies += 1
            return copy(*arguments)  # type: ignore[arg-type]

        def after_action(*arguments: object) -> bool:
            action, self.action = self.action, None
            if action is not None:
                action()
            return publish(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(renew_module, "make_copy", counted)
        monkeypatch.setattr(renew_module, "publish_copy", after_action)


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    return Between(monkeypatch)


def moved(first: int, count: int, city: str, ts: int = 7) -> pa.Table:
    return rows(first, count, ts=ts).set_column(1, "city", pa.array([city] * count))


def write_all_sorts(world: World) -> None:
    """New keys, updates, deletes, keys that move, that come back, and that come and go."""
    world.upsert(rows(300, 30, ts=3))
    world.upsert(rows(10, 9, ts=4))
    world.delete(1, 2, 3, 301, 302)
    world.upsert(moved(30, 6, "rome"))
    world.upsert(rows(2, 1, ts=9))


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_what_is_written_meanwhile_is_in_the_new_shards(
    tmp_path: Path, between: Between, kind: str, shards: int, table_type: str, how: str
) -> None:
    world = World(tmp_path / "t", kind, table_type)
    between.action = lambda: write_all_sorts(world)
    world.renew(how, shards)
    assert between.copies == 1
    world.check(shards)


@BOTH
@pytest.mark.parametrize("is_folded", [False, True])
@pytest.mark.parametrize("kind", [GLOBAL, PARTITIONED, WINDOWED])
def test_entries_keep_their_ordering_values_and_stay_current(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch, kind: str, is_folded: bool, how: str
) -> None:
    monkeypatch.setattr(renew_module, "is_contested", lambda *_: is_folded)
    monkeypatch.setattr(renew_module, "_SECONDS_BETWEEN_LOOKS", 0)
    world = World(tmp_path / "t", kind, ordering="current")
    between.action = lambda: write_all_sorts(world)
    world.renew(how, 5)
    metadata = world.table._handle.state().metadata
    assert isinstance(metadata, MetadataTable)
    ordering = metadata.definitions["record_index"].ordering
    assert ordering is not None
    assert are_current(metadata, ordering)
    world.check_now(5)
    late = world.table.upsert(rows(10, 9, ts=2))
    assert (late.metrics["rows_late"], late.metrics["records_read"]) == (9, 0)
    world.check(5)


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
@pytest.mark.parametrize("merge_logs", [False, True])
def test_the_metadata_table_may_be_compacted_meanwhile(
    tmp_path: Path, between: Between, kind: str, shards: int, merge_logs: bool, how: str
) -> None:
    world = World(tmp_path / "t", kind)

    def compact() -> None:
        options = {
            "hoodie.metadata.log.compaction.enable": "true",
            "hoodie.metadata.log.compaction.blocks.threshold": "2",
        }
        table = open_table(world.path, options=options if merge_logs else {})
        write_all_sorts(world)
        before = world.metadata_actions()
        for number in range(4 if merge_logs else 10):
            world.upsert(rows(500 + number, 1), table)
        after = world.metadata_actions()
        if not merge_logs:
            assert after.count(Action.COMMIT) > before.count(Action.COMMIT)
        else:
            metadata = world.table._handle.state().metadata
            assert isinstance(metadata, MetadataTable)
            assert metadata.timeline.log_compactions

    between.action = compact
    world.renew(how, shards)
    assert between.copies == 1
    world.check(shards)


def test_log_files_that_are_gone_make_it_begin_anew(tmp_path: Path, between: Between) -> None:
    world = World(tmp_path / "t", GLOBAL)
    folder = world.path / MDT / "record_index"

    def compact_and_clean() -> None:
        before = set(folder.iterdir())
        write_all_sorts(world)
        logs = {path for path in set(folder.iterdir()) - before if ".log." in path.name}
        for number in range(10):
            world.upsert(rows(500 + number, 1))
        assert Action.COMMIT in world.metadata_actions()
        for path in logs:
            path.unlink()

    between.action = compact_and_clean
    world.table.indexes.reshard(shards=5)
    assert between.copies == 2
    world.check(5)


def test_instants_that_are_archived_make_it_begin_anew(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "t", GLOBAL)

    def archive() -> None:
        monkeypatch.setattr(maintenance_module, "_KEPT_INSTANTS", 2)
        write_all_sorts(world)
        for number in range(20):
            world.upsert(rows(500 + number, 1))
        assert (world.path / MDT / ".hoodie/timeline/history/_version_").exists()

    between.action = archive
    world.table.indexes.reshard(shards=5)
    assert between.copies == 2
    world.check(5)


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
def test_a_write_that_was_copied_may_be_rolled_back(
    tmp_path: Path, between: Between, kind: str, shards: int, how: str
) -> None:
    world = World(tmp_path / "t", kind)
    before = dict(world.model)
    world.upsert(rows(300, 30))
    world.model = before
    between.action = lambda: world.table.rollback(world.table.timeline.commits()[-1].requested_at)
    world.renew(how, shards)
    assert between.copies == 2
    world.check(shards)


@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
@pytest.mark.parametrize("work", ["drop", "empty", "rebuild", "reshard", "same"])
def test_the_index_may_become_another_one_meanwhile(
    tmp_path: Path, between: Between, kind: str, shards: int, work: str
) -> None:
    world = World(tmp_path / "t", kind)

    def change() -> None:
        if work in ("drop", "empty", "rebuild"):
            if work != "rebuild":
                world.table.indexes.drop("record_index")
            if work == "empty":  # The new index has no base file.
                world.delete(*range(60))
            world.table.indexes.create("record_index", kind=kind, shards=2, rebuild=work == "rebuild")
        else:
            world.table.indexes.reshard(shards=shards if work == "same" else 3)
        write_all_sorts(world)

    between.action = change
    world.table.indexes.reshard(shards=shards)
    # The work has a copy of its own if it leaves the index in place. A reshard to the same leaves nothing to do.
    assert between.copies == {"drop": 2, "empty": 2, "rebuild": 3, "reshard": 3, "same": 2}[work]
    world.check(shards)


@pytest.mark.parametrize("shards", [5, 1])
def test_data_partitions_that_appear_meanwhile_get_as_many_shards(
    tmp_path: Path, between: Between, shards: int
) -> None:
    world = World(tmp_path / "t", PARTITIONED)

    def write() -> None:
        world.upsert(moved(300, 20, "bonn"))
        world.upsert(moved(310, 20, "kyiv"))
        world.delete(301, 315)

    between.action = write
    world.table.indexes.reshard(shards=shards)
    assert between.copies == 1
    world.check(shards)


def test_data_partitions_that_appear_while_it_is_built_anew_keep_their_shards(tmp_path: Path, between: Between) -> None:
    world = World(tmp_path / "t", PARTITIONED)
    old = world.file_ids()
    between.action = lambda: world.upsert(moved(300, 20, "bonn"))
    world.renew(REBUILD, 3)
    assert between.copies == 1
    cities = {data_partition(file_id) for file_id in old}
    shards = Counter(map(data_partition, world.file_ids()))
    assert shards == Counter({**dict.fromkeys(cities, 3), "bonn": shards["bonn"]})
    assert world.table.indexes.validate("record_index").is_sound


@pytest.mark.parametrize("writes", [False, True])
def test_entries_that_are_made_anew_are_current_again(tmp_path: Path, between: Between, writes: bool) -> None:
    """Of what was written meanwhile nobody can tell, if they were not current before: then all begins anew."""
    world = World(tmp_path / "t", GLOBAL, ordering="current")
    world.upsert(rows(10, 9, ts=3), open_table(world.path, options={"hoodie.index.type": "SIMPLE"}))

    def is_current() -> bool:
        metadata = world.table._handle.state().metadata
        assert isinstance(metadata, MetadataTable)
        ordering = metadata.definitions["record_index"].ordering
        return ordering is not None and are_current(metadata, ordering)

    assert not is_current()
    if writes:
        between.action = lambda: write_all_sorts(world)
    world.renew(RESHARD, 3)
    assert not is_current()
    if writes:
        between.action = lambda: world.upsert(rows(20, 3, ts=5))
    between.copies = 0
    world.renew(REBUILD, 5)
    assert between.copies == (2 if writes else 1)
    assert is_current()
    world.check(5)


@pytest.mark.parametrize("kind", [GLOBAL, PARTITIONED])
def test_a_broken_index_is_built_anew_while_writers_go_on(tmp_path: Path, between: Between, kind: str) -> None:
    """No file of it is read that was there before."""
    world = World(tmp_path / "t", kind)
    world.upsert(rows(300, 30, ts=3))
    folder = world.path / MDT / "record_index"
    for path in folder.iterdir():
        if path.suffix == ".hfile" or (".log." in path.name and "_0-0-0" not in path.name):
            path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(CorruptTableError):
        world.table.indexes.validate("record_index")

    def write() -> None:
        world.table.insert(rows(600, 5, ts=3))  # Which looks for no key.
        for row in rows(600, 5, ts=3).to_pylist():
            world.model[world._place(row["id"], row["city"])] = (row["city"], row["ts"])

    between.action = write
    world.renew(REBUILD, 2)
    assert between.copies == 1
    world.check(2)


@pytest.mark.parametrize("broken", ["its log files", "its snapshot", "its kind"])
def test_what_cannot_be_built_online_is_built_under_the_lock(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    world = World(tmp_path / "t", GLOBAL)
    if broken == "its log files":  # Those that are added meanwhile.
        monkeypatch.setattr(renew_module.ChangeReader, "load", raising(CorruptTableError("torn", path="x")))
    elif broken == "its snapshot":
        monkeypatch.setattr(rebuild_module, "Build", raising(SnapshotExpiredError("gone", hint="again")))
    else:
        world.asked, world.is_global = PARTITIONED, False
    between.action = lambda: world.upsert(moved(300, 30, "oslo"))
    world.renew(REBUILD, 5)
    assert between.copies == (rebuild_module._COPIES_MAX if broken == "its log files" else 0)
    assert world.table.indexes.validate("record_index").is_sound
    assert between.action is None or broken != "its log files"


@pytest.mark.parametrize("ordering", ["off", "current"])
@pytest.mark.parametrize("kind", [GLOBAL, PARTITIONED, WINDOWED])
def test_an_index_that_is_built_anew_stays_what_it_is(
    tmp_path: Path, between: Between, kind: str, ordering: str
) -> None:
    """Also by a process whose options say nothing of it."""
    world = World(tmp_path / "t", kind, ordering=ordering)

    def definition() -> IndexDefinition:
        return world.table._handle.state().definitions["record_index"]

    before = definition()
    between.action = lambda: write_all_sorts(world)
    world.table.indexes.create("record_index", shards=2, rebuild=True)
    assert between.copies == 1
    assert definition() == before
    world.check(2)


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise error

    return fail


class Held:
    """A write on a thread that has done its work and waits until it may commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, write: Callable[[], object]) -> None:
        self._is_there, self._may_go = threading.Event(), threading.Event()
        self._errors: list[BaseException] = []
        commit = ColumnarPlane.prepare

        def late(plane: ColumnarPlane, *arguments: object) -> object:
            if threading.current_thread() is self._thread:
                self._is_there.set()
                assert self._may_go.wait(SECONDS)
            return commit(plane, *arguments)  # type: ignore[arg-type]

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._errors.append(error)
                self._is_there.set()

        monkeypatch.setattr(ColumnarPlane, "prepare", late)
        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self._is_there.wait(SECONDS)

    def go(self) -> None:
        self._may_go.set()
        self._thread.join(SECONDS)
        assert not self._errors, self._errors


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
def test_a_write_that_saw_one_of_these_commits_after_the_index_changed(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch, kind: str, shards: int, how: str
) -> None:
    """Its instant is before that of the new shards: what it says must count all the same."""
    world, held = World(tmp_path / "t", kind), []

    def write() -> None:
        write_all_sorts(world)
        held.append(Held(monkeypatch, lambda: world.table.delete(["k303", "k011"])))

    between.action = write
    world.renew(how, shards)
    assert between.copies == 1
    world.check_now(shards)
    held[0].go()
    world.model = {place: row for place, row in world.model.items() if place[0] not in ("k303", "k011")}
    world.check(shards)


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
def test_a_write_that_began_before_commits_after_the_index_changed(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch, kind: str, shards: int, how: str
) -> None:
    world = World(tmp_path / "t", kind)
    late = moved(800, 12, "oslo")
    held = Held(monkeypatch, lambda: world.table.upsert(late))
    between.action = lambda: world.delete(1, 2)  # Not in oslo.
    world.renew(how, shards)
    assert any(".log." in path.name for path in newest_files(world)), "what was added is in log files"
    held.go()
    for row in late.to_pylist():
        world.model[world._place(row["id"], row["city"])] = (row["city"], row["ts"])
    world.check(shards)


def newest_files(world: World) -> list[Path]:
    """The files of the last delta commit of the metadata table, but for placeholders."""
    metadata = world.table._handle.state().metadata
    assert isinstance(metadata, MetadataTable)
    newest = metadata.timeline.commits()[-1].requested_at
    names = (path for path in (world.path / MDT / "record_index").iterdir() if newest in path.name)
    return [path for path in names if "_0-0-0" not in path.name]


def test_both_ways_of_catching_up_come_to_the_same(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    for is_folded in (False, True):
        monkeypatch.setattr(renew_module, "is_contested", lambda *_, now=is_folded: now)
        monkeypatch.setattr(renew_module, "_SECONDS_BETWEEN_LOOKS", 0)
        world = World(tmp_path / f"{is_folded}", GLOBAL)
        between.action = lambda of=world: write_all_sorts(of)
        world.table.indexes.reshard(shards=5)
        assert is_folded != any(".log." in path.name for path in newest_files(world))
        world.check(5)


def test_the_last_copy_is_made_under_the_lock(
    tmp_path: Path, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "t", GLOBAL)
    monkeypatch.setattr(renew_module, "find_changes", lambda *_: None)
    seen = Recorded()
    world.table.indexes.reshard(shards=5, observer=seen)
    assert between.copies == rebuild_module._COPIES_MAX + 1
    assert seen.steps[-1][0] == seen.steps[-1][1]
    world.check(5)


@BOTH
def test_progress_goes_on_to_the_end(tmp_path: Path, between: Between, how: str) -> None:
    world = World(tmp_path / "t", GLOBAL)
    seen = Recorded()
    between.action = lambda: write_all_sorts(world)
    world.renew(how, 5, seen)
    assert seen.progressed == [("record_index", step, len(seen.steps)) for step in range(1, len(seen.steps) + 1)]
    assert seen.phases == [f"{'resharding' if how == RESHARD else 'building'} record_index"]


@BOTH
def test_a_crash_while_it_is_copied_leaves_nothing(tmp_path: Path, between: Between, how: str) -> None:
    world = World(tmp_path / "t", GLOBAL)
    before = sorted(path.name for path in world.path.rglob("*") if ".locks" not in path.parts)

    def die() -> None:
        raise KeyboardInterrupt

    between.action = die
    with pytest.raises(KeyboardInterrupt):
        world.renew(how, 5)
    assert sorted(path.name for path in world.path.rglob("*") if ".locks" not in path.parts) == before


@BOTH
@pytest.mark.parametrize(("kind", "shards"), LAYOUTS)
def test_writers_commit_while_the_copy_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shards: int, how: str
) -> None:
    world = World(tmp_path / "t", kind)
    copying, committed, done = threading.Event(), threading.Event(), threading.Event()
    events: list[str] = []
    errors: list[BaseException] = []
    copy = renew_module.make_copy

    def slow(*arguments: object) -> object:
        found = copy(*arguments)  # type: ignore[arg-type]
        events.append("copied")
        copying.set()
        assert committed.wait(SECONDS)
        events.append("copy given back")
        return found

    def write() -> None:
        try:
            for number in range(30):
                world.upsert(rows(400 + 3 * number, 6, ts=number))
                world.delete(400 + 3 * number)
                events.append("committed")
                if copying.is_set():
                    committed.set()
                if done.is_set():
                    break
        except BaseException as error:
            errors.append(error)
            committed.set()

    monkeypatch.setattr(renew_module, "make_copy", slow)
    thread = threading.Thread(target=write)
    thread.start()
    world.renew(how, shards)
    done.set()
    thread.join(SECONDS)
    assert not errors, errors
    during = events[events.index("copied") : events.index("copy given back")]
    assert "committed" in during
    world.check(shards)


def test_a_look_does_not_take_for_added_what_was_there(tmp_path: Path) -> None:
    world = World(tmp_path / "t", GLOBAL)

    def look() -> renew_module.StoredIndex:
        return renew_module.StoredIndex.of(world.table._handle.state(), "record_index")

    seen = changes_module.Seen.of(look())
    nothing = changes_module.find_changes(seen, look(), world.table.timeline)
    assert nothing == changes_module.Changes({}, ())
    world.upsert(rows(300, 30))
    some = changes_module.find_changes(seen, look(), world.table.timeline)
    assert some is not None
    assert set(some.logs) == world.file_ids()
    assert len(some.completed) == 1


@pytest.mark.parametrize(
    "name", ["hudi120_cow_part_upsert", "hudi120_cow_part_partitioned_rli", "hudi120_cow_part_rli_fg4"]
)
def test_what_apache_hudi_has_added_is_found(unpack, name: str) -> None:
    """Its delta commits name log files of others, too, and merged ones may be gone."""
    state = open_handle(unpack(name).path).state()
    index = renew_module.StoredIndex.of(state, "record_index")
    seen = changes_module.Seen.of(index)
    built = {time: done for time, done in seen.counted.items() if time.startswith("0000")}
    found = changes_module.find_changes(replace(seen, counted=built), index, state.timeline)
    assert found is not None
    shards = shard_sets_of(index)
    layout = ShardLayout(shards, tuple(file_id for file_ids in shards.values() for file_id in file_ids))
    added = changes_module.ChangeReader(state.storage, "record_index").entries(found, layout, has_ordering=False)
    assert added
    for file_id, entries in added.items():
        merged = merge_shard(index.metadata.shard("record_index", file_id), "record_index", has_base=False)
        assert set(entries.keys.to_pylist()) <= set(merged.keys.to_pylist())
        assert set(entries.deletes.to_pylist()).isdisjoint(merged.keys.to_pylist())


def shard_sets_of(index: renew_module.StoredIndex) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for file_slice in index.slices:
        of = data_partition(file_slice.group.file_id)
        found[of] = (*found.get(of, ()), file_slice.group.file_id)
    return found
