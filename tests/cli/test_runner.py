"""The runner of table services: what it tells, and how it ends."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import lakebed
from lakebed.cli.runner import JsonLines, TextLines, stopped_by_signals
from lakebed.services.table_services import WAITING, Done

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
DONE = Done("compaction", "20261116093000000", milliseconds=7)
FAILED = Done("clean", problem="no answer\n  hint: try again", milliseconds=8)


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    lines = JsonLines()
    lines.phase("compaction")
    for done in (DONE, FAILED):
        lines.report(done)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(len(line.pop("time")) == len("2026-11-16T09:30:00Z") for line in told)
    assert told == [
        {
            "service": "compaction",
            "instant": "20261116093000000",
            "milliseconds": 7,
            "outcome": "done",
            "problem": None,
        },
        {
            "service": "clean",
            "instant": None,
            "milliseconds": 8,
            "outcome": "failed",
            "problem": "no answer\n  hint: try again",
        },
    ]


def test_a_pipe_gets_one_line_for_each_thing_done(capsys: pytest.CaptureFixture[str]) -> None:
    lines = TextLines()
    lines.phase("compaction")
    for done in (DONE, FAILED):
        lines.report(done)
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == ["compaction 20261116093000000 done (7 ms)", "clean no answer hint: try again (8 ms)"]


def test_a_pipe_hears_that_the_runner_lives(capsys: pytest.CaptureFixture[str]) -> None:
    """A line at the start, one for each action, and one for rounds that found nothing, every ten minutes."""
    now = [0.0]
    lines = TextLines(now=lambda: now[0])
    lines.start("s3://lake/trips", "60s", ["rollback", "clean"])
    for round_number in range(1, 26):
        now[0] = round_number * 60.0
        if round_number == 12:
            lines.report(DONE)
        lines.phase(WAITING)
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        "s3://lake/trips: every 60s: rollback, clean",
        "nothing to do in 10 rounds",
        "compaction 20261116093000000 done (7 ms)",
        "nothing to do in 10 rounds",
    ]


def test_a_runner_that_is_slower_than_that_tells_every_round(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = TextLines(now=lambda: now[0])
    for hour in (1, 2):
        now[0] = hour * 3600.0
        lines.phase(WAITING)
    told = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert told == ["nothing to do in 1 round", "nothing to do in 2 rounds"]


def test_the_command_in_a_pipe_says_what_it_runs_at_once(tmp_path: Path) -> None:
    lakebed.create_table(tmp_path, schema=SCHEMA, key="id", ordering="ts", table_type="mor")
    code = "from lakebed.cli import main; main()"
    command = [sys.executable, "-c", code, "services", "run", str(tmp_path), "--every", "1h"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, problems = process.communicate(timeout=120)
    services = "rollback, waiting plans, compaction, clean, archive, metadata table"
    assert line.partition(" ")[2] == f"{tmp_path}: every 1h: {services}\n"
    assert (process.returncode, problems) == (0, "")


def test_a_terminal_shows_the_step_under_way() -> None:
    screen = io.StringIO()
    with Console(file=screen, force_terminal=True, width=80).status("") as status:
        lines = TextLines(status)
        lines.phase("clean")
        assert status.status == "clean"
        lines.report(DONE)
    assert "compaction 20261116093000000 done (7 ms)" in screen.getvalue()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_requests_to_stop_for_as_long_as_it_runs(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopped_by_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(number)
        assert stop.is_set()
    assert signal.getsignal(number) is before


def test_a_runner_works_until_it_is_told_to_end(tmp_path: Path) -> None:
    table = lakebed.create_table(tmp_path, schema=SCHEMA, key="id", ordering="ts", table_type="mor")
    for ts in range(6):
        table.upsert(pa.table([["a"], [ts]], schema=SCHEMA))
    code = "from lakebed.cli import main; main()"
    command = [sys.executable, "-c", code, "services", "run", str(tmp_path), "--every", "1h", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest, problems = process.communicate(timeout=120)
    assert (line["service"], line["outcome"]) == ("compaction", "done")
    assert (process.returncode, problems) == (0, "")
    assert all(json.loads(later)["outcome"] == "done" for later in rest.splitlines())
    assert not table.timeline.pending()
    assert not any(file_slice.logs for file_slice in table.files())
