"""Progress bars: on a terminal the phase that is under way and how far it is, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.observe import SILENT, Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """An observer that shows one bar, named after the phase."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def phase(self, name: str) -> None:
        """A bar of unknown length takes the place of the one before."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(name, total=None)

    def progress(self, what: str, done: int, total: int) -> None:
        """The bar grows; it is named after `what` if no phase was told of."""
        if self._task is None:
            self._task = self._bars.add_task(what, total=None)
        self._bars.update(self._task, completed=done, total=total)


@contextmanager
def watched() -> Iterator[Observer]:
    """An observer for as long as a command works: a bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    # Imported here: a pipe has no use for rich.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield ProgressBar(bars)
