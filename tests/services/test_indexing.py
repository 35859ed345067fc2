"""Indexes on existing tables: built from the rows they say what Apache Hudi says, and what is wrong is told."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import REAL_TABLES, RealTable, catalogue
from lakebed.api import Table, open_table
from lakebed.errors import CorruptTableError, InvalidInputError, UnsupportedTableError, WriteConflictError
from lakebed.format.index_definitions import decode_index_definitions
from lakebed.format.timeline.metadata import decode_index_commit, encode_index_plan
from lakebed.index.record import build as keys_module
from lakebed.index.record.probe import read_record_index
from lakebed.metadata import MetadataTable
from lakebed.model.commit import IndexedPartition, IndexPlan
from lakebed.model.words import Action
from lakebed.table import TableState, open_handle
from lakebed.write.columnar import ColumnarPlane
from observers import Recorded
from services.worlds import contents, made, rows

MDT = ".hoodie/metadata"
KINDS = ("record_index", "column_stats", "partition_stats", "bloom_filters", "files")


def real_tables(partition: str) -> list[str]:
    """Tables of version 9 that Apache Hudi gave an index."""
    about = {entry["zip"].removesuffix(".zip"): entry for entry in catalogue()}
    return [n for n in REAL_TABLES if about[n]["table_version"] == 9 and partition in about[n]["metadata_partitions"]]


def copied(table: RealTable, tmp_path: Path) -> Path:
    shutil.copytree(table.path, tmp_path / "t")
    return tmp_path / "t"


def opened(path: Path) -> tuple[TableState, MetadataTable]:
    state = open_handle(path).state()
    assert isinstance(state.metadata, MetadataTable)
    return state, state.metadata


def entries(path: Path) -> dict[tuple[str, str], tuple[str, int]]:
    found = read_record_index(opened(path)[1]).to_pylist()
    return {(row["key"], row["partition"]): (row["file_id"], row["instant_ms"]) for row in found}


@pytest.mark.parametrize("name", real_tables("record_index"))
def test_a_record_index_built_from_the_rows_says_what_apache_hudi_stored(unpack, tmp_path: Path, name: str) -> None:
    path = copied(unpack(name), tmp_path)
    state, metadata = opened(path)
    theirs = entries(path)
    definition = metadata.definitions.get("record_index")
    kind = "record_partitioned" if definition is not None and definition.is_partitioned else "record"
    open_table(path).indexes.create("record_index", kind=kind, rebuild=True)
    ours = entries(path)
    assert {key: place[0] for key, place in ours.items()} == {key: place[0] for key, place in theirs.items()}
    if "timezone" in name:  # Written in Tokyo, in local time, which no table says.
        return
    # An entry keeps the instant that brought its key into the file group; what was rewritten since has a later base.
    untouched = {s.group.file_id for s in state.latest_slices if not s.logs and once(state, s.group.file_id)}
    for key, (file_id, instant) in theirs.items():
        assert ours[key][1] == instant or file_id not in untouched, key


def once(state: TableState, file_id: str) -> bool:
    return sum(file.file_id == file_id for files in state.files.values() for file in files) == 1


@pytest.mark.parametrize("index", KINDS)
def test_indexes_of_apache_hudi_agree_with_its_rows_and_so_do_ours_in_their_place(
    unpack, tmp_path: Path, index: str
) -> None:
    for name in [name for name in real_tables(index) if name.startswith("hudi120") or "replace" in name]:
        table = open_table(copied(unpack(name), tmp_path / name))
        before = contents_of(table)
        found = table.indexes.validate(index)
        # What a dead writer left is not in the list of files, and Hudi 1.1 has zeros for columns of nulls.
        assert (found.missing, found.extra, found.repeated) == (0, 0, 0), (name, found, found.examples)
        kind = "record_partitioned" if "partitioned_rli" in name and index == "record_index" else None
        if kind is None and index == "record_index":
            kind = "record"
        table.indexes.create(index, kind=kind, rebuild=True)
        found = table.indexes.validate(index)
        assert found.is_sound, (name, found, found.examples)
        assert found.checked > 0
        assert contents_of(open_table(tmp_path / name / "t")) == before, name


def contents_of(table: Table) -> list[tuple[object, ...]]:
    found = table.to_arrow()
    names = [n for n in ("_hoodie_record_key", "_hoodie_commit_seqno") if n in found.column_names]
    return sorted(zip(*(found[n].to_pylist() for n in names), strict=True)) if names else [(found.num_rows,)]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("kind", ["record", "record_partitioned"])
def test_writes_keep_a_new_record_index_and_lookups_use_it(tmp_path: Path, table_type: str, kind: str) -> None:
    table = made(tmp_path / "t", table_type)
    info = table.indexes.create("record_index", kind=kind, shards=3)
    assert (info.state, info.shards) == ("ready", 3 if kind == "record" else 9)
    assert table.indexes.validate("record_index").is_sound
    table.upsert(rows(50, 20, ts=3))
    table.delete(["k000"])
    assert table.lookup(["k065", "k000", "k027"])["id"].to_pylist() == ["k065"]
    check = table.indexes.validate("record_index")
    assert check.is_sound
    assert check.checked == len(contents(table))


def test_the_table_says_that_it_has_the_index(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    other = open_table(tmp_path / "t")
    assert "record_index" not in other.config.metadata_partitions
    table.indexes.create("record_index", kind="record")
    assert other.lookup(["k001"]).num_rows == 1, "an open table sees it by the timeline"
    assert other.config.metadata_partitions == ("column_stats", "files", "partition_stats", "record_index")
    assert other.config.metadata_partitions_inflight == ()
    definitions = decode_index_definitions((tmp_path / "t/.hoodie/.index_defs/index.json").read_bytes(), path="")
    assert definitions["record_index"].options == {"isPartitioned": "false"}
    done = other.timeline.completed()[-1]
    assert done.action is Action.INDEXING
    path = tmp_path / f"t/.hoodie/timeline/{done.requested_at}_{done.completed_at}.indexing"
    newest = other.timeline.commits()[-1].requested_at
    said = {"lakebed.shards": "10", "lakebed.build": done.requested_at}
    plan = IndexPlan((IndexedPartition("record_index", newest, said),))
    assert decode_index_commit(path.read_bytes(), path="") == plan


def test_each_built_partition_has_an_instant_of_its_own(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    for kind in ("record", "record_partitioned"):
        table.indexes.create("record_index", kind=kind, rebuild=True)
    first, second = (i.requested_at for i in table.timeline.completed() if i.action is Action.INDEXING)
    names = [path.name for path in (tmp_path / "t" / MDT / ".hoodie/timeline").glob("*_*.deltacommit")]
    assert {first, second} < {name[:17] for name in names}, "of the time of its plan, as Apache Hudi has it"
    files = {path.name for path in (tmp_path / "t" / MDT / "record_index").glob("*.hfile")}
    assert files
    assert all(f"_{second}.hfile" in name for name in files), "nothing of the first is left"


def test_statistics_that_are_built_anew_know_new_columns(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    known = table.indexes.create("column_stats", rebuild=True).columns
    table.upsert(rows(0, 3).append_column("extra", pa.array([1, 2, 3])))
    assert table.indexes.create("column_stats", rebuild=True).columns == (*known, "extra")


def test_a_table_without_a_metadata_table_gets_one(unpack, tmp_path: Path) -> None:
    path = copied(unpack("hudi111_cow_part_no_mdt"), tmp_path)
    before = contents_of(open_table(path))
    (path / MDT / "files").mkdir(parents=True)
    (path / MDT / "files" / "files-0000-0_0-0-0_00000000000000000.hfile").write_bytes(b"left over")
    table = open_table(path)
    table.indexes.create("record_index", kind="record")
    assert [info.name for info in table.indexes.list()] == ["files", "record_index"]
    assert all(table.indexes.validate(name).is_sound for name in ("files", "record_index"))
    assert table.explain().files_from == "the metadata table"
    assert contents_of(table) == before


def test_an_index_on_a_table_without_rows(tmp_path: Path) -> None:
    from lakebed.api import create_table

    table = create_table(tmp_path / "t", schema=rows(0, 1).schema, key="id", partition_by="city", ordering="ts")
    for kind in ("record_partitioned", "bloom"):
        table.indexes.create(kind)
    assert table.indexes.validate("record_index").checked == 0
    table.upsert(rows(0, 9))
    assert [table.indexes.validate(name).checked for name in ("record_index", "bloom_filters")] == [9, 3]


def test_shards_grow_with_the_rows_and_options_bound_them(tmp_path: Path) -> None:
    made(tmp_path / "t")
    sizes = {"hoodie.metadata.record.index.max.filegroup.size": "480"}
    least = {"hoodie.metadata.global.record.level.index.min.filegroup.count": "2"}
    assert build(tmp_path / "t", {}) == 10
    assert build(tmp_path / "t", least) == 2
    assert build(tmp_path / "t", {**sizes, **least}) == 11, "55 rows times 2 in shards of 10"
    assert build(tmp_path / "t", {**sizes, **least, "hoodie.metadata.record.index.growth.factor": "4"}) == 22
    most = {"hoodie.metadata.global.record.level.index.max.filegroup.count": "5"}
    assert build(tmp_path / "t", {**sizes, **least, **most}) == 5
    with pytest.raises(InvalidInputError, match=r"min\.filegroup\.count=0"):
        build(tmp_path / "t", {"hoodie.metadata.global.record.level.index.min.filegroup.count": "0"})


def build(path: Path, options: dict[str, str]) -> int:
    return open_table(path, options=options).indexes.create("record_index", kind="record", rebuild=True).shards


def test_many_passes_give_the_same_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t", "mor")
    table.indexes.create("record_index", kind="record", shards=5)
    expected = entries(tmp_path / "t")
    monkeypatch.setattr(keys_module, "_HELD_BYTES_MAX", 64)
    seen = Recorded()
    table.indexes.create("record_index", kind="record", shards=5, rebuild=True, observer=seen)
    steps = seen.steps
    assert entries(tmp_path / "t") == expected
    assert len(steps) > len(expected) / 5, "each slice is read once per shard"
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert all(done <= total for done, total in steps)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "record_index", "shards": 0}, "0 shards"),
        ({"name": "record_index", "shards": -1}, "-1 shards"),
        ({"name": "record_index", "shards": 10_001}, "10001 shards"),
        ({"name": "record_index", "on": "id"}, "takes no columns"),
        ({"name": "record_index", "kind": "hash"}, "no index kind 'hash'"),
        ({"name": "my_index", "kind": "record"}, "cannot be called 'my_index'"),
        ({"name": "no_such"}, "no index kind 'no_such'"),
        ({"name": "column_stats", "on": ["nowhere"], "rebuild": True}, "no column 'nowhere'"),
        ({"name": "column_stats"}, "already"),
        ({"name": "files", "shards": 2, "rebuild": True}, "one shard"),
        ({"name": "record_index", "on_duplicate": "any"}, "on_duplicate"),
        ({"name": "partition_stats"}, "not partitioned"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    table = made(tmp_path / "t", partitioned=False)
    before = stored(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=message):
        table.indexes.create(**arguments)  # type: ignore[arg-type]
    assert stored(tmp_path / "t") == before


def stored(path: Path) -> dict[Path, bytes]:
    """Every file of a table but its lock."""
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and ".locks" not in file.parts}


def test_secondary_indexes_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="Apache Hudi"):
        made(tmp_path / "t").indexes.create("by_fare", on="fare", kind="secondary")


def test_a_table_of_another_version_is_refused(unpack, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="version 6"):
        open_table(copied(unpack("hudi015_cow_nonpart_minimal"), tmp_path)).indexes.create("record_index")


def with_duplicates(path: Path, table_type: str = "cow") -> Table:
    """k001 is in lima since the first write; insert brings it to oslo, too, with an older ordering value."""
    table = made(path, table_type)
    twice = rows(1, 1, ts=0).set_column(1, "city", pa.array(["oslo"]))
    table.insert(twice)
    return table


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_duplicate_keys_are_refused_with_their_files(tmp_path: Path, table_type: str) -> None:
    table = with_duplicates(tmp_path / "t", table_type)
    with pytest.raises(InvalidInputError, match=r"'k001' in (lima/\S+ and oslo/|oslo/\S+ and lima/)"):
        table.indexes.create("record_index", kind="record")
    assert "record_index" not in table.config.metadata_partitions
    names = [file.name for file in (tmp_path / "t" / MDT / "record_index").glob("*")]
    assert names == [], "what was stored is gone"
    assert table.upsert(rows(100, 3)).inserted == 3


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_on_duplicate_latest_finds_the_newest_row(tmp_path: Path, table_type: str) -> None:
    table = with_duplicates(tmp_path / "t", table_type)
    table.indexes.create("record_index", kind="record", on_duplicate="latest")
    found = table.lookup(["k001", "k002"])
    assert dict(zip(found["id"].to_pylist(), found["city"].to_pylist(), strict=True)) == {
        "k001": "oslo",
        "k002": "rome",
    }
    check = table.indexes.validate("record_index")
    assert (check.missing, check.extra, check.different, check.repeated) == (0, 0, 0, 1)
    assert (check.examples[0].what, check.examples[0].key) == ("repeated", "k001")
    assert "oslo/" in str(check.examples[0].stored)
    assert "lima/" in str(check.examples[0].stored)


def test_keys_that_are_unique_in_each_partition_suit_a_partitioned_index(tmp_path: Path) -> None:
    table = with_duplicates(tmp_path / "t")
    table.indexes.create("record_index", kind="record_partitioned")
    check = table.indexes.validate("record_index")
    assert check.is_sound
    assert check.checked == 56


def test_rows_without_a_key_are_refused_with_their_file(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    file_slice = table.files()[0]
    assert file_slice.base is not None
    path = tmp_path / "t" / file_slice.path(file_slice.base.name)
    stored = pq.read_table(path)
    where = stored.schema.get_field_index("_hoodie_record_key")
    pq.write_table(stored.set_column(where, "_hoodie_record_key", pa.nulls(len(stored), pa.string())), path)
    with pytest.raises(InvalidInputError, match=f"rows in {file_slice.path(file_slice.base.name)} have no record key"):
        table.indexes.create("record_index", kind="record")


@pytest.mark.parametrize("index", KINDS)
def test_a_corrupt_index_is_told_and_rebuilt_while_rows_stay_readable(tmp_path: Path, index: str) -> None:
    table = made(tmp_path / "t", indexes=("record", "bloom"))
    table.indexes.create(index, kind="record" if index == "record_index" else None, rebuild=True)
    expected = contents(table)
    for path in (tmp_path / "t" / MDT / index).glob("*.hfile"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    broken = open_table(tmp_path / "t")
    with pytest.raises(CorruptTableError):
        broken.indexes.validate(index)
    if index != "files":
        assert contents(broken) == expected
    assert contents(open_table(tmp_path / "t", options={"hoodie.metadata.enable": "false"})) == expected
    broken.indexes.create(index, kind="record" if index == "record_index" else None, rebuild=True)
    assert broken.indexes.validate(index).is_sound
    assert contents(broken) == expected
    assert sorted(i.name for i in broken.indexes.list() if i.state == "ready") == sorted(KINDS)


def test_a_lost_shard_is_told(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.indexes.create("record_index", kind="record", shards=3)
    for path in (tmp_path / "t" / MDT / "record_index").glob("*record-index-0001-0*"):
        path.unlink()
    broken = open_table(tmp_path / "t")
    with pytest.raises(CorruptTableError, match="shard 2 exists, but an earlier shard is missing"):
        broken.lookup(["k001"])
    assert [info.state for info in broken.indexes.list() if info.name == "record_index"] == ["broken"]
    broken.indexes.create("record_index", kind="record", rebuild=True)
    assert broken.indexes.validate("record_index").is_sound


def test_validate_names_the_keys_that_differ(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.indexes.create("record_index", kind="record", shards=1)
    folder = tmp_path / "t" / MDT / "record_index"
    before = set(folder.iterdir())
    table.upsert(rows(200, 3))
    table.delete(["k001", "k002"])
    for path in set(folder.iterdir()) - before:
        path.unlink()
    found = open_table(tmp_path / "t").indexes.validate("record_index", examples=2)
    assert (found.missing, found.extra, found.different, found.is_sound) == (3, 2, 0, False)
    assert len(found.examples) == 4, "two of each"
    assert {(e.what, e.key) for e in found.examples if e.what == "extra"} == {("extra", "k001"), ("extra", "k002")}
    missing = [e for e in found.examples if e.what == "missing"]
    assert {e.key for e in missing} < {"k200", "k201", "k202"}
    assert all(e.indexed is None for e in missing)
    assert all(str(e.stored).startswith(("rome/", "oslo/", "lima/")) for e in missing)


def test_validate_finds_a_key_that_is_elsewhere(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.indexes.create("record_index", kind="record", shards=1)
    folder = tmp_path / "t" / MDT / "record_index"
    before = set(folder.iterdir())
    table.delete(["k001"])
    table.insert(rows(1, 1).set_column(1, "city", pa.array(["rome"])))
    for path in set(folder.iterdir()) - before:
        path.unlink()
    found = open_table(tmp_path / "t").indexes.validate("record_index")
    assert (found.missing, found.extra, found.different) == (0, 0, 1)
    example = found.examples[0]
    assert (example.key, str(example.indexed)[:5], str(example.stored)[:5]) == ("k001", "lima/", "rome/")


def test_validate_compares_files_and_statistics(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    file_slice = table.files()[0]
    assert file_slice.base is not None
    path = tmp_path / "t" / file_slice.path(file_slice.base.name)
    stored = pq.read_table(path)
    where = stored.schema.get_field_index("ts")
    pq.write_table(stored.set_column(where, "ts", pa.array([99] * len(stored), pa.int64())), path)
    (tmp_path / "t" / "oslo" / path.name.replace(".parquet", ".orc")).write_bytes(b"")
    files = open_table(tmp_path / "t").indexes.validate("files")
    assert (files.missing, files.extra, files.different) == (1, 0, 1)
    stats = open_table(tmp_path / "t").indexes.validate("column_stats")
    assert (stats.missing, stats.extra, stats.different) == (0, 0, 1)
    assert stats.examples[0].key == f"ts of {path.name}"
    assert "99" in str(stats.examples[0].stored)
    assert open_table(tmp_path / "t").indexes.validate("partition_stats").different == 1


def test_drop_takes_name_definition_and_files(tmp_path: Path) -> None:
    table = made(tmp_path / "t", indexes=("record",))
    with pytest.raises(InvalidInputError, match="partition_stats"):
        table.indexes.drop("column_stats")
    for name in ("record_index", "partition_stats", "column_stats"):
        table.indexes.drop(name)
        assert not list((tmp_path / "t" / MDT / name).glob("*"))
    assert [info.name for info in table.indexes.list()] == ["files"]
    assert decode_index_definitions((tmp_path / "t/.hoodie/.index_defs/index.json").read_bytes(), path="") == {}
    assert table.upsert(rows(100, 3)).inserted == 3
    for name, message in (("record_index", "no index"), ("files", "depend on"), (".hoodie", "not the name")):
        with pytest.raises(InvalidInputError, match=message):
            table.indexes.drop(name)


def test_an_index_of_apache_hudi_that_lakebed_cannot_keep_can_be_dropped(unpack, tmp_path: Path) -> None:
    table = open_table(copied(unpack("hudi120_cow_part_rli_fg4"), tmp_path))
    with pytest.raises(InvalidInputError, match="secondary"):
        table.indexes.drop("record_index")
    table.indexes.drop("secondary_index_idx_name")
    table.delete([table.to_arrow()["_hoodie_record_key"][0].as_py()])
    assert table.indexes.validate("record_index").is_sound


def test_index_work_waits_for_an_index_that_is_being_built(tmp_path: Path) -> None:
    table = made(tmp_path / "t", indexes=("record",))
    plan = encode_index_plan(IndexPlan((IndexedPartition("bloom_filters", "20260101000000000"),)))
    pending = tmp_path / "t/.hoodie/timeline/20260101000000001.indexing.requested"
    pending.write_bytes(plan)
    for work in (
        lambda: table.indexes.create("bloom"),
        lambda: table.indexes.drop("bloom_filters"),
        lambda: table.indexes.create("files", rebuild=True),
    ):
        with pytest.raises(InvalidInputError, match="bloom_filters is being built since 20260101000000001"):
            work()
    pending.unlink()
    assert table.indexes.create("bloom").state == "ready"


def before_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Has something be done when the next write is about to commit."""
    commit = ColumnarPlane.prepare

    def late(self: ColumnarPlane, *arguments: object) -> object:
        monkeypatch.setattr(ColumnarPlane, "prepare", commit)
        do()
        return commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ColumnarPlane, "prepare", late)


WRITES: dict[str, Callable[[Table], object]] = {
    "new keys": lambda table: table.upsert(rows(400, 6)),
    "updates": lambda table: table.upsert(rows(40, 6, ts=5)),
    "overwrite": lambda table: table.overwrite(rows(0, 3, ts=5)),
    "delete": lambda table: table.delete(["k000"]),
    "delete partitions": lambda table: table.delete_partitions([table.to_arrow()["_hoodie_partition_path"][0].as_py()]),
}
APPEARING = ("record_index", "bloom_filters", "partition_stats", "column_stats")


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("name", APPEARING)
@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_began_before_the_index_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: str, name: str, write: str
) -> None:
    table = made(tmp_path / "t", table_type=table_type)
    other = open_table(tmp_path / "t")
    there = {found.name for found in table.indexes.list()}
    for index in ("partition_stats", "column_stats") if name == "column_stats" else (name,):
        if index in there:
            table.indexes.drop(index)
    before_commit(monkeypatch, lambda: other.indexes.create(name))
    WRITES[write](table)
    check = table.indexes.validate(name)
    assert check.is_sound, (check, check.examples)
    assert open_table(tmp_path / "t").doctor() == ()


def test_a_write_has_the_columns_that_statistics_got_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path / "t")
    table.indexes.create("column_stats", on=["ts"], rebuild=True)
    other = open_table(tmp_path / "t")
    before_commit(monkeypatch, lambda: other.indexes.create("column_stats", rebuild=True))
    table.upsert(rows(400, 6))
    assert table.indexes.validate("column_stats").is_sound
    assert table.indexes.validate("partition_stats").is_sound


@pytest.mark.parametrize("kind", ["record", "record_partitioned"])
def test_of_two_writes_that_began_before_the_index_one_inserts_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    made(tmp_path / "t")
    new_groups = {"hoodie.parquet.small.file.limit": "0"}
    table, other = (open_table(tmp_path / "t", options=new_groups) for _ in range(2))

    def insert_and_index() -> None:
        other.upsert(rows(400, 6))
        other.indexes.create("record_index", kind=kind)

    before_commit(monkeypatch, insert_and_index)
    with pytest.raises(WriteConflictError, match="inserted some of the same keys"):
        table.upsert(rows(400, 6, ts=2))
    assert table.indexes.validate("record_index").is_sound
    assert table.upsert(rows(400, 6, ts=2)).updated == 6


@pytest.mark.parametrize("change", ["create", "rebuild", "reshard"])
def test_a_write_that_an_index_has_taken_in_cannot_be_rolled_back(tmp_path: Path, change: str) -> None:
    table = made(tmp_path / "t")
    before = contents(table)
    if change != "create":
        table.indexes.create("record_index", kind="record", shards=2)
    written = table.upsert(rows(300, 9)).instant
    if change == "reshard":
        table.indexes.reshard(shards=3)
    else:
        table.indexes.create("record_index", kind="record", shards=2, rebuild=change == "rebuild")
    with pytest.raises(InvalidInputError, match=f"record_index was built since {written}"):
        table.rollback(written)
    assert table.indexes.validate("record_index").is_sound
    table.indexes.drop("record_index")
    table.rollback(written)
    assert contents(table) == before


@pytest.mark.parametrize("verb", ["upsert", "overwrite"])
def test_a_write_that_statistics_of_partitions_have_taken_in_cannot_be_rolled_back(tmp_path: Path, verb: str) -> None:
    """Statistics built since do not cover the rows that come back: other readers would skip them."""
    table = made(tmp_path / "t")
    before = contents(table)
    written = getattr(table, verb)(rows(0, 3, ts=5)).instant
    table.indexes.create("partition_stats", rebuild=True)
    with pytest.raises(InvalidInputError, match=f"partition_stats was built since {written}"):
        table.rollback(written)
    table.indexes.drop("partition_stats")
    table.rollback(written)
    assert contents(table) == before


@pytest.mark.parametrize("change", ["drop", "grow", "shrink"])
def test_a_write_that_found_its_keys_before_the_index_changed_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table = made(tmp_path / "t")
    table.indexes.create("record_index", kind="record", shards=3)
    other = open_table(tmp_path / "t")
    commit = ColumnarPlane.prepare

    def late(self: ColumnarPlane, *arguments: object) -> object:
        monkeypatch.setattr(ColumnarPlane, "prepare", commit)
        if change == "drop":
            other.indexes.drop("record_index")
        else:
            other.indexes.reshard(shards=7 if change == "grow" else 1)
        return commit(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ColumnarPlane, "prepare", late)
    result = table.upsert(rows(40, 30, ts=5))
    assert (result.inserted, result.updated) == (10, 20)
    if change != "drop":
        assert table.indexes.validate("record_index").is_sound
    assert len(contents(table)) == 65
