"""Observers and the meter that tells them."""

from __future__ import annotations

import logging

import pytest

from lakebed.observe import SILENT, Logged, Meter, Observer
from observers import Recorded


def test_a_meter_tells_of_every_step_and_never_of_more_than_all() -> None:
    seen = Recorded()
    meter = Meter("record_index", 2, seen)
    for _ in range(3):
        meter.step()
    assert seen.progressed == [("record_index", 1, 2), ("record_index", 2, 2), ("record_index", 3, 3)]


def test_a_log_has_a_line_for_each_phase_and_step(caplog: pytest.LogCaptureFixture) -> None:
    observer: Observer = Logged(logging.getLogger("lakebed.tests"))
    with caplog.at_level(logging.INFO, "lakebed.tests"):
        observer.phase("clean")
    with caplog.at_level(logging.DEBUG, "lakebed.tests"):
        observer.phase("building record_index")
        observer.progress("record_index", 3, 10)
    assert caplog.messages == ["building record_index", "record_index: 3 of 10"]


def test_nobody_is_told() -> None:
    observer: Observer = SILENT
    observer.phase("clean")
    Meter("files", 1, observer).step()
