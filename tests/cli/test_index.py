"""`lakebed index`: what each command shows, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakebed.cli.app import app
from services.worlds import made, rows


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "trips"
    made(path)
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "trips")
    return tmp_path / "trips"


def test_an_index_from_its_creation_to_its_end(path: Path) -> None:
    created = run("index", "create", path, "record_index", "--kind", "record", "--shards", "3", "--json")
    assert created.exit_code == 0, created.stderr
    (record,) = [index for index in json.loads(created.stdout)["indexes"] if index["name"] == "record_index"]
    assert (record["state"], record["shards"]) == ("ready", 3)
    checked = run("index", "validate", path, "record_index", "--json")
    assert checked.exit_code == 0
    assert json.loads(checked.stdout)["is_sound"] is True
    assert json.loads(checked.stdout)["check"]["checked"] == 55
    resharded = run("index", "reshard", path, "record_index", "--shards", "5")
    assert resharded.exit_code == 0
    assert "record_index (global)" in resharded.stdout
    assert run("index", "list", path, "--json").stdout == run("indexes", path, "--json").stdout
    assert run("index", "drop", path, "record_index").exit_code == 0
    assert "record_index" not in run("index", "list", path).stdout


def test_an_index_that_one_process_plans_and_another_builds(path: Path) -> None:
    planned = run("index", "create", path, "record_index", "--kind", "record", "--no-wait", "--json")
    assert planned.exit_code == 0, planned.stderr
    assert {i["name"]: i["state"] for i in json.loads(planned.stdout)["indexes"]}["record_index"] == "scheduled"
    from lakebed.api import open_table

    open_table(path).upsert(rows(70, 2))
    built = run("index", "run", path, "record_index", "--json")
    assert built.exit_code == 0, built.stderr
    assert {i["name"]: i["state"] for i in json.loads(built.stdout)["indexes"]}["record_index"] == "ready"
    assert run("index", "validate", path, "record_index").exit_code == 0


def test_an_index_that_differs_ends_with_exit_code_1(path: Path) -> None:
    run("index", "create", path, "record_index", "--shards", "1")
    folder = path / ".hoodie/metadata/record_index"
    before = set(folder.iterdir())
    from lakebed.api import open_table

    open_table(path).upsert(rows(70, 2))
    for log in set(folder.iterdir()) - before:
        log.unlink()
    shown = run("index", "validate", path, "record_index", "--examples", "1")
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[0].split() == ["difference", "key", "the", "index", "says", "it", "is"]
    assert "missing" in shown.stdout
    assert "record_index and the table differ: 2 missing; 57 keys checked" in shown.stderr
    document = json.loads(run("index", "validate", path, "record_index", "--json").stdout)
    assert {example["key"] for example in document["check"]["examples"]} == {"k070", "k071"}
    assert run("index", "create", path, "record_index", "--rebuild").exit_code == 0
    assert run("index", "validate", path, "record_index").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create", "record_index", "--shards", "0"), 2, "greater than or equal to 1"),
        (("create", "column_stats"), 1, "already"),
        (("create", "by_city", "--kind", "secondary", "--on", "city"), 1, "Apache Hudi"),
        (("drop", "record_index"), 1, "no index"),
        (("reshard", "record_index", "--shards", "2"), 1, "no record index"),
        (("run", "record_index"), 1, "no build of record_index is planned"),
        (("create", "files", "--no-wait", "--rebuild"), 1, "built at once"),
        (("reshard", "record_index"), 2, "--shards"),
        (("validate", "bloom"), 1, "bloom_filters"),
        (("create", "bloom", "--on-duplicate", "never"), 2, "never"),
    ],
)
def test_what_cannot_be_is_told(path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    verb, *rest = arguments
    ended = run("index", verb, path, *rest)
    assert ended.exit_code == code
    assert message in ended.stderr
