from __future__ import annotations

import io
import json
import zipfile
from importlib.resources import files

import pytest

from conftest import DATA
from lakebed.cli import demo
from lakebed.cli.demo import Chapter, DemoCall, DemoOutcome, collect, play, tell
from lakebed.cli.output import PipeOutput
from lakebed.errors import InvalidInputError
from lakebed.reports.report import plain
from lakebed.reports.table import RowsReport


@pytest.fixture(scope="module")
def played() -> list[demo.Event]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "find_spec", lambda name: None)
        return list(play())


def test_each_table_is_read_in_every_way(played: list[demo.Event]) -> None:
    chapters = collect(played).chapters
    assert [chapter.title for chapter in chapters] == [
        "lakebed demo",
        "A table of our own",
        "Table cow_part_upsert",
        "Table mor_part_compacted",
        "Table mor_nonpart_all_indexes",
        "Table mor_part_event_time",
        "Spark",
    ]
    for chapter in chapters[2:6]:
        calls = [step.call.partition("(")[0] for step in chapter.steps]
        assert calls[1:7] == [
            "table.timeline",
            *["table.to_arrow"] * 2,
            "table.changes",
            "table.to_arrow",
            "table.explain",
        ]


def test_a_table_is_made_and_written_to(played: list[demo.Event]) -> None:
    steps = {step.what: step for step in collect(played).chapters[1].steps}
    assert "6 inserted, 0 updated" in steps["Load six trips."].remark
    assert "2 deleted" in steps["Delete two trips."].remark
    rows = steps["What is left."].result
    assert isinstance(rows, RowsReport)
    assert rows.rows.select(["trip", "fare"]).to_pylist() == [
        {"trip": "t2", "fare": 99.0},
        {"trip": "t3", "fare": 13.0},
        {"trip": "t4", "fare": 14.0},
        {"trip": "t5", "fare": 15.0},
        {"trip": "t6", "fare": 16.0},
    ]
    before = steps["The table as it was after the load."].result
    assert isinstance(before, RowsReport)
    assert before.rows.num_rows == 6


def test_the_calls_that_it_prints_give_what_it_shows(played: list[demo.Event]) -> None:
    shown = {step.call: step.result for chapter in collect(played).chapters for step in chapter.steps}
    rows = [report for call, report in shown.items() if call.startswith("table.to_arrow(columns, where=")]
    assert len(rows) == 4
    assert all(isinstance(report, RowsReport) and report.rows.num_rows for report in rows)


def test_without_pyspark_it_says_how_to_get_it(played: list[demo.Event]) -> None:
    assert played[-1] == DemoCall("PySpark is not installed. To see this part:", "pip install 'lakebed[spark]'")


def test_without_java_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java(name: str) -> None:
        raise InvalidInputError("there is no Java", hint="install one")

    monkeypatch.setattr(demo, "local_session", no_java)
    *_, outcome = demo._play_spark([])
    assert isinstance(outcome, DemoOutcome)
    assert outcome.remark == "Spark does not start here: there is no Java; install one"


def test_text_and_json(played: list[demo.Event], capsys: pytest.CaptureFixture[str]) -> None:
    remarks = io.StringIO()
    tell(played, PipeOutput(remarks))
    text = capsys.readouterr().out
    assert ">>> table.lookup(['k009'], columns)\nid    ts  name  amount  region\nk009  50  x4      14.0  eu\n" in text
    assert remarks.getvalue().count("took ") == sum(isinstance(event, DemoOutcome) for event in played)
    document = json.loads(json.dumps(plain(collect(played))))
    assert list(document["chapters"][1]["steps"][0]) == ["what", "call", "seconds", "result", "remark"]


def test_chapters_have_their_own_steps() -> None:
    events = [Chapter("a", ""), DemoCall("w", "c"), DemoOutcome(1.0), Chapter("b", ""), DemoCall("no", "outcome")]
    assert [len(chapter.steps) for chapter in collect(events).chapters] == [1, 0]


def test_its_tables_are_those_of_the_tests() -> None:
    packed = [path for path in (files("lakebed.cli") / "demo_tables").iterdir() if path.name.endswith(".zip")]
    assert sorted(path.name.removesuffix(".zip") for path in packed) == sorted(s.archive for s in demo._SAMPLES)
    for path in packed:
        assert path.read_bytes() == (DATA / path.name).read_bytes()
        assert zipfile.is_zipfile(io.BytesIO(path.read_bytes()))
