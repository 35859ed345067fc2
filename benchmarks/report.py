"""Taking times, and printing them beside what they are held against."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median, quantiles

from rich import box
from rich.console import Console
from rich.table import Table

Measure = Callable[[], float]
"""Does the work once and gives its seconds."""

WARM_UPS = 3
"""A JVM compiles what it runs often: its first rounds say little about the others."""
_WIDTH_OF_FILES = 150


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the same work, done several times."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    @property
    def p95(self) -> float:
        """What 19 of 20 stay below."""
        return quantiles(self.seconds, n=20, method="inclusive")[-1]

    def __str__(self) -> str:
        return f"{seconds_text(self.median)} (least {seconds_text(min(self.seconds))})"


@dataclass(frozen=True, slots=True)
class Bar:
    """What the project holds itself to, and whether this run met it; `met` is None where it was not measured."""

    text: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """One word for the last column."""
        return "skipped" if self.met is None else "PASS" if self.met else "SHORT"


@dataclass(frozen=True, slots=True)
class Line:
    """One comparison: what was done, our figure, the other's, how they relate. No bar means: for information."""

    what: str
    ours: str
    other: str = ""
    theirs: str = ""
    ratio: str = ""
    bar: Bar | None = None


def stopwatch(work: Callable[[], object]) -> Measure:
    """`work` as something that can be measured."""

    def measure() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return measure


def alternate(first: Measure, second: Measure, rounds: int) -> tuple[Times, Times]:
    """Both in turn, A B B A ..., after warm-ups of each: a machine that grows slower or faster treats them alike."""
    pair = (first, second)
    spent: tuple[list[float], list[float]] = ([], [])
    for measure in pair * WARM_UPS:
        measure()
    for number in range(rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            spent[which].append(pair[which]())
    return Times(tuple(spent[0])), Times(tuple(spent[1]))


def repeat(measure: Measure, rounds: int) -> Times:
    """One alone, after warm-ups."""
    for _ in range(WARM_UPS):
        measure()
    return Times(tuple(measure() for _ in range(rounds)))


def seconds_text(seconds: float) -> str:
    """Seconds in the unit that people would choose."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.2f} ms"


def slower_by(ours: Times, theirs: Times) -> str:
    """How much of their time ours is, in words for a bar from above."""
    return f"{ours.median / theirs.median:.2f}x its time"


def faster_by(ours: Times, theirs: Times) -> str:
    """How many times we fit into their time."""
    return f"{theirs.median / ours.median:.1f}x as fast"


def print_lines(title: str, lines: Iterable[Line]) -> None:
    """A table of comparisons."""
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for heading in ("work", "lakebed", "beside", "its time", "lakebed is", "bar", ""):
        table.add_column(heading)
    styles = {"PASS": "green", "SHORT": "bold red", "skipped": "yellow", "": ""}
    for line in lines:
        verdict = line.bar.verdict if line.bar else ""
        bar = line.bar.text if line.bar else "-"
        table.add_row(
            line.what,
            line.ours,
            line.other,
            line.theirs,
            line.ratio,
            bar,
            f"[{styles[verdict]}]{verdict}[/]" if verdict else "",
        )
    console = Console()
    Console(width=None if console.is_terminal else _WIDTH_OF_FILES).print(table)


def print_conditions() -> None:
    """What the figures depend on."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, load {load:.1f} before the start")
    if load > cores / 2:
        print("others are at work on this machine: times are too long, and ratios less certain than they look")
