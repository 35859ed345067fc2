"""Bad input gives a typed error with a hint that names what is wrong, and a read never writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptTableError, InvalidInputError, LakebedError, UnsupportedTableError


@pytest.fixture
def copy_of(unpack, tmp_path: Path) -> Callable[[str], Path]:
    """A function from the name of a real table to a copy of it that may be damaged."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(unpack(name).path, tmp_path / name))

    return copy


def one(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[-1]


def truncate(path: Path, keep: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def read(path: Path, **arguments: object) -> None:
    lakebed.open_table(path).to_arrow(**arguments)


class TestNotATable:
    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match=r"nowhere.*is not a Hudi table"):
            lakebed.open_table(tmp_path / "nowhere")
        assert not (tmp_path / "nowhere").exists()

    def test_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match=r"hoodie\.properties"):
            lakebed.open_table(tmp_path)

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "data.parquet").write_bytes(b"PAR1")
        with pytest.raises(InvalidInputError, match=r"data\.parquet"):
            lakebed.open_table(tmp_path / "data.parquet")

    def test_unknown_scheme(self) -> None:
        with pytest.raises(InvalidInputError, match="ftp"):
            lakebed.open_table("ftp://host/table")


class TestProperties:
    def edit(self, table: Path, old: str, new: str) -> None:
        path = table / ".hoodie" / "hoodie.properties"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def test_unknown_table_version(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        self.edit(table, "hoodie.table.version=9", "hoodie.table.version=10")
        with pytest.raises(UnsupportedTableError, match="table version 10") as caught:
            lakebed.open_table(table)
        assert "6, 8 and 9" in caught.value.hint

    def test_wrong_checksum(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        self.edit(table, "hoodie.table.checksum=", "hoodie.table.checksum=1")
        with pytest.raises(CorruptTableError, match=r"hoodie\.properties"):
            lakebed.open_table(table)

    def test_the_backup_serves_while_a_writer_replaces_the_config(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        properties = table / ".hoodie" / "hoodie.properties"
        properties.rename(table / ".hoodie" / "hoodie.properties.backup")
        assert lakebed.open_table(table).to_arrow().num_rows == 5
        properties.write_text("torn")
        assert lakebed.open_table(table).to_arrow().num_rows == 5

    @pytest.mark.parametrize("key", ["hoodie.table.version", "hoodie.timeline.layout.version"])
    @pytest.mark.parametrize("number", ["999999999999999999999", "9" * 99, "0", "7", "10", "00"])
    def test_absurd_numbers(self, copy_of, key: str, number: str) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        properties = table / ".hoodie" / "hoodie.properties"
        lines = [line for line in properties.read_text().splitlines() if not line.startswith(f"{key}=")]
        properties.write_text("\n".join([*lines, f"{key}={number}", ""]))
        with pytest.raises(UnsupportedTableError, match=str(int(number))):
            lakebed.open_table(table)

    @pytest.mark.parametrize("key", ["hoodie.table.version", "hoodie.timeline.layout.version"])
    @pytest.mark.parametrize("number", ["9" * 5000, "-1", "9.0", "1e1", "+9", "0x9", "nine"])
    def test_no_numbers(self, copy_of, key: str, number: str) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        properties = table / ".hoodie" / "hoodie.properties"
        properties.write_text(properties.read_text() + f"{key}={number}\n")
        with pytest.raises(CorruptTableError, match="is not a number"):
            lakebed.open_table(table)

    @pytest.mark.parametrize("key", ["hoodie.table.type", "hoodie.table.version", "hoodie.table.name"])
    def test_missing_key(self, copy_of, key: str) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        self.edit(table, f"{key}=", f"{key}.gone=")
        with pytest.raises(CorruptTableError, match=r"hoodie\.properties"):
            lakebed.open_table(table)

    @pytest.mark.parametrize("data", [b"", b"\xff\xfe\x00", b"hoodie.table.version=nine", b"\\u12"])
    def test_garbage(self, copy_of, data: bytes) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        (table / ".hoodie" / "hoodie.properties").write_bytes(data)
        with pytest.raises(CorruptTableError, match=r"hoodie\.properties"):
            lakebed.open_table(table)


class TestDamagedFiles:
    def test_truncated_log_file(self, copy_of) -> None:
        table = copy_of("hudi120_mor_part_compacted")
        log = one(table / "eu", ".*.log.*")
        truncate(log)
        with pytest.raises(CorruptTableError, match=r"\.log\.1"):
            read(table)

    def test_truncated_log_file_of_version_6(self, copy_of) -> None:
        table = copy_of("hudi015_mor_part_compacted")
        truncate(one(table / "eu", ".*.log.*"))
        with pytest.raises(CorruptTableError, match=r"\.log\.2"):
            read(table)

    def test_truncated_hfile(self, copy_of) -> None:
        table = copy_of("hudi120_cow_part_upsert")
        truncate(one(table / ".hoodie" / "metadata" / "files", "*.hfile"))
        with pytest.raises(CorruptTableError, match=r"\.hfile"):
            read(table)

    def test_unknown_block_type(self, copy_of) -> None:
        table = copy_of("hudi120_mor_part_compacted")
        log = one(table / "eu", ".*.log.*")
        data = bytearray(log.read_bytes())
        data[18:22] = (99).to_bytes(4, "big")
        log.write_bytes(data)
        with pytest.raises(LakebedError, match=r"\.log\.1"):
            read(table)

    @pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
    def test_unreadable_parquet(self, copy_of, keep: float) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        truncate(one(table, "*.parquet"), keep)
        with pytest.raises(CorruptTableError, match=r"\.parquet"):
            read(table)

    def test_missing_data_file(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        one(table, "*.parquet").unlink()
        with pytest.raises(CorruptTableError, match=r"\.parquet"):
            read(table)

    def test_garbage_commit(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        one(table / ".hoodie" / "timeline", "*.commit").write_bytes(b"not avro")
        with pytest.raises(CorruptTableError, match=r"\.commit"):
            read(table)


class TestTimeline:
    @pytest.mark.parametrize("name", ["2026_20261115235814703.commit", "abc.commit", "20261115235814703_x.deltacommit"])
    def test_odd_instant_name(self, copy_of, name: str) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        (table / ".hoodie" / "timeline" / name).write_bytes(b"")
        with pytest.raises(CorruptTableError) as caught:
            read(table)
        assert name in str(caught.value)

    def test_foreign_files_are_ignored(self, copy_of) -> None:
        table = copy_of("hudi120_cow_nonpart_minimal")
        for name in ("notes.txt", ".DS_Store", "20261115235814703.newaction.requested"):
            (table / ".hoodie" / "timeline" / name).write_bytes(b"x")
        assert lakebed.open_table(table).to_arrow().num_rows == 5


class TestArguments:
    @pytest.fixture
    def table(self, unpack) -> lakebed.Table:
        return lakebed.open_table(unpack("hudi120_cow_part_upsert").path)

    def test_unknown_column(self, table: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError, match="'nme'") as caught:
            table.to_arrow(columns=["nme"])
        assert "'name'" in caught.value.hint

    def test_columns_as_text(self, table: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError) as caught:
            table.to_arrow(columns="name")
        assert "columns=['name']" in caught.value.hint

    @pytest.mark.parametrize("where", ["id = ", "id == 'a' and (", "", "drop table x", "nme = 'a'", "ts = 'soon'"])
    def test_bad_filter(self, table: lakebed.Table, where: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            table.to_arrow(where=where)
        assert caught.value.hint

    @pytest.mark.parametrize("as_of", ["19990101000000000", "1999-01-01", "1999-01-01T10:00:00Z"])
    def test_as_of_before_the_first_commit(self, table: lakebed.Table, as_of: str) -> None:
        with pytest.raises(InvalidInputError, match="before the first commit") as caught:
            table.to_arrow(as_of=as_of)
        assert table.timeline.completed()[0].requested_at in caught.value.hint

    def test_as_of_nonsense(self, table: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError, match="yesterday"):
            table.to_arrow(as_of="yesterday")

    def test_unknown_mode(self, table: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError, match="'optimised'"):
            table.to_arrow(mode="optimised")

    def test_lookup_of_numbers(self, table: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError, match="record keys are text"):
            table.lookup([1])

    def test_lookup_without_an_index(self, unpack) -> None:
        with pytest.raises(InvalidInputError, match="no record index"):
            lakebed.open_table(unpack("hudi120_cow_nonpart_minimal").path).lookup(["k001"])

    def test_unsupported_known_option(self, unpack) -> None:
        with pytest.raises(InvalidInputError, match="skip_merge"):
            lakebed.open_table(
                unpack("hudi120_cow_part_upsert").path, options={"hoodie.datasource.merge.type": "skip_merge"}
            )

    def test_query_options_belong_into_the_call(self, unpack) -> None:
        path = unpack("hudi120_cow_part_upsert").path
        with pytest.raises(InvalidInputError, match=r"as\.of\.instant") as caught:
            lakebed.open_table(path, options={"as.of.instant": "20261115235942092"})
        assert "as_of" in caught.value.hint

    def test_unknown_option_warns_with_the_nearest_name(self, unpack) -> None:
        with pytest.warns(UserWarning, match=r"hoodie\.metadata\.enable"):
            lakebed.open_table(unpack("hudi120_cow_part_upsert").path, options={"hoodie.metadata.enabled": "true"})

    def test_to_spark_without_a_session(self, table: lakebed.Table, monkeypatch: pytest.MonkeyPatch) -> None:
        pyspark = pytest.importorskip("pyspark.sql")
        monkeypatch.setattr(pyspark.SparkSession, "getActiveSession", lambda: None)
        with pytest.raises(InvalidInputError, match="no Spark session"):
            table.to_spark()


HALF = "\ud800"
"""Half of a surrogate pair: text to Python, and to nobody else."""
_SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "v": pa.int64()})
_ROW = {"id": "a", "p": "x", "v": 1}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Table:
    """A table with one row, which no test changes."""
    path = tmp_path_factory.mktemp("written") / "table"
    table = lakebed.create_table(path, schema=_SCHEMA, key="id", partition_by="p", indexes=["record"])
    table.upsert([_ROW])
    return table


def check_refused(table: lakebed.Table, call: Callable[[], object]) -> None:
    """The call is refused in words that any log can take, and leaves nothing on the timeline."""
    before = table.timeline.instants
    with pytest.raises(InvalidInputError) as caught:
        call()
    str(caught.value).encode()
    assert caught.value.hint
    assert table.timeline.instants == before


_CALLS: dict[str, Callable[[lakebed.Table], object]] = {
    "lookup": lambda table: table.lookup([HALF]),
    "lookup of many": lambda table: table.lookup(["a", *(f"k{number}{HALF}" for number in range(2000))]),
    "lookup of one": lambda table: table.lookup(HALF),
    "columns of a lookup": lambda table: table.lookup(["a"], columns=[HALF]),
    "columns": lambda table: table.to_arrow(columns=[HALF]),
    "filter by key": lambda table: table.to_arrow(where=f"id = '{HALF}'"),
    "filter by partition": lambda table: table.to_arrow(where=f"p = '{HALF}'"),
    "filter by several": lambda table: table.to_arrow(where=f"id in ('a', '{HALF}')"),
    "filter by pattern": lambda table: table.to_arrow(where=f"id like '{HALF}%'"),
    "filter by function": lambda table: table.to_arrow(where=f"substring(id, 1, 1) = '{HALF}'"),
    "filter by a column": lambda table: table.to_arrow(where=f"`{HALF}` = 1"),
    "filter that is none": lambda table: table.to_arrow(where=HALF),
    "explain": lambda table: table.explain(where=f"id = '{HALF}'"),
    "changes": lambda table: table.changes("earliest", where=f"id = '{HALF}'"),
    "changes since": lambda table: table.changes(HALF),
    "changes until": lambda table: table.changes("earliest", HALF),
    "as of": lambda table: table.to_arrow(as_of=HALF),
    "mode": lambda table: table.to_arrow(mode=HALF),
    "key of a row": lambda table: table.upsert([{**_ROW, "id": HALF}]),
    "partition of a row": lambda table: table.upsert([{**_ROW, "p": HALF}]),
    "escaped byte": lambda table: table.upsert([{**_ROW, "p": "\udcff"}]),
    "name of a column": lambda table: table.upsert([{**_ROW, HALF: 1}]),
    "new column": lambda table: table.upsert([{**_ROW, "w": HALF}]),
    "list in a row": lambda table: table.upsert([{**_ROW, "w": {"a": [HALF]}}]),
    "name in a struct": lambda table: table.upsert([{**_ROW, "w": {HALF: 1}}]),
    "insert": lambda table: table.insert([{**_ROW, "id": HALF}]),
    "bulk insert": lambda table: table.bulk_insert([{**_ROW, "id": HALF}]),
    "overwrite": lambda table: table.overwrite([{**_ROW, "id": HALF}]),
    "delete": lambda table: table.delete([HALF]),
    "delete of one": lambda table: table.delete(HALF),
    "delete of a set": lambda table: table.delete({HALF}),
    "delete of rows": lambda table: table.delete([{"id": HALF, "p": "x"}]),
    "delete of rows by key": lambda table: table.delete([{"id": HALF}]),
    "partition": lambda table: table.delete_partitions(HALF),
    "rollback": lambda table: table.rollback(HALF),
    "savepoint": lambda table: table.savepoint(HALF),
    "delete of a savepoint": lambda table: table.delete_savepoint(HALF),
    "restore": lambda table: table.restore(HALF),
    "files": lambda table: table.files(as_of=HALF),
    "index": lambda table: table.indexes.create(HALF),
    "drop": lambda table: table.indexes.drop(HALF),
    "validate": lambda table: table.indexes.validate(HALF),
    "reshard": lambda table: table.indexes.reshard(HALF, shards=2),
}


class TestHalfSurrogates:
    @pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
    def test_calls(self, written: lakebed.Table, call: Callable[[lakebed.Table], object]) -> None:
        check_refused(written, lambda: call(written))

    def test_paths(self, tmp_path: Path) -> None:
        for path in (f"{tmp_path}/{HALF}", f"{tmp_path}/\udcff", f"file://{tmp_path}/{HALF}", f"memory://{HALF}"):
            with pytest.raises(InvalidInputError):
                lakebed.open_table(path)
            with pytest.raises(InvalidInputError):
                lakebed.create_table(path, schema=_SCHEMA, key="id")
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize(
        "options",
        [
            {HALF: "x"},
            {f"hoodie.{HALF}": "x"},
            {"hoodie.metadata.enable": HALF},
            {"hoodie.table.name": HALF},
            {"hoodie.database.name": HALF},
            {"region": HALF},
        ],
    )
    def test_options(self, written: lakebed.Table, tmp_path: Path, options: dict[str, str]) -> None:
        with pytest.raises(InvalidInputError, match="option"):
            lakebed.open_table(written._handle.storage.url, options=options)
        with pytest.raises(InvalidInputError, match="option"):
            lakebed.create_table(tmp_path / "new", schema=_SCHEMA, key="id", options=options)
        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("argument", ["key", "partition_by", "ordering", "table_type", "indexes"])
    def test_new_tables(self, tmp_path: Path, argument: str) -> None:
        value = HALF if argument == "table_type" else [HALF]
        with pytest.raises(InvalidInputError):
            lakebed.create_table(tmp_path / "new", schema=_SCHEMA, **{"key": "id", argument: value})
        assert not (tmp_path / "new").exists()


class TestPartitions:
    @pytest.mark.parametrize(
        "partition",
        [
            *("nope", "X", "x ", "x/", "/x", "./x", "x//", "x/.", "x\0", "x\n", "*", ""),
            *("..", "../..", "../x", "x/..", "x/../x", ".", "/", "/etc", ".hoodie", ".hoodie/metadata", "file:///x"),
        ],
    )
    def test_one_that_is_not_there_is_not_deleted(self, written: lakebed.Table, partition: str) -> None:
        check_refused(written, lambda: written.delete_partitions(partition))
        check_refused(written, lambda: written.delete_partitions(["x", partition]))

    @pytest.mark.parametrize("partitions", [(), None, 1, [None], [1], [["x"]], b"x"])
    def test_none_that_makes_sense(self, written: lakebed.Table, partitions: object) -> None:
        check_refused(written, lambda: written.delete_partitions(partitions))

    def test_the_nearest_name_is_told(self, written: lakebed.Table) -> None:
        with pytest.raises(InvalidInputError) as caught:
            written.delete_partitions("x/")
        assert "'x'" in caught.value.hint

    @pytest.mark.parametrize(
        "value", ["..", "../..", "/etc", "/", "a//b", "a/", "a/../b", ".", ".hoodie", "a\0b", "a\nb"]
    )
    def test_values_that_are_no_folder(self, written: lakebed.Table, value: str) -> None:
        check_refused(written, lambda: written.upsert([{**_ROW, "p": value}]))

    @pytest.mark.parametrize(
        "value", ["a\u2028b", "a\x0bb", "a\x01b", "a\\b", "a b", "é\u202e", ".hidden", "~", "$HOME", "a;b", "..."]
    )
    def test_values_that_are_odd_folders(self, tmp_path: Path, value: str) -> None:
        table = lakebed.create_table(tmp_path / "t", schema=_SCHEMA, key="id", partition_by="p")
        table.upsert([{**_ROW, "p": value}])
        for options in ({}, {"hoodie.metadata.enable": "false"}):
            opened = lakebed.open_table(tmp_path / "t", options=options)
            assert opened.to_arrow(columns=["id", "p"]).to_pylist() == [{"id": "a", "p": value}]
        table.delete_partitions(value)
        assert table.to_arrow().num_rows == 0


def test_changes_need_meta_columns(unpack) -> None:
    with pytest.raises(InvalidInputError, match="populate"):
        lakebed.open_table(unpack("hudi111_cow_nonpart_no_metafields").path).changes("earliest")


def test_custom_merging_is_refused_for_slices_with_logs(copy_of) -> None:
    table = copy_of("hudi120_mor_part_compacted")
    properties = table / ".hoodie" / "hoodie.properties"
    text = properties.read_text().replace("EVENT_TIME_ORDERING", "CUSTOM")
    properties.write_text(text + "hoodie.compaction.payload.class=com.example.MyPayload\n")
    with pytest.raises(UnsupportedTableError, match=r"com\.example\.MyPayload") as caught:
        read(table)
    assert "read_optimized" in caught.value.hint
    assert lakebed.open_table(table).to_arrow(mode="read_optimized").num_rows > 0


def test_reads_write_nothing(real_table, tmp_path: Path) -> None:
    def listing() -> dict[str, tuple[int, int]]:
        files = (path for path in real_table.path.rglob("*") if path.is_file())
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = listing()
    table = lakebed.open_table(real_table.path)
    table.to_arrow()
    if table.config.has_meta_columns:
        table.changes("earliest")
    table.explain(where=f"{table.schema.names[-1]} is null")
    table.indexes.list()
    assert listing() == before
