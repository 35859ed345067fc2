"""Both implementations of kernels, for tests that run on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.kernels import choice
from lakebed.kernels.choice import Implementation
from lakebed.kernels.warm import warm_up

IMPLEMENTATIONS: tuple[Implementation, ...] = ("plain", "compiled")


@contextmanager
def using(implementation: Implementation) -> Iterator[None]:
    """One implementation serves all calls. Compiled code that does not lie ready yet is compiled, or waited for."""
    if implementation == "compiled" and not choice.is_ready():
        warm_up()
        choice.forget()
        assert choice.is_ready(), "compiled code cannot be kept on this host"
    with choice.forced(implementation):
        yield
