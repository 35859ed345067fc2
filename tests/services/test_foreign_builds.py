"""An index that another engine is to build, or is building: writers go on, and leave its work alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.api import Table, open_table
from lakebed.errors import CorruptTableError, InvalidInputError
from lakebed.format.timeline.metadata import encode_index_plan
from lakebed.index.column_stats.ranges import find_column_ranges
from lakebed.index.obliged import COVERS
from lakebed.index.record.probe import find_locations, read_record_index
from lakebed.metadata import MetadataTable
from lakebed.metadata.bootstrap import create_shards, group_ids, reserved_instant
from lakebed.metadata.table import find_metadata_table
from lakebed.model.commit import CommitMetadata, IndexedPartition, IndexPlan
from lakebed.model.instant import InstantTime
from lakebed.model.words import Action
from lakebed.storage import Storage
from lakebed.table import open_handle
from lakebed.timeline import Documents, load_timeline
from lakebed.timeline.config import load_config
from lakebed.transaction.config import change_config
from lakebed.transaction.index_plans import BUILD, SHARDS
from services.worlds import contents, made, rows

MDT = ".hoodie/metadata/"
X = InstantTime("20200101000000000")
K = reserved_instant(7)
READY, INFLIGHT = "hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight"


class Build:
    """What Apache Hudi leaves of an index build, step by step."""

    def __init__(self, table: Table, partition: str, instant: InstantTime = K) -> None:
        self.table, self.partition, self.instant = table, partition, instant
        self.storage: Storage = table._handle.storage

    def plan(self, **extra: str) -> Build:
        planned = IndexPlan((IndexedPartition(self.partition, "", extra),))
        self.storage.create(f".hoodie/timeline/{X}.indexing.requested", encode_index_plan(planned))
        return self

    def begin(self) -> Build:
        self.storage.create(f".hoodie/timeline/{X}.indexing.inflight", b"")
        return self

    def name(self) -> Build:
        with self.table._transactions.section() as section:
            ready = [p for p in section.config.metadata_partitions if p != self.partition]
            change_config(section, {READY: ",".join(ready), INFLIGHT: self.partition})
        return self

    def shards(self, count: int, of: int | None = None, missing: Sequence[int] = ()) -> Build:
        ids = [id_ for n, id_ in enumerate(group_ids(self.partition, of or count)) if n not in missing][:count]
        create_shards(self.storage, self.partition, ids, instant=self.instant, date="20200101000000000")
        return self

    def fill(self) -> Build:
        for state in ("requested", "inflight"):
            self.storage.create(f"{MDT}.hoodie/timeline/{self.instant}.deltacommit.{state}", b"")
        return self

    def publish(self) -> Build:
        """Names the index as ready: Apache Hudi does so before it catches up with writers and completes its plan."""
        self.storage.create(f"{MDT}.hoodie/timeline/{self.instant}_20200101000001000.deltacommit", b"")
        with self.table._transactions.section() as section:
            change_config(section, {READY: f"{section.config.properties[READY]},{self.partition}", INFLIGHT: ""})
        return self

    def complete(self) -> None:
        """Has the index be there, as far as configuration and timeline say."""
        self.storage.create(f"{MDT}.hoodie/timeline/{self.instant}_20990101000000000.deltacommit", b"")
        self.end()

    def end(self) -> None:
        """The plan is over."""
        for state in ("inflight", "requested"):
            self.storage.delete(f".hoodie/timeline/{X}.indexing.{state}")

    def files(self) -> list[str]:
        return [listed.path for listed in self.storage.list(f"{MDT}{self.partition}")]

    def logs_of_writes(self) -> list[str]:
        return [path for path in self.files() if self.instant not in path and ".log." in path]

    def covered(self) -> str | None:
        """What the newest delta commit says that it covers."""
        return self.newest().extra_metadata.get(COVERS)

    def newest(self) -> CommitMetadata:
        """The newest delta commit of the metadata table."""
        config = load_config(self.storage)
        timeline = load_timeline(self.storage, config, MDT)
        deltas = [i for i in timeline.commits() if i.action is Action.DELTA_COMMIT]
        return Documents(self.storage, config, MDT).commit(deltas[-1])


def use(table: Table) -> None:
    """Every kind of write, and a service."""
    table.upsert(rows(50, 20, ts=5))
    table.delete(["k001"])
    table.overwrite(rows(100, 3))
    table.delete_partitions(["lima"])
    table.services.clean()


@pytest.mark.parametrize("partition", ["record_index", "column_stats", "partition_stats", "bloom_filters", "x"])
@pytest.mark.parametrize("is_begun", [False, True])
def test_a_pending_plan_refuses_no_writer(tmp_path: Path, partition: str, is_begun: bool) -> None:
    table = made(tmp_path / "t", "mor")
    for name in ("partition_stats", "column_stats"):
        table.indexes.drop(name)
    build = Build(table, partition).plan()
    if is_begun:
        build.begin()
    use(open_table(tmp_path / "t"))
    assert build.files() == []


def test_a_plan_that_cannot_be_read_refuses_no_writer(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table._handle.storage.create(f".hoodie/timeline/{X}.indexing.requested", b"nonsense")
    table.upsert(rows(0, 3, ts=9))


@pytest.mark.parametrize("instant", [K, X])
def test_a_live_build_is_left_alone(tmp_path: Path, instant: InstantTime) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index", instant).plan().begin().name().shards(4).fill()
    before = build.files()
    other = open_table(tmp_path / "t")
    use(other)
    other.services.rollback_failed_writes()
    assert set(before) <= set(build.files())
    timeline = load_timeline(build.storage, load_config(build.storage), MDT)
    assert instant in {i.requested_at for i in timeline.pending()}


def test_a_build_that_our_plan_names_is_left_alone_also_before_it_is_in_flight(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index").plan(**{SHARDS: "4", BUILD: K}).fill().shards(4)
    open_table(tmp_path / "t").upsert(rows(0, 3, ts=9))
    assert len({path.partition("_")[0] for path in build.files()}) >= 1
    assert len([path for path in build.files() if K in path]) == 4


def test_a_build_without_a_plan_is_cleared(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index").shards(4).fill()
    open_table(tmp_path / "t").upsert(rows(0, 3, ts=9))
    assert [path for path in build.files() if K in path and ".log." in path] == []


@pytest.mark.parametrize(
    ("count", "of", "missing", "extra"),
    [(3, 4, (), {}), (3, 4, (2,), {}), (3, 4, (0,), {}), (3, 4, (), {SHARDS: "4"}), (0, 4, (), {})],
)
def test_entries_are_never_hashed_over_some_of_the_shards(
    tmp_path: Path,
    count: int,
    of: int,
    missing: tuple[int, ...],
    extra: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index").plan(**extra).begin().name()
    if count:
        build.shards(count, of, missing)
    if extra:
        build.fill()
    with caplog.at_level(logging.WARNING):
        use(open_table(tmp_path / "t"))
    assert build.logs_of_writes() == []
    assert "record_index" in caplog.text
    covered = build.covered()
    assert covered is not None
    assert "files" in covered.split(",")
    assert "record_index" not in covered.split(",")


def test_a_build_that_has_its_shards_gets_entries_over_all_of_them(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index").plan().begin().name().shards(4).fill()
    open_table(tmp_path / "t").upsert(rows(200, 40, ts=5))
    covered = build.covered()
    assert covered is not None
    assert "record_index" in covered.split(",")
    build.complete()
    with build.table._transactions.section() as section:
        change_config(section, {READY: f"{section.config.properties[READY]},record_index", INFLIGHT: ""})
    metadata = open_handle(tmp_path / "t").state().metadata
    assert isinstance(metadata, MetadataTable)
    assert set(read_record_index(metadata)["key"].to_pylist()) == {f"k{n:03d}" for n in range(200, 240)}
    wanted = [f"k{n:03d}" for n in range(200, 240)]
    assert {key for key, places in find_locations(metadata, wanted).items() if places} == set(wanted)


@pytest.mark.parametrize("instant", [K, X])
def test_an_index_is_whole_while_the_plan_that_built_it_is_still_in_flight(
    tmp_path: Path, instant: InstantTime
) -> None:
    """Apache Hudi builds an index under the time of its plan, which stays pending on the timeline until the end."""
    build = Build(made(tmp_path / "t", "mor"), "record_index", instant).plan().begin().name().shards(4).fill().publish()
    keys = [f"k{n:03d}" for n in range(200, 212)]
    for n in range(200, 212):
        open_table(tmp_path / "t").upsert(rows(n, 1, ts=5))
    metadata = open_handle(tmp_path / "t").state().metadata
    assert isinstance(metadata, MetadataTable)
    assert len(metadata.slices("record_index")) == 4
    build.end()
    after = open_table(tmp_path / "t")
    metadata = after._handle.state().metadata
    assert isinstance(metadata, MetadataTable)
    assert {key for key, places in find_locations(metadata, keys).items() if places} == set(keys)
    assert after.upsert(rows(200, 12, ts=6)).updated == 12


def test_a_reader_that_looked_before_a_build_completed_finds_the_index_whole(tmp_path: Path) -> None:
    """It may read the configuration, which names the index, after the timeline."""
    build = Build(made(tmp_path / "t", "mor"), "record_index", X).plan().begin().name().shards(4).fill()
    handle = open_table(tmp_path / "t")._handle
    seen = handle.state().latest.timeline
    build.publish()
    open_table(tmp_path / "t").upsert(rows(200, 1, ts=5))
    metadata = find_metadata_table(handle.storage, load_config(handle.storage), seen, handle.state().definitions)
    assert isinstance(metadata, MetadataTable)
    assert len(metadata.slices("record_index")) == 4


@pytest.mark.parametrize("how", ["overwrite", "delete_partitions"])
def test_what_hides_rows_tells_an_index_that_is_being_built(tmp_path: Path, how: str) -> None:
    table = made(tmp_path / "t", "mor")
    build = Build(table, "record_index").plan().begin().name().shards(2).fill()
    other = open_table(tmp_path / "t")
    hidden = other.to_arrow(where="city = 'lima'").num_rows
    assert hidden
    if how == "overwrite":
        other.overwrite(rows(301, 1))
    else:
        other.delete_partitions(["lima"])
    stats = build.newest().write_stats.get("record_index", ())
    assert sum(stat.num_deletes or 0 for stat in stats) >= hidden


def test_commits_go_on_while_partition_stats_are_built_and_widen_them(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor")
    before = contents(table)
    table.indexes.drop("partition_stats")
    build = Build(table, "partition_stats").plan().begin().name().shards(1).fill()
    use(open_table(tmp_path / "t"))
    assert build.logs_of_writes()
    build.complete()
    with build.table._transactions.section() as section:
        change_config(section, {READY: f"{section.config.properties[READY]},partition_stats", INFLIGHT: ""})
    metadata = open_handle(tmp_path / "t").state().metadata
    assert isinstance(metadata, MetadataTable)
    ranges = find_column_ranges(metadata, "partition_stats", "fare", pa.float64())
    assert ranges.num_rows
    assert ranges["is_tight_bound"].to_pylist() == [False] * ranges.num_rows
    assert before


def test_a_shard_that_an_index_lacks_is_told(tmp_path: Path) -> None:
    table = made(tmp_path / "t", "mor", indexes=("record",))
    storage = table._handle.storage
    first = group_ids("record_index", 1)[0]
    table.indexes.reshard("record_index", shards=4)
    for listed in storage.list(f"{MDT}record_index"):
        if first in listed.path:
            storage.delete(listed.path)
    with pytest.raises(CorruptTableError, match="record_index"):
        open_table(tmp_path / "t").upsert(rows(0, 3, ts=9))


@pytest.fixture
def paused(tmp_path: Path) -> Table:
    """A table with every index, by a reader that has looked at it and goes on later."""
    table = made(tmp_path / "t", "mor", indexes=("record", "bloom"))
    table.indexes.reshard("record_index", shards=2)
    reader = open_table(tmp_path / "t")
    reader._handle.state().latest_slices  # noqa: B018
    return reader


FILTERS = {
    "record_index": "id = 'k010'",
    "column_stats": "fare = 5.0",
    "bloom_filters": "id = 'k010'",
    "partition_stats": "fare = 5.0",
}


@pytest.mark.parametrize("is_half_gone", [False, True])
@pytest.mark.parametrize("name", FILTERS)
def test_a_reader_does_without_an_index_that_was_dropped_since_it_looked(
    tmp_path: Path, paused: Table, name: str, is_half_gone: bool
) -> None:
    state = paused._handle.state()
    folder = tmp_path / "t/.hoodie/metadata" / name
    files = {file: file.read_bytes() for file in folder.iterdir() if ".log." in file.name}
    other = open_table(tmp_path / "t")
    if name == "column_stats":
        other.indexes.drop("partition_stats")
    other.indexes.drop(name)
    if is_half_gone:  # As if it were at the first base file, and logs were still there.
        for file, data in files.items():
            file.write_bytes(data)
    paused._handle.state = lambda: state  # type: ignore[method-assign]
    assert paused.lookup(["k010", "nobody"]).num_rows == 1
    assert paused.to_arrow(where=FILTERS[name])["id"].to_pylist() == ["k010"]
    steps = {step.index: step for step in paused.explain(where=FILTERS[name]).steps}
    assert not steps[name].used


@pytest.mark.parametrize("how", ["create", "rebuild", "drop", "reshard"])
def test_work_on_one_index_leaves_the_mark_of_another_that_is_being_built(tmp_path: Path, how: str) -> None:
    table = made(tmp_path / "t", "mor", indexes=("record",))
    table.indexes.drop("partition_stats")
    table.indexes.drop("column_stats")
    build = Build(table, "column_stats").plan().begin().name().shards(2).fill()
    before = build.files()
    other = open_table(tmp_path / "t")
    if how == "create":
        other.indexes.create("bloom_filters")
    elif how == "rebuild":
        other.indexes.create("record_index", rebuild=True)
    elif how == "drop":
        other.indexes.drop("record_index")
    else:
        other.indexes.reshard("record_index", shards=3)
    assert load_config(build.storage).metadata_partitions_inflight == ("column_stats",)
    assert set(before) <= set(build.files())
    with pytest.raises(InvalidInputError, match="is being built"):
        other.indexes.create("column_stats")
