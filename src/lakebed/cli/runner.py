"""What `lakebed services run --every` shows while it goes on: lines for people or programs, until a signal ends it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lakebed.cli.words import count, printable
from lakebed.observe import Observer, Silent
from lakebed.reports.report import encode_json
from lakebed.reports.services import run_entry
from lakebed.services.table_services import WAITING, Done

if TYPE_CHECKING:
    from rich.status import Status


_TELL_EVERY_S = 600.0


class Lines(Observer, Protocol):
    """Tells what services do, one line for each thing done; steps are phases."""

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """The runner is at work."""
        ...

    def report(self, done: Done) -> None:
        """Something was done, or could not be."""
        ...


class JsonLines(Silent):
    """One JSON object a line, for what was done alone."""

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """Programs know what they started."""

    def report(self, done: Done) -> None:
        """Write a line: when, what, how long it took, and what came of it."""
        print(encode_json(run_entry(done, _now()), indent=None), flush=True)


class TextLines(Silent):
    """Plain lines; on a terminal, the step that is under way below them.

    In a pipe nobody sees steps go by. So a runner that finds nothing to do says that it lives, every ten minutes.
    """

    def __init__(self, status: Status | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._now = now
        self._told_at = now()
        self._idle_rounds = 0
        self._did = 0

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """Say what runs, on which table, and how often."""
        self._tell(f"{table}: every {every}: {', '.join(services)}")

    def phase(self, name: str) -> None:
        """Show the step on a terminal; in a pipe, end the round when the runner begins to wait."""
        if self._status is not None:
            self._status.update(name)
        elif name == WAITING:
            self._end_round()

    def report(self, done: Done) -> None:
        """Write a line."""
        self._did += 1
        self._tell(f"{' '.join(str(done).split())} ({done.milliseconds} ms)")

    def _end_round(self) -> None:
        """Say that there was nothing to do, if nothing was printed for ten minutes."""
        self._idle_rounds = 0 if self._did else self._idle_rounds + 1
        if not self._did and self._now() - self._told_at >= _TELL_EVERY_S:
            self._tell(f"nothing to do in {count(self._idle_rounds, 'round')}")
        self._did = 0

    def _tell(self, text: str) -> None:
        self._told_at = self._now()
        line = printable(f"{_now()} {text}")
        if self._status is None:
            print(line, flush=True)
        else:
            self._status.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def open_lines(*, as_json: bool) -> Iterator[Lines]:
    """Lines for whatever standard output is."""
    if as_json:
        yield JsonLines()
    elif not sys.stdout.isatty():
        yield TextLines()
    else:
        # Imported here: a pipe has no use for rich.
        from rich.console import Console

        with Console().status("") as status:
            yield TextLines(status)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, instead of what they do otherwise."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
