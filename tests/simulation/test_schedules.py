"""Thousands of schedules: every invariant after every effect, and a legal history at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from .codecs import fast_codecs
from .faults import Fault
from .schedules import Setup, draw_setup, run_schedule, run_seeds

BLOCKS, PER_BLOCK = 10, 500
ROOT = Path(__file__).parents[2]
REACHED: Counter[str] = Counter()

LABELS = ("begin.1", "begin.3", "commit.P3", "commit.P4", "commit.P6", "commit.P7", "commit.P8")
ROLLBACK_LABELS = ("rollback.R1", "rollback.R2", "rollback.R3", "rollback.R4")
FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_AFTER, Fault.PAUSE)
# C7 and C8 are not reached: this layer writes no table config, and no stream writes index files before its commit.
CRASH_POINTS = ("C1", "C2", "C3", "C4", "C5 C11", "C6", "C9", "C10", "C12", "C27", "C28", "C29")
RARE = ("takeover", "ghost", "late", "lost release", "unavailable", "no beats", "clock back", "compaction")
ANSWERS = ("told WriteConflictError", "told RolledBackError", "told LockUnavailableError")


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_schedule_breaks_an_invariant(block: int) -> None:
    first = block * PER_BLOCK + 1
    reached, failed = run_seeds(range(first, first + PER_BLOCK))
    REACHED.update(reached)
    assert not failed, failed[0].describe()


def test_schedules_reach_what_they_are_meant_to_reach() -> None:
    if REACHED["schedules"] < BLOCKS * PER_BLOCK:
        pytest.skip("only after all blocks have run")
    wanted = [f"{label} {fault.value}" for label in (*LABELS, *ROLLBACK_LABELS) for fault in FAULTS]
    missing = [name for name in (*wanted, *CRASH_POINTS, *RARE, *ANSWERS) if not REACHED[name]]
    assert not missing


def test_a_seed_always_gives_the_same_schedule() -> None:
    for seed in range(1, 40):
        setup = replace(draw_setup(seed), is_real=False)
        assert _trace(setup) == _trace(setup), f"seed {seed}"


def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    script = (
        "from tests.simulation.schedules import draw_setup, run_schedule\n"
        "from tests.simulation.codecs import fast_codecs\n"
        "with fast_codecs():\n"
        "    print([run_schedule(draw_setup(seed)).world.trace_hash() for seed in range(1, 10)])"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(answers) == 1


def test_a_failure_says_how_to_see_it_again() -> None:
    with fast_codecs():
        result = run_schedule(replace(draw_setup(7), is_real=False))
    result.failure = "something"
    assert "python -m tests.simulation --seed 7" in result.describe()


def _trace(setup: Setup) -> str:
    with fast_codecs():
        return run_schedule(setup).world.trace_hash()
