"""Random operations on random tables, judged by a model; `python -m tests.model_based` runs many more seeds."""

from __future__ import annotations

import pytest

from model_based.runner import run_seed


@pytest.mark.parametrize("seed", range(1, 26))
def test_the_table_is_what_the_model_says(seed: int) -> None:
    failure = run_seed(seed, 25)
    assert failure is None, str(failure)
