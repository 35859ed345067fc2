"""As `test_first_seeds`, in a file of its own: tests are shared out among processes by file."""

from __future__ import annotations

import pytest

from model_based.runner import run_seed


@pytest.mark.parametrize("seed", range(26, 51))
def test_the_table_is_what_the_model_says(seed: int) -> None:
    failure = run_seed(seed, 25)
    assert failure is None, str(failure)
