"""Writes in one process: a first load and upserts, against delta-rs and pypaimon, on Arrow tables in memory.

Everyone writes the same batches, turn by turn, each to a table of its own that grows by them. Opening the table and
committing are in every figure. In the end the tables must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.batches import Batches, make_batches
from benchmarks.folders import fresh_folder
from benchmarks.report import Bar, Line, print_lines, seconds_text
from benchmarks.settings import Settings
from benchmarks.writers import TITLES, Spent, Writer, running_writers

ROUNDS, LOADS = 5, 3
COW_TIMES_MIN, MOR_TIMES_MIN = 1.5, 8.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A writer with a kind of table."""

    writer: Writer
    table_type: str

    @property
    def loads_often(self) -> bool:
        """Whether its first loads are worth several rounds: others load once, for a table to upsert to.

        The kind of table makes no difference to a load, and pypaimon takes a minute for one.
        """
        return self.table_type == "cow" and self.writer.name != "paimon"

    def path(self, folder: Path) -> str:
        """Where its table is."""
        return str(folder / f"{self.writer.name}_{self.table_type}")


@dataclass(frozen=True, slots=True)
class Costs:
    """The same work, done several times."""

    spent: tuple[Spent, ...]

    @property
    def wall(self) -> float:
        """The middle one, by the clock."""
        return median(spent.wall for spent in self.spent)

    @property
    def cpu(self) -> float:
        """The middle one, in processor time."""
        return median(spent.cpu for spent in self.spent)

    def __str__(self) -> str:
        return f"{seconds_text(self.wall)} (cpu {seconds_text(self.cpu)})"


def main(settings: Settings) -> None:
    """Prints one table."""
    batches = make_batches(settings.rows, settings.batch_rows)
    with running_writers(("lakebed", "deltalake", "paimon"), on_spark=False) as writers:
        contenders = [Contender(writers["lakebed"], "cow"), Contender(writers["lakebed"], "mor")]
        contenders += [Contender(writer, "cow") for name, writer in writers.items() if name != "lakebed"]
        loads, upserts = measure(contenders, batches, settings, settings.rounds or ROUNDS)
    bars = {("cow", "deltalake"): COW_TIMES_MIN, ("mor", "deltalake"): MOR_TIMES_MIN}
    peers = [(name, "cow") for name in ("deltalake", "paimon")]
    lines = [
        *compare("first load, COW", ("lakebed", "cow"), peers, loads, {}),
        *compare("upsert, COW", ("lakebed", "cow"), peers, upserts, bars),
        *compare("upsert, MOR", ("lakebed", "mor"), peers, upserts, bars),
    ]
    print_lines(title("in process", settings), lines)


Measured = Mapping[tuple[str, str], Costs]
"""Costs by the name of the writer and the kind of its table."""


def title(where: str, settings: Settings) -> str:
    """What was done."""
    index = ", with a record index" if settings.record_index else ""
    return f"writes {where}: {settings.rows:,} rows, then batches of {settings.batch_rows:,}{index}; medians"


def measure(
    contenders: Sequence[Contender], batches: Batches, settings: Settings, rounds: int, loads: int = LOADS
) -> tuple[Measured, Measured]:
    """Costs of first loads and of upserts. One of each is done before, and not counted."""
    with fresh_folder() as made:
        folders = [made / f"load-{number}" for number in range(min(rounds, loads) + 1)]
        turns = Turns(settings.record_index)
        for number, folder in enumerate(folders):
            folder.mkdir()
            is_last, rows = folder == folders[-1], batches.load if number else batches.batch(0)
            chosen = contenders if is_last else [c for c in contenders if c.loads_often]
            for contender in chosen if number % 2 else chosen[::-1]:
                turns.load(contender, folder, rows, counts=number > 0)
        for number in range(rounds + 1):
            for contender in contenders if number % 2 else contenders[::-1]:
                turns.upsert(contender, folders[-1], batches.batch(number), counts=number > 0)
        check_same_rows(contenders, folders[-1])
    return turns.loads, turns.upserts


class Turns:
    """What was done so far, and what it took."""

    def __init__(self, record_index: bool) -> None:
        self._record_index = record_index
        self.loads: dict[tuple[str, str], Costs] = {}
        self.upserts: dict[tuple[str, str], Costs] = {}

    def load(self, contender: Contender, folder: Path, rows: str, *, counts: bool) -> None:
        """A contender makes a table in the folder."""
        path = contender.path(folder)
        spent = contender.writer.first_load(path, rows, contender.table_type, record_index=self._record_index)
        self._note("load", contender, spent, self.loads if counts else None)

    def upsert(self, contender: Contender, folder: Path, rows: str, *, counts: bool) -> None:
        """A contender upserts to its table in the folder."""
        path = contender.path(folder)
        spent = contender.writer.upsert(path, rows, contender.table_type, record_index=self._record_index)
        self._note("upsert", contender, spent, self.upserts if counts else None)

    def _note(self, did: str, contender: Contender, spent: Spent, into: dict[tuple[str, str], Costs] | None) -> None:
        aside = "" if into is not None else ", to warm up"
        print(f"  {contender.writer.title}, {contender.table_type}, {did}{aside}: {Costs((spent,))}", flush=True)
        if into is not None:
            key = (contender.writer.name, contender.table_type)
            into[key] = Costs((*(into[key].spent if key in into else ()), spent))


def check_same_rows(contenders: Sequence[Contender], folder: Path) -> None:
    """Refuse to compare the speed of writes that differ in what they wrote."""
    totals = {contender: contender.writer.totals(contender.path(folder)) for contender in contenders}
    if len({tuple(numbers) for numbers in totals.values()}) > 1:
        found = ", ".join(f"{c.writer.title} {c.table_type} {numbers}" for c, numbers in totals.items())
        raise RuntimeError(f"the tables differ: {found}")


def compare(
    what: str,
    own: tuple[str, str],
    peers: Sequence[tuple[str, str]],
    measured: Measured,
    bars: Mapping[tuple[str, str], float],
) -> list[Line]:
    """Lines of our costs beside those of each peer; `bars` are by our kind of table and the name of the peer."""
    lines, ours = [], measured[own]
    for peer in peers:
        least = bars.get((own[1], peer[0]))
        theirs = measured.get(peer)
        times = theirs.wall / ours.wall if theirs else 0.0
        met = None if theirs is None or least is None else times >= least
        bar = None if least is None else Bar(f">= {least:g}x as fast", met)
        ratio = _ratio(ours, theirs) if theirs else ""
        lines.append(Line(what, str(ours), TITLES[peer[0]], str(theirs or "skipped"), ratio, bar))
    return lines


def _ratio(ours: Costs, theirs: Costs) -> str:
    """How many times we fit into their time; in processor time too, where the system tells it."""
    times = f"{theirs.wall / ours.wall:.1f}x as fast"
    return f"{times} (cpu {theirs.cpu / ours.cpu:.1f}x)" if ours.cpu else times
