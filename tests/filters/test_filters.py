"""Filters against DuckDB; `python -m tests.filters` puts many more predicates to both."""

from __future__ import annotations

from pathlib import Path

import pytest

from filters.judge import PER_TABLE, compare


@pytest.mark.parametrize("seed", [1, 2])
def test_filters_find_what_duckdb_finds(seed: int, tmp_path: Path) -> None:
    differences = [*compare(seed, PER_TABLE, tmp_path)]
    assert not differences, "\n".join(map(str, differences))
