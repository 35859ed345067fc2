from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import lakebed
from lakebed.cli.app import app

COMPACTED = "hudi120_mor_part_compacted"
EVERY_INDEX = "hudi120_mor_nonpart_all_indexes"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def run_json(*args: object) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_version_and_help() -> None:
    assert run("--version").stdout == f"lakebed {lakebed.__version__}\n"
    shown = run("--help")
    assert shown.exit_code == 0
    for command in ("timeline", "files", "schema", "config", "indexes", "read", "lookup", "explain", "doctor", "demo"):
        assert f"\n  {command} " in shown.stdout


INSTANT_FIELDS = ["requested_at", "requested_time", "action", "state", "completed_at", "completed_time", "duration_s"]
INSTANT_FIELDS += ["written", "problem"]
COMMIT_FIELDS = ["operation", "inserted", "updated", "deleted", "files", "bytes", "replaced_file_groups", "metrics"]


@pytest.mark.parametrize(
    ("command", "fields", "entries", "entry_fields"),
    [
        (
            ["timeline"],
            ["table", "timezone", "instants"],
            "instants",
            INSTANT_FIELDS,
        ),
        (
            ["files"],
            ["table", "as_of", "slices"],
            "slices",
            ["partition", "file_id", "base_instant", "base_file", "base_bytes", "log_files", "log_bytes"],
        ),
        (["schema"], ["table", "columns"], "columns", ["name", "type", "nullable"]),
        (
            ["indexes"],
            ["table", "unusable", "indexes"],
            "indexes",
            ["name", "kind", "columns", "state", "shards", "bytes"],
        ),
        (["read", "--columns", "id,ts"], ["table", "rows", "more"], "rows", ["id", "ts"]),
        (
            ["explain", "--where", "id = 'k001'"],
            ["table", "as_of", "files_from", "where", "steps", "slices", "slices_merged", "bytes", "requests"],
            "steps",
            ["index", "used", "reason", "slices_before", "slices_after"],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and len(value[0]) < 9 else "",
)
def test_json_fields_are_a_promise(
    unpack, command: list[str], fields: list[str], entries: str, entry_fields: list[str]
) -> None:
    document = run_json(command[0], unpack(COMPACTED).path, *command[1:])
    assert list(document) == fields
    assert list(document[entries][0]) == entry_fields


def test_json_of_config_and_commits(unpack) -> None:
    config = run_json("config", unpack(COMPACTED).path)
    assert config["key_fields"] == ["id"]
    assert config["properties"]["hoodie.table.name"] == "mor_part_compacted"
    written = run_json("timeline", unpack(COMPACTED).path)["instants"][0]["written"]
    assert list(written) == COMMIT_FIELDS


def test_rows_read_back_as_apache_hudi_reads_them(unpack) -> None:
    real = unpack("hudi120_cow_part_upsert")
    document = run_json("read", real.path, "--limit", 100)
    key = "_hoodie_record_key"
    wanted = {row[key]: {name: row[name] for name in ("id", "ts", "name", "amount", "region")} for row in real.rows}
    found = {
        row[key]: {name: row[name] for name in ("id", "ts", "name", "amount", "region")} for row in document["rows"]
    }
    assert found == wanted
    assert document["more"] is False


def test_read_takes_filters_columns_times_and_modes(unpack) -> None:
    path = unpack(COMPACTED).path
    arguments = ("--columns", "id, region", "--where", "region = 'us'", "--as-of", "20261116000129585", "--limit", 2)
    document = run_json("read", path, *arguments, "--mode", "read_optimized")
    assert document["rows"] == [{"id": "k000", "region": "us"}, {"id": "k002", "region": "us"}]
    assert document["more"] is True


def test_lookup(unpack) -> None:
    document = run_json("lookup", unpack(EVERY_INDEX).path, "k001", "nope", "--columns", "id,name")
    assert document == {"table": "mor_nonpart_all_indexes", "rows": [{"id": "k001", "name": "u1"}], "missing": ["nope"]}


def test_options_reach_the_table(unpack) -> None:
    option = ("--option", "hoodie.metadata.enable=false", "--option", "timeout=5s")
    document = run_json("explain", unpack(COMPACTED).path, *option)
    assert document["files_from"].startswith("a listing of folders")


def test_text_goes_to_a_pipe_whole(unpack) -> None:
    result = run("files", unpack(COMPACTED).path)
    assert result.exit_code == 0
    assert "1a0e4382-bdd7-4233-8f68-827bd8006f0d-0  20261116000145386" in result.stdout
    assert result.stderr == "2 file slices, 852.8 KiB\n"


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["files"],
        ["lookup", "{path}"],
        ["read", "{path}", "--limit", "0"],
        ["read", "{path}", "--mode", "fast"],
        ["read", "{path}", "--columns", "a,,b"],
        ["timeline", "{path}", "--option", "no-value"],
        ["timeline", "{path}", "--option", "=x"],
        ["read", "{path}", "--limit", "many"],
        ["explain", "{path}", "--mode", ""],
        ["cluster", "{path}", "--layout", "z"],
        ["cluster", "{path}", "--layout", ""],
        ["cluster", "{path}", "--order-by", "a,,b"],
        ["services", "schedule", "{path}", "cleaning"],
        ["services", "run", "{path}", "--every", "soon"],
        ["services", "run", "{path}", "--every", "nan"],
        ["services", "run", "{path}", "--every", "inf"],
        ["services", "run", "{path}", "--every", "-5m"],
        ["services", "run", "{path}", "--every", ""],
        ["services", "run", "{path}", "--spark", "bogus"],
        ["services", "run", "{path}", "--spark", "local[x]"],
        ["index", "create", "{path}", "record_index", "--kind", "recrod"],
        ["index", "create", "{path}", "record_index", "--kind", ""],
        ["index", "create", "{path}", "record_index", "--shards", "0"],
        ["index", "create", "{path}", "record_index", "--shards", "10001"],
        ["index", "create", "{path}", "record_index", "--shards", "1.5"],
        ["index", "create", "{path}", "record_index", "--on-duplicate", "first"],
        ["index", "create", "{path}", "column_stats", "--on", ""],
        ["index", "reshard", "{path}", "record_index", "--shards", "-1"],
        ["index", "validate", "{path}", "record_index", "--examples", "-1"],
        ["savepoint", "{path}", "--delete"],
        ["compact", "{path}", "--option", "hoodie.parquet.compression.codec=bogus"],
        ["clean", "{path}", "--option", "hoodie.clean.commits.retained=few"],
        ["doctor", "{path}", "--option", "hoodie.metadata.enable=perhaps"],
        ["restore", "{path}"],
    ],
)
def test_wrong_use_ends_with_2(unpack, args: list[str]) -> None:
    result = run(*(arg.format(path=unpack(COMPACTED).path) for arg in args))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: " in result.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["cluster", "--layout", "z"], "'linear', 'z-order', 'zorder', 'hilbert'"),
        (["read", "--mode", "fast"], "'snapshot', 'read_optimized'"),
        (["services", "schedule", "cleaning"], "'compaction', 'logcompaction', 'clustering', 'clean'"),
        (["index", "create", "x", "--kind", "z"], "record, record_partitioned, column_stats, partition_stats, bloom"),
        (["index", "reshard", "record_index", "--shards", "0"], "greater than or equal to 1"),
        (["services", "run", "--every", "soon"], "60s, 5m or 1h"),
        (["clean", "--option", "hoodie.clean.policy=ALL"], "KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS or"),
        (["compact", "--option", "hoodie.parquet.compression.codec=x"], "uncompressed, snappy, gzip, zstd, lz4"),
    ],
)
def test_wrong_use_is_answered_with_what_is_right(unpack, args: list[str], words: str) -> None:
    commands = 2 if args[0] in ("services", "index") else 1
    result = run(*args[:commands], unpack(COMPACTED).path, *args[commands:])
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "args",
    [
        ["read", "--limit", "9" * 30],
        ["read", "--as-of", ""],
        ["read", "--as-of", "99999999999999999"],
        ["read", "--where", ""],
        ["read", "--where", "id = "],
        ["explain", "--where", "(" * 500],
        ["lookup", ""],
        ["rollback", "nonsense"],
        ["savepoint", "nonsense"],
        ["savepoint", "nonsense", "--delete"],
        ["restore", "nonsense"],
        ["services", "execute", "nonsense"],
        ["services", "cancel", "nonsense"],
        ["index", "create", "nonsense"],
        ["index", "create", "record_index", "--kind", "bloom"],
        ["index", "drop", "nonsense"],
        ["index", "run", "nonsense"],
        ["index", "validate", "nonsense"],
        ["index", "reshard", "nonsense", "--shards", "2"],
        ["cluster", "--order-by", "nonsense"],
        ["timeline", "--option", "hoodie.datasource.query.type=incremental"],
    ],
)
def test_nothing_that_is_typed_ends_in_a_traceback(unpack, tmp_path: Path, args: list[str]) -> None:
    commands = 2 if args[0] in ("services", "index") else 1
    path = shutil.copytree(unpack(COMPACTED).path, tmp_path / "table")
    result = run(*args[:commands], path, *args[commands:])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert result.exit_code in (0, 1, 2)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["timeline", "{path}/nowhere"], "is not a Hudi table", "check the path"),
        (["read", "{path}", "--columns", "amuont"], "has no column 'amuont'", "did you mean 'amount'?"),
        (["read", "{path}", "--as-of", "yesterday"], "'yesterday' is not a point in time", "lakebed timeline"),
        (["read", "{path}", "--where", "nope = 1"], "nope", ""),
        (["files", "{path}", "--as-of", "1999-01-01"], "is before the first commit", "the earliest instant"),
        (["lookup", "{path}", "k1", "--option", "hoodie.metadata.enable=false"], "no record index", "filter a scan"),
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_failures_end_with_1_a_message_and_a_hint(
    unpack, args: list[str], message: str, hint: str, as_json: list[str]
) -> None:
    result = run(*(arg.format(path=unpack(COMPACTED).path) for arg in args), *as_json)
    assert result.exit_code == 1
    assert result.stdout == ""
    error, _, advice = result.stderr.partition("\nhint: ")
    assert error.startswith("error: ")
    assert message in error
    assert hint in advice
    assert "Traceback" not in result.stderr


def test_a_broken_table_is_a_message(tmp_path: Path) -> None:
    (tmp_path / ".hoodie").mkdir()
    (tmp_path / ".hoodie/hoodie.properties").write_text("hoodie.table.name=\x1b[2J\nhoodie.table.version=nine\n")
    result = run("config", tmp_path)
    assert result.exit_code == 1
    assert "\x1b" not in result.stderr


def test_an_interrupt_is_quiet(unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lakebed.reports.timeline.timeline_report", interrupt)
    result = run("timeline", unpack(COMPACTED).path)
    assert (result.exit_code, result.output) == (130, "")


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(unpack) -> None:
    result = run("schema", unpack(COMPACTED).path, "--option", "hoodie.metadata.enabled=false")
    assert result.exit_code == 0
    assert result.stderr == (
        "warning: unknown option hoodie.metadata.enabled has no effect; "
        "the nearest known one is hoodie.metadata.enable\n"
    )


def test_the_timeline_shows_what_writes_say_of_the_record_index(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b", "c"], "ts": [1, 1, 1]})
    table = lakebed.create_table(tmp_path / "t", schema=rows.schema, key="id", ordering="ts", indexes=["record"])
    table.bulk_insert(rows)
    table.upsert(pa.table({"id": ["a", "x"], "ts": [2, 2]}))
    loaded, upserted = run("timeline", tmp_path / "t").stdout.splitlines()[1:3]
    assert "keys" not in loaded
    assert re.search(r" 1 of 2 keys, [12] shards?  plan [\d.]+ ms, write [\d.]+ ms", upserted)
