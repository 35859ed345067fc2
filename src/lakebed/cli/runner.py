"""Output of `lakebed services run --every`: lines of text or JSON, until a signal ends it."""

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
"""Seconds between messages of an idle runner."""


class Lines(Observer, Protocol):
    """Shows what services do: one line per action; steps are phases."""

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """The runner has started."""
        ...

    def report(self, done: Done) -> None:
        """A service did something, or failed."""
        ...


class JsonLines(Silent):
    """One JSON object per line, for actions only."""

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """Write nothing."""

    def report(self, done: Done) -> None:
        """Write a line: time, action, duration and outcome."""
        print(encode_json(run_entry(done, _now()), indent=None), flush=True)


class TextLines(Silent):
    """Plain lines; on a terminal, the current step below them.

    In a pipe, steps are not shown; an idle runner writes a line every ten minutes instead.
    """

    def __init__(self, status: Status | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._status = status
        self._now = now
        self._told_at = now()
        self._idle_rounds = 0
        self._did = 0

    def start(self, table: str, every: str, services: Sequence[str]) -> None:
        """Write the table, the interval and the services."""
        self._tell(f"{table}: every {every}: {', '.join(services)}")

    def phase(self, name: str) -> None:
        """Show the step on a terminal; in a pipe, end the round when the runner starts waiting."""
        if self._status is not None:
            self._status.update(name)
        elif name == WAITING:
            self._end_round()

    def report(self, done: Done) -> None:
        """Write a line."""
        self._did += 1
        self._tell(f"{' '.join(str(done).split())} ({done.milliseconds} ms)")

    def _end_round(self) -> None:
        """Write that there was nothing to do, if nothing was written for ten minutes."""
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
    """Lines as JSON, or as text for a terminal or a pipe."""
    if as_json:
        yield JsonLines()
    elif not sys.stdout.isatty():
        yield TextLines()
    else:
        # Deferred: only a terminal needs rich.
        from rich.console import Console

        with Console().status("") as status:
            yield TextLines(status)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set, instead of ending the process."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
