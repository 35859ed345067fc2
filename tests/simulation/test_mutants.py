"""The simulation tells naive protocols from ours: proof that its checks bite."""

from __future__ import annotations

import pytest

from .mutants import MUTANTS, Mutant
from .schedules import run_seeds

SCHEDULES_MAX = 2_000


def _seeds(count: int) -> list[int]:
    """Seeds with cheap codecs."""
    return [seed for seed in range(1, count) if seed % 10]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutant.applied():
        reached, failed = run_seeds(_seeds(SCHEDULES_MAX), mutant.tweak)
    assert failed, f"{mutant.about}: survived {reached['schedules']} schedules"
    # It was the mutant that failed, not the protocol: without it the very schedule is legal.
    _, failed = run_seeds([failed[0].setup.seed], mutant.tweak)
    assert not failed, failed[0].describe()
