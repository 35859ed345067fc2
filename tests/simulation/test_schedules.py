"""Thousands of schedules: every invariant after every effect, and a legal history at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.transaction.test_steps import in_code

from .codecs import fast_codecs
from .faults import Fault
from .mutants import with_engines, with_merged_logs, with_undone_merges
from .schedules import run_blocks, run_schedule, run_seeds, simulated
from .setup import Setup, draw_setup

SCHEDULES, PER_BLOCK = 10_000, 500
MERGES = 400
ENGINES = 500
ROOT = Path(__file__).parents[2]

FAULTS = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST_AFTER, Fault.PAUSE)
NEVER = ("commit.P4 lost after",)
"""A step that only reads: whatever is written meanwhile is a heartbeat."""
NO_ACTOR = ("lease.",)
"""Readers with a lease are not simulated: tests/services has them."""
IN_MATRIX = ("restore.", "service.cancel", "stream.")
"""Steps that are rare: the crash matrix strikes each of their calls."""
CAUGHT_UP = "index.D9"
"""A step for which another engine must commit while an index is built. It has schedules of its own, and
tests/services/test_index_crashes.py strikes each of its calls."""
CRASH_POINTS = (
    *("C1", "C2", "C3", "C4", "C5 C11", "C6", "C7", "C8", "C9", "C10", "C12"),
    *("C23", "C24", "C26", "C27", "C28", "C29", "C37", "C38", "C40"),
)
"""All that the protocol names but three, C25, C30 and C39, which the crash matrix is sure to hit."""
RARE = (
    "takeover",
    "ghost",
    "late",
    "lost release",
    "unavailable",
    "no beats",
    "clock back",
    "a task outlives its driver",
)
SERVICES = (
    "compaction",
    "logcompaction",
    "clustering",
    "clean",
    "archived",
    "savepoint",
    "restore",
    "restore taken up",
    "rollback of a completed write",
    "service.cancel",
    "metadata commit",
    "metadata clean",
    "metadata rollback",
    "config changed",
    "index files before the commit",
    "index created",
    "index planned",
    "planned index built",
    "index rebuilt",
    "index dropped",
    "prepared",
    "recommitted",
)
ONCE_FAILED = (622, 1260, 1812, 1843, 3299, 3378, 3525, 6814, 7562, 9266, 500004114, 500005106, 920002905)
"""Each found a fault, of the product or of its judge, and fails without the mending."""
ONCE_FAILED_BEFORE = (
    *(14966, 15101, 18410, 23904, 25568, 39584, 46848, 63070, 73834, 89683, 107235),
    *(244511, 292365, 297047, 353664, 355538, 402286, 442304, 671836, 684740, 714653, 887399, 945088),
    *(1180212, 1373160, 1374031, 1700440, 1734619, 2062057, 5098502, 5309644, 5771112, 7779844, 9338332),
)
"""Each found a fault while writers were simulated by a copy. Since the real writer runs, their schedules are others and
reach other things; seeds that reach the same faults are still to be found. Until then the crash matrix and mutants
hold these rules."""
ANSWERS = ("told WriteConflictError", "told RolledBackError", "told LockUnavailableError")


def test_no_schedule_breaks_an_invariant_and_all_reach_what_they_are_meant_to_reach() -> None:
    reached: Counter[str] = Counter()
    failed: list[str] = []
    for block in run_blocks(1, SCHEDULES // PER_BLOCK, PER_BLOCK, jobs=min(2, os.cpu_count() or 1)):
        reached.update(block[0])
        failed += block[1]
    assert not failed, failed[0]
    assert reached["schedules"] == SCHEDULES
    labels = [label for label in sorted(in_code()) if not label.startswith((*NO_ACTOR, CAUGHT_UP))]
    steps = [f"{label} {fault.value}" for label in labels if not label.startswith(IN_MATRIX) for fault in FAULTS]
    steps = [*labels, *(step for step in steps if step not in NEVER)]
    missing = [name for name in (*steps, *CRASH_POINTS, *RARE, *SERVICES, *ANSWERS) if not reached[name]]
    assert not missing


def test_log_files_of_the_metadata_table_are_merged_under_all_that_may_happen() -> None:
    """Readers that leave out what was merged, and such that read all log files by their times, find the same."""
    reached, failed = run_seeds(range(1, MERGES), with_merged_logs)
    assert not failed, failed[0].describe()
    more, failed = run_seeds(range(MERGES, MERGES + MERGES // 2), with_undone_merges)
    assert not failed, failed[0].describe()
    reached.update(more)
    wanted = ("metadata logcompaction", "metadata commit", "metadata clean", "restore", "rollback of a completed write")
    assert [name for name in wanted if not reached[name]] == []


def test_builders_of_indexes_catch_up_with_another_engine_under_all_that_may_happen() -> None:
    faults = {Fault.CRASH_BEFORE: 0.002, Fault.CRASH_AFTER: 0.002, Fault.LOST_AFTER: 0.01, Fault.PAUSE: 0.03}
    reached, failed = run_seeds(range(1, ENGINES), lambda setup: replace(with_engines(setup), rates=faults))
    assert not failed, failed[0].describe()
    assert reached[CAUGHT_UP]


@pytest.mark.parametrize("seed", [*ONCE_FAILED, *ONCE_FAILED_BEFORE])
def test_schedules_that_once_failed(seed: int) -> None:
    _, failed = run_seeds([seed])
    assert not failed, failed[0].describe()


def test_a_seed_always_gives_the_same_schedule() -> None:
    for seed in range(1, 40):
        setup = replace(draw_setup(seed), is_real=False)
        assert _trace(setup) == _trace(setup), f"seed {seed}"


def test_a_seed_gives_the_same_schedule_in_another_process() -> None:
    script = (
        "from tests.simulation.schedules import run_schedule, simulated\n"
        "from tests.simulation.setup import draw_setup\n"
        "from tests.simulation.codecs import fast_codecs\n"
        "with simulated(), fast_codecs():\n"
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
    with simulated(), fast_codecs():
        result = run_schedule(replace(draw_setup(7), is_real=False))
    result.failure = "something"
    assert "python -m tests.simulation --seed 7" in result.describe()


def _trace(setup: Setup) -> str:
    with simulated(), fast_codecs():
        return run_schedule(setup).world.trace_hash()
