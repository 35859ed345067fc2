"""Bad input gives a typed error with a hint that names what is wrong, and a read never writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

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
