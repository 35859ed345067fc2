from __future__ import annotations

import io

import pyarrow as pa
import pytest
from rich.console import Console

from lakebed.api import open_table
from lakebed.cli.output import PipeOutput
from lakebed.cli.terminal import TerminalOutput
from lakebed.errors import InvalidInputError
from lakebed.reports.report import Report
from lakebed.reports.services import ServiceEntry, ServicesReport
from lakebed.reports.table import LookupReport, RowsReport, config_report, files_report, indexes_report, schema_report
from lakebed.reports.timeline import timeline_report

COMPACTED = "hudi120_mor_part_compacted"


def on_terminal(report: Report, width: int, *, colour: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    TerminalOutput(console).show(report)
    return console.file.getvalue()  # type: ignore[attr-defined]


def in_pipe(report: Report, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    remarks = io.StringIO()
    PipeOutput(remarks).show(report)
    return capsys.readouterr().out, remarks.getvalue()


@pytest.fixture
def reports(unpack) -> list[Report]:
    table = open_table(unpack(COMPACTED).path)
    makers = (timeline_report, files_report, schema_report, config_report, indexes_report)
    rows = RowsReport("t", table.to_arrow(), more=True)
    return [*(make(table) for make in makers), rows, table.explain(where="id = 'k001'")]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_everything_fits_the_terminal(reports: list[Report], width: int) -> None:
    for report in reports:
        assert all(len(line) <= width for line in on_terminal(report, width).splitlines())


def test_instants_and_states_stay_whole_on_a_narrow_terminal(unpack) -> None:
    report = timeline_report(open_table(unpack(COMPACTED).path))
    assert on_terminal(report, 80).splitlines()[:3] == [
        "requested          action       state      operation  inserted  updated  deleted",
        "20261116000129585  deltacommit  completed  insert            6        0        0",
        "20261116000136151  deltacommit  completed  upsert            0        3        0",
    ]
    assert "no room for requested at, completed, completed at, took, files, size" in on_terminal(report, 80)
    assert "no room" not in on_terminal(report, 200)


def test_colours_are_for_terminals(unpack, capsys: pytest.CaptureFixture[str]) -> None:
    report = timeline_report(open_table(unpack(COMPACTED).path))
    assert "\x1b[32mcompleted\x1b[0m" in on_terminal(report, 80, colour=True)
    assert "\x1b" not in "".join(in_pipe(report, capsys))


def test_a_pipe_gets_whole_rows_and_remarks_apart(reports: list[Report], capsys: pytest.CaptureFixture[str]) -> None:
    timeline, remarks = in_pipe(reports[0], capsys)
    header, first, *others = timeline.splitlines()
    assert header.split("  ")[0] == "requested"
    assert first.split()[:2] == ["20261116000129585", "2026-11-16"]
    assert len(others) == 6
    assert remarks == "7 instants, 1 pending; times are in the writers' local time\n"
    assert in_pipe(reports[5], capsys)[1] == "the first 5 rows; --limit shows more\n"


def test_cells_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table(
        {
            "text": ["a\nb", None],
            "bytes": [b"\x01\xff", b""],
            "list": [[1, None], []],
            "at": pa.array([0, 1_500_000], pa.timestamp("us")),
            "flag": [True, False],
            "real": [0.1, float("nan")],
        }
    )
    out, _ = in_pipe(RowsReport("t", rows), capsys)
    assert out.splitlines() == [
        "text  bytes   list       at                          flag   real",
        "a\\nb  0x01ff  [1, null]  1970-01-01 00:00:00         true    0.1",
        "null  0x      []         1970-01-01 00:00:01.500000  false   nan",
    ]


def test_keys_that_are_missing_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    report = LookupReport("t", pa.table({"id": pa.array([], pa.string())}), ("a", "b\x1b"))
    assert in_pipe(report, capsys) == ("", "0 rows; not in the table: a, b\\x1b\n")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_went_wrong_with_a_service_is_told_whole(width: int) -> None:
    error = InvalidInputError("the timeline cannot keep so few", hint="hoodie.keep.max.commits must be greater")
    shown = on_terminal(ServicesReport("t", (ServiceEntry("archive", None, str(error)),)), width)
    assert "…" not in shown
    assert "\\n" not in shown
    words = {word for line in shown.splitlines() for word in line.split()}
    assert {*str(error).split()} <= words
