"""Both implementations of kernels, for tests that run on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakebed.kernels import choice
from lakebed.kernels.choice import Implementation

IMPLEMENTATIONS: tuple[Implementation, ...] = ("plain", "compiled")


@contextmanager
def using(implementation: Implementation) -> Iterator[None]:
    """One implementation serves all calls; the test is skipped if it is compiled code that does not lie ready."""
    if implementation == "compiled" and not choice.is_ready():
        pytest.skip("no compiled code lies ready: run `lakebed warm-up`")
    with choice.forced(implementation):
        yield
