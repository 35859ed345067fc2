"""Progress bars: the current phase and its progress on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.observe import SILENT, Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """An observer that shows one bar, labelled with the phase."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def phase(self, name: str) -> None:
        """Replace the bar by one of unknown length."""
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(name, total=None)

    def progress(self, what: str, done: int, total: int) -> None:
        """Move the bar forward; its label is `what` if no phase was reported."""
        if self._task is None:
            self._task = self._bars.add_task(what, total=None)
        self._bars.update(self._task, completed=done, total=total)


@contextmanager
def show_progress() -> Iterator[Observer]:
    """An observer that draws a bar on standard error if that is a terminal, and else ignores everything."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    # Imported here: a pipe has no use for rich.
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield ProgressBar(bars)
