"""Benchmarks name functions by text: each is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def phases(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import phases

    yield phases
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_phase_is_a_function(phases):
    homes = [phases._resolve(name) for _, name in phases.PHASES]
    assert [name for home, name in homes if not callable(getattr(home, name, None))] == []
