"""A table's files may name files of its data, and nothing else: what points elsewhere is neither read nor deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptTableError, UnsupportedTableError
from lakebed.format.timeline.metadata import (
    decode_commit,
    decode_compaction_plan,
    encode_commit,
    encode_compaction_plan,
)
from lakebed.format.timeline.plans import (
    decode_clean_plan,
    decode_clustering_plan,
    decode_rollback_plan,
    encode_clean_plan,
    encode_clustering_plan,
    encode_rollback_plan,
)
from lakebed.model.commit import (
    CleanPlan,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringSlice,
    CommitMetadata,
    CompactionOperation,
    CompactionPlan,
    InstantRef,
    RollbackPlan,
    WriteStat,
)
from lakebed.model.instant import InstantTime
from lakebed.storage import open_storage
from lakebed.transaction.markers import load_markers

OUTSIDE = [
    *("..", "../../etc", "p/../../x", "p/..", "./p", ".", "/etc", "p/", "p//q", "a\0b"),
    *(".hoodie", ".hoodie/timeline", ".hoodie/metadata", ".hoodie/metadata/.hoodie", ".hoodie/metadata/../.."),
]
INSIDE = ["", "p", "a=1/b=2", ".hidden", "..p", "p..", ".hoodie_x", ".hoodie/metadata/files", "a\nb"]
TARGET = InstantRef("20260101000000000", "commit")


def clean(partition: str, name: str = "f.parquet") -> CleanPlan:
    return decode_clean_plan(
        encode_clean_plan(CleanPlan(None, "", "x", {partition: (name,)}), table_url="/t"), path="plan"
    )


def clean_partition(partition: str) -> CleanPlan:
    plan = CleanPlan(None, "", "x", {}, (partition,))
    return decode_clean_plan(encode_clean_plan(plan, table_url="/t"), path="plan")


def rollback(partition: str, name: str = "f.parquet") -> RollbackPlan:
    return decode_rollback_plan(
        encode_rollback_plan(RollbackPlan(TARGET, {partition: (name,)}), table_url="/t"), path="plan"
    )


def clustering(partition: str, name: str = "f.parquet") -> ClusteringPlan:
    group = ClusteringGroup((ClusteringSlice(partition, "f", name, ()),), 1, {})
    plan = ClusteringPlan((group,), "", {}, preserve_meta_columns=True)
    return decode_clustering_plan(encode_clustering_plan(plan, table_url="/t"), path="plan")


def compaction(partition: str, name: str = "f.parquet") -> CompactionPlan:
    operation = CompactionOperation(partition, "f", "20260101000000000", name, (), {})
    return decode_compaction_plan(encode_compaction_plan(CompactionPlan((operation,))), path="plan")


def commit(partition: str) -> CommitMetadata:
    stat = WriteStat("f", f"{partition}/f.parquet", partition)
    return decode_commit(encode_commit(CommitMetadata({partition: (stat,)}), replace=False), path="plan")


def replace_commit(partition: str) -> CommitMetadata:
    metadata = CommitMetadata(replaced_file_ids={partition: ("f",)})
    return decode_commit(encode_commit(metadata, replace=True), path="plan")


@pytest.mark.parametrize("decode", [clean, clean_partition, rollback, clustering, compaction, commit, replace_commit])
class TestPartitions:
    @pytest.mark.parametrize("partition", OUTSIDE)
    def test_outside(self, decode: Callable[[str], object], partition: str) -> None:
        with pytest.raises(CorruptTableError, match=r"plan: it names"):
            decode(partition)

    @pytest.mark.parametrize("partition", INSIDE)
    def test_inside(self, decode: Callable[[str], object], partition: str) -> None:
        decode(partition)


@pytest.mark.parametrize("decode", [clean, rollback, clustering, compaction])
@pytest.mark.parametrize("name", ["..", ".", "a\0b"])
def test_names(decode: Callable[[str, str], object], name: str) -> None:
    with pytest.raises(CorruptTableError, match=r"plan: it names"):
        decode("p", name)


def test_a_compaction_reads_names_not_paths() -> None:
    with pytest.raises(CorruptTableError, match=r"plan: it names"):
        compaction("p", "../../etc/passwd")


@pytest.mark.parametrize("version", ["V0", "V3", "V999999999999999999999", "999999999999999999999", "-1", "", "v1"])
def test_versions_of_indexes(unpack, tmp_path: Path, version: str) -> None:
    table = Path(shutil.copytree(unpack("hudi120_mor_nonpart_all_indexes").path, tmp_path / "t"))
    path = table / ".hoodie" / ".index_defs" / "index.json"
    content = json.loads(path.read_text())
    for definition in content["indexDefinitions"].values():
        definition["version"] = version
    path.write_text(json.dumps(content))
    with pytest.raises(UnsupportedTableError, match=r"index\.json: version"):
        lakebed.open_table(table).to_arrow(where="1 = 1")


INSTANT = InstantTime("20260101000000000")


@pytest.mark.parametrize(
    "marked", ["../../victim", ".hoodie/hoodie.properties", "/etc/x", "p/..", "p/../../x", ".hoodie/timeline/x"]
)
@pytest.mark.parametrize("line", [True, False])
def test_markers(tmp_path: Path, marked: str, line: bool) -> None:
    storage = open_storage(tmp_path)
    folder = f".hoodie/.temp/{INSTANT}"
    if line:
        storage.create(f"{folder}/MARKERS0", f"p/f.parquet.marker.CREATE\n{marked}.marker.CREATE\n".encode())
    elif marked.startswith(".hoodie"):
        storage.create(f"{folder}/{marked}.marker.CREATE", b"")
    else:
        return
    with pytest.raises(CorruptTableError, match="it names"):
        load_markers(storage, INSTANT)


def test_markers_of_odd_partitions(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    lines = "a\u2028b/f.parquet.marker.CREATE\na\x0bb/f.parquet.marker.CREATE\r\n".encode()
    storage.create(f".hoodie/.temp/{INSTANT}/MARKERS0", lines)
    assert load_markers(storage, INSTANT) == {"a\u2028b/f.parquet", "a\x0bb/f.parquet"}
    storage.create(f".hoodie/.temp/{INSTANT}/MARKERS1", b"\xff.marker.CREATE\n")
    with pytest.raises(CorruptTableError, match="MARKERS1"):
        load_markers(storage, INSTANT)


def test_a_forged_clean_deletes_nothing(tmp_path: Path) -> None:
    table = lakebed.create_table(
        tmp_path / "outer" / "t", schema=pa.schema({"id": pa.string(), "v": pa.int64()}), key="id"
    )
    for number in range(3):
        table.upsert([{"id": "a", "v": number}])
    victim = tmp_path / "victim.parquet"
    victim.write_bytes(b"mine")
    data = min((tmp_path / "outer" / "t").glob("*.parquet"))
    plan = CleanPlan(None, "", "KEEP_LATEST_COMMITS", {"": (data.name,), "../..": (victim.name,)})
    forged = tmp_path / "outer" / "t" / ".hoodie" / "timeline" / "20250101000000000.clean.requested"
    forged.write_bytes(encode_clean_plan(plan, table_url=str(tmp_path / "outer" / "t")))
    opened = lakebed.open_table(tmp_path / "outer" / "t")
    with pytest.raises(CorruptTableError, match=r"clean\.requested: it names '\.\./\.\.'"):
        opened.services.clean()
    assert victim.read_bytes() == b"mine"
    assert data.exists()
    assert opened.to_arrow().num_rows == 1
