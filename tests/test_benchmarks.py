"""Benchmarks name functions by text: each is there. Walks see calls up the layers."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch):
    """Imports a benchmark by name."""
    monkeypatch.syspath_prepend(str(ROOT))
    yield lambda name: import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_phase_is_a_function(benchmark):
    phases = benchmark("phases")
    homes = [phases._resolve(name) for _, name in phases.PHASES]
    assert [name for home, name in homes if not callable(getattr(home, name, None))] == []


def test_calls_up_the_layers_are_turns(benchmark):
    walk, record = benchmark("walk"), benchmark("walk_record")
    layers = walk.read_layers(ROOT / "pyproject.toml")
    calls = {
        record.Call("lakebed.storage.cache", "lakebed.write.writer", "f", False),
        record.Call("lakebed.storage.cache", "lakebed.write.writer", "g", True),
        record.Call("lakebed.engine.engines", "lakebed.read.file_slice", "read_slice", False),
        record.Call("lakebed.model.commit", "lakebed.write.columnar", "rows", True),
        record.Call("lakebed.write.writer", "lakebed.storage.cache", "h", False),
        record.Call("lakebed.write.files.log", "lakebed.write.writer", "k", False),
        record.Call(None, "lakebed.api", "m", False),
    }
    turns = {(turn.caller, turn.module): (turn.functions, turn.kind) for turn in walk.find_turns(calls, layers)}
    assert turns == {
        ("lakebed.storage.cache", "lakebed.write.writer"): (("f", "g"), "callback"),
        ("lakebed.engine.engines", "lakebed.read.file_slice"): (("read_slice",), "task"),
        ("lakebed.model.commit", "lakebed.write.columnar"): (("rows",), "generator"),
    }


def test_work_of_a_thread_is_called_by_who_submitted_it(benchmark, monkeypatch: pytest.MonkeyPatch):
    record = benchmark("walk_record")
    monkeypatch.setattr(ThreadPoolExecutor, "submit", ThreadPoolExecutor.submit)  # Restored in the end, as `start` is.
    monkeypatch.setattr(record.threading.Thread, "start", record.threading.Thread.start)
    low: dict[str, object] = {"__name__": "lakebed.low"}
    high: dict[str, object] = {"__name__": "lakebed.high"}
    exec("def run(pool, work): return pool.submit(work).result()", low)
    exec("def work(): return 1", high)
    recorder, before = record.Recorder(), (sys.getprofile(), record.threading.getprofile())
    try:
        recorder.install()
        recorder.is_on = True
        with ThreadPoolExecutor(1) as pool:
            low["run"](pool, high["work"])
    finally:
        sys.setprofile(before[0])
        record.threading.setprofile(before[1])
    assert {(call.caller, call.module) for call in recorder.calls} == {
        (None, "lakebed.low"),
        ("lakebed.low", "lakebed.high"),
    }
