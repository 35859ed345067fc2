"""index.json lost or broken: nobody uses an index by guess, the doctor says it, and brings the definitions back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakebed
from lakebed.cli.app import app
from lakebed.services.doctor.doctor import open_doctor_at
from lakebed.services.doctor.finding import Finding, FindingKind, Remedy
from tables import TRIPS as SCHEMA

HINT = "lakebed doctor .* --repair"
INDEX_JSON = ".hoodie/.index_defs/index.json"


def lose(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:60])


def scribble(file: Path) -> None:
    file.write_bytes(b"not JSON")


def not_utf8(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")


def a_list(file: Path) -> None:
    file.write_bytes(b"[]")


def no_definitions(file: Path) -> None:
    file.write_bytes(b"{}")


def wrong_types(file: Path) -> None:
    content = json.loads(file.read_bytes())
    for entry in content["indexDefinitions"].values():
        entry["sourceFields"] = 7
    file.write_text(json.dumps(content))


DAMAGES: tuple[Callable[[Path], None], ...] = (
    lose,
    empty,
    cut_short,
    scribble,
    not_utf8,
    a_list,
    no_definitions,
    wrong_types,
)


def named(damage: Any) -> str:
    return str(damage.__name__)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("originals")
    kinds: dict[str, dict[str, Any]] = {
        "record": {"indexes": ["record", "column_stats", "bloom"]},
        "record_partitioned": {"indexes": ["record_partitioned", "column_stats"]},
        "ordered": {
            "indexes": ["record", "column_stats"],
            "options": {"lakebed.record.index.ordering": "current"},
        },
    }
    for name, kind in kinds.items():
        keys: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "table_type": "mor"}
        table = lakebed.create_table(root / name, schema=SCHEMA, **keys, **kind)
        for ts in range(3):
            table.upsert(rows(ts))
    return {name: root / name for name in kinds}


@pytest.fixture(params=["record", "record_partitioned", "ordered"])
def path(originals: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(shutil.copytree(originals[request.param], tmp_path / "t"))


@pytest.fixture
def partitioned(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["record_partitioned"], tmp_path / "t"))


def rows(ts: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + 30)
    ids, cities = [f"k{n}" for n in numbers], [("oslo", "lima", "rome")[n % 3] for n in numbers]
    return pa.table([ids, cities, [ts] * 30, [float(n) for n in numbers]], schema=SCHEMA)


def definitions(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / INDEX_JSON).read_bytes())["indexDefinitions"])


def found(path: Path) -> list[Finding]:
    return [finding for finding in open_doctor_at(path, {}).examine() if finding.place == INDEX_JSON]


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.mark.parametrize("damage", DAMAGES, ids=named)
def test_reads_and_writes_say_what_to_do(partitioned: Path, damage: Any) -> None:
    """By a guess a key is looked for in the shards of all partitions, and not found in those of its own."""
    damage(partitioned / INDEX_JSON)
    table = lakebed.open_table(partitioned)
    for call in (
        lambda: table.to_arrow(where="id = 'k4'"),
        lambda: table.lookup(["k4"]),
        lambda: table.upsert(rows(9)),
        lambda: table.delete(["k4"]),
        lambda: table.indexes.list(),
        lambda: table.indexes.create("bloom"),
        lambda: table.services.compact(),
    ):
        with pytest.raises(lakebed.CorruptTableError, match=HINT):
            call()
    assert not table.timeline.pending()
    without = lakebed.open_table(partitioned, options={"hoodie.metadata.enable": "false"})
    assert without.to_arrow(where="id = 'k4'").num_rows == 1


@pytest.mark.parametrize("damage", [lose, cut_short, no_definitions, wrong_types], ids=named)
def test_the_doctor_says_it_and_brings_the_definitions_back(path: Path, damage: Any) -> None:
    before, whole = definitions(path), lakebed.open_table(path).to_arrow()
    damage(path / INDEX_JSON)
    (finding,) = found(path)
    assert (finding.kind, finding.remedy) == (FindingKind.INDEX, Remedy.RESTORE_DEFINITIONS)
    cured = open_doctor_at(path, {}).cure()
    assert [each.outcome for each in cured] == ["repaired"]
    assert definitions(path) == before
    assert open_doctor_at(path, {}).examine() == ()
    table = lakebed.open_table(path)
    assert table.to_arrow().equals(whole)
    table.upsert(rows(9))
    assert table.to_arrow(where="id = 'k4'")["ts"].to_pylist() == [9]
    assert all(table.indexes.validate(info.name).is_sound for info in table.indexes.list())


@pytest.mark.parametrize("damage", [lose, wrong_types], ids=named)
def test_an_index_is_validated_and_the_loss_is_said(path: Path, damage: Any) -> None:
    damage(path / INDEX_JSON)
    for name in ("record_index", "column_stats", "files"):
        check = lakebed.open_table(path).indexes.validate(name)
        assert (check.missing, check.extra, check.different, check.repeated) == (0, 0, 0, 0)
        assert check.problem is not None
        assert not check.is_sound
    shown = run("index", "validate", path, "record_index")
    assert shown.exit_code == 1
    assert "doctor" in shown.output


def test_one_entry_that_is_lost_comes_back_beside_the_others(path: Path) -> None:
    before = definitions(path)
    content = {"indexDefinitions": {name: entry for name, entry in before.items() if name != "column_stats"}}
    (path / INDEX_JSON).write_text(json.dumps(content))
    with pytest.raises(lakebed.CorruptTableError, match=HINT):
        lakebed.open_table(path).upsert(rows(9))
    open_doctor_at(path, {}).cure()
    assert definitions(path) == before


def test_shards_of_partitions_are_not_taken_for_those_of_the_table(partitioned: Path) -> None:
    before = definitions(partitioned)
    content = {"indexDefinitions": {name: entry for name, entry in before.items() if name != "record_index"}}
    (partitioned / INDEX_JSON).write_text(json.dumps(content))
    with pytest.raises(lakebed.CorruptTableError, match=HINT):
        lakebed.open_table(partitioned).to_arrow(where="id = 'k4'")
    open_doctor_at(partitioned, {}).cure()
    assert definitions(partitioned) == before


def test_a_table_without_rows_gets_what_new_tables_have(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts"}
    lakebed.create_table(tmp_path / "t", schema=SCHEMA, **keys, indexes=["record_partitioned", "column_stats"])
    before = definitions(tmp_path / "t")
    lose(tmp_path / "t" / INDEX_JSON)
    open_doctor_at(tmp_path / "t", {}).cure()
    assert definitions(tmp_path / "t") == before


def test_a_windowed_index_is_dropped_for_nothing_else_knows_its_window(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts"}
    table = lakebed.create_table(tmp_path / "t", schema=SCHEMA, **keys)
    table.upsert(rows(0))
    table.indexes.create("record_index", kind="record_windowed", window=2)
    lose(tmp_path / "t" / INDEX_JSON)
    with pytest.raises(lakebed.CorruptTableError, match=HINT):
        lakebed.open_table(tmp_path / "t").upsert(rows(1))
    (finding,) = found(tmp_path / "t")
    assert "window" in finding.repair
    open_doctor_at(tmp_path / "t", {}).cure()
    again = lakebed.open_table(tmp_path / "t")
    assert "record_index" not in [info.name for info in again.indexes.list()]
    again.upsert(rows(2))
    assert again.to_arrow()["ts"].to_pylist() == [2] * 30
    assert open_doctor_at(tmp_path / "t", {}).examine() == ()


def test_what_an_index_is_on_may_be_known_to_nobody(unpack: Any, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpack("hudi120_cow_part_rli_fg4").path, tmp_path / "t"))
    before = definitions(path)
    lose(path / INDEX_JSON)
    (finding,) = found(path)
    assert "secondary_index_idx_name" in finding.repair
    open_doctor_at(path, {}).cure()
    after = definitions(path)
    assert after == {name: entry for name, entry in before.items() if name != "secondary_index_idx_name"}
    left = open_doctor_at(path, {}).examine()
    assert [(each.place, each.remedy) for each in left] == [("secondary_index_idx_name", Remedy.BY_HAND)]


def test_an_entry_that_can_be_read_is_kept(unpack: Any, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpack("hudi120_cow_part_rli_fg4").path, tmp_path / "t"))
    before = definitions(path)
    broken = {**before, "column_stats": {**before["column_stats"], "sourceFields": "id"}}
    (path / INDEX_JSON).write_text(json.dumps({"indexDefinitions": broken}))
    open_doctor_at(path, {}).cure()
    assert definitions(path) == before


@pytest.mark.parametrize(
    "name",
    [
        "hudi120_cow_part_partitioned_rli",
        "hudi120_mor_part_compacted",
        "hudi111_cow_multipart_partitioned_rli",
        "hudi111_cow_nonpart_alltypes",
        "hudi111_cow_nonpart_schema_evolution",
    ],
)
def test_definitions_of_apache_hudi_come_back_as_it_wrote_them(unpack: Any, tmp_path: Path, name: str) -> None:
    path = Path(shutil.copytree(unpack(name).path, tmp_path / "t"))
    before = definitions(path)
    lose(path / INDEX_JSON)
    open_doctor_at(path, {}).cure()
    assert definitions(path) == before


def test_the_command_tells_it(partitioned: Path) -> None:
    lose(partitioned / INDEX_JSON)
    shown = run("read", partitioned)
    assert (shown.exit_code, "doctor" in shown.output) == (1, True)
    assert run("doctor", partitioned).exit_code == 1
    assert run("doctor", partitioned, "--repair").exit_code == 0
    assert run("read", partitioned).exit_code == 0
