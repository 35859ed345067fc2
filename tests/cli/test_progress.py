"""Progress bars: one on a terminal, none in a pipe."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import Progress

from lakebed.cli.index import ProgressBar, show_progress
from lakebed.observe import SILENT


def bars() -> Progress:
    return Progress(console=Console(file=io.StringIO(), force_terminal=True), auto_refresh=False)


def test_one_bar_is_named_after_the_phase() -> None:
    shown = bars()
    bar = ProgressBar(shown)
    bar.phase("building record_index")
    assert [(task.description, task.total) for task in shown.tasks] == [("building record_index", None)]
    bar.progress("record_index", 3, 10)
    bar.progress("record_index", 4, 12)
    assert [(task.completed, task.total) for task in shown.tasks] == [(4, 12)]
    bar.phase("validating record_index")
    assert [(task.description, task.completed) for task in shown.tasks] == [("validating record_index", 0)]


def test_without_a_phase_it_is_named_after_what_is_counted() -> None:
    shown = bars()
    ProgressBar(shown).progress("files", 1, 2)
    assert [(task.description, task.completed, task.total) for task in shown.tasks] == [("files", 1, 2)]


def test_a_terminal_has_a_bar_and_a_pipe_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with show_progress() as observer:
        assert observer is SILENT
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    with show_progress() as observer:
        assert isinstance(observer, ProgressBar)
        observer.phase("building bloom")
    assert "building bloom" in screen.getvalue()
