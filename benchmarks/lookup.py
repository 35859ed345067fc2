"""One row by its key: warm, in a fresh process, and as the table grows; beside it a filter, and Apache Hudi.

Warm means: one open table, other keys at random each time, files in the page cache of the system. The first pass over
random keys meets files and pages that this process has not seen, the second one does not.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import lakebed
from benchmarks.lookup_tables import grown_table, own_table
from benchmarks.peer import Peer, PeerMissingError, running_peer
from benchmarks.report import Bar, Line, Times, faster_by, print_lines, seconds_text, stopwatch
from benchmarks.settings import Settings
from benchmarks.tables import read_tables
from lakebed.api import handle_of
from lakebed.index.record.probe import find_locations
from lakebed.metadata import MetadataTable
from lakebed.table import open_handle

KEYS = 200
KEYS_OF_FILTERS = 50
KEYS_OF_PEER = 10
PROCESSES = 5
SECONDS_MAX, FRESH_SECONDS_MAX, FLAT_MAX = 0.005, 0.08, 1.5
GROWTH, LARGE = (1_000_000, 10_000_000), 100_000_000
"""The large one is measured with --large: it takes 3 GB of disk and minutes to make."""
FIRST_LOOKUP = """
import sys, time
started = time.perf_counter()
from lakebed import open_table
imported = time.perf_counter()
assert open_table(sys.argv[1]).lookup(sys.argv[2:]).num_rows == 1
print(imported - started, time.perf_counter() - imported)
"""


def main(settings: Settings) -> None:
    """Prints a table per question."""
    print_lines("one row by its key, out of 1,000,000 that lakebed wrote", own_lines())
    counts = (*GROWTH, LARGE) if settings.large else GROWTH
    print_lines("one row by its key, as the index grows", list(growth_lines(counts)))
    with running_peer() as peer:
        try:
            tables = read_tables(peer)
        except PeerMissingError as error:
            print(f"skipped: {error}")
            return
        keys = tables.keys(KEYS)
        lines = [*look_up("COW", tables.cow, keys, peer), *look_up("MOR", tables.mor, keys, peer)]
    print_lines("one row by its key, out of 1,000,000 that Apache Hudi wrote", lines)


def own_lines() -> list[Line]:
    """Lookups in tables that lakebed wrote: 1,000,000 rows, a tenth of them updated."""
    lines = []
    for kind in ("cow", "mor"):
        path, keys = own_table(kind)
        lines += look_up(kind.upper(), path, keys, None)
    return lines


def growth_lines(counts: tuple[int, ...]) -> Iterator[Line]:
    """The same lookups in tables whose record index has ever more keys; the rows are those of one table."""
    medians: dict[int, float] = {}
    for count in counts:
        path, keys = grown_table(count)
        look_up_warm(path, keys)
        warm, _ = look_up_warm(path, keys)
        located = locate_warm(path, keys)
        medians[count] = warm.median
        ratio = warm.median / medians[GROWTH[0]]
        bar = Bar(f"<= {FLAT_MAX}x", ratio <= FLAT_MAX) if count > GROWTH[0] else None
        figure = f"{warm}, p95 {seconds_text(warm.p95)}"
        yield Line(f"{count:,} keys", figure, "of that, the index", str(located), f"{ratio:.2f}x the first", bar)


def look_up(kind: str, path: str, keys: list[str], peer: Peer | None) -> list[Line]:
    """All ways to one row of a table."""
    first_pass, _ = look_up_warm(path, keys)
    warm, requests = look_up_warm(path, keys)
    filtered = filter_warm(path, keys[:KEYS_OF_FILTERS])
    imports, firsts = zip(*(first_lookup(path, key) for key in keys[:PROCESSES]), strict=True)
    theirs = None if peer is None else ask_all(peer, path, keys[:KEYS_OF_PEER])
    bar = Bar(f"<= {SECONDS_MAX * 1e3:.0f} ms", warm.median <= SECONDS_MAX)
    return [
        beside_hudi(f"{kind}, lookup, warm", warm, theirs, bar),
        Line("  of that, on a processor", str(processor_warm(path, keys))),
        Line("  files and pages not seen before", f"{first_pass}, p95 {seconds_text(first_pass.p95)}"),
        Line("  of that, the record index", str(locate_warm(path, keys))),
        Line("  storage requests of one", requests),
        Line(
            "  first one of a process",
            str(Times(firsts)),
            bar=Bar(f"<= {FRESH_SECONDS_MAX * 1e3:.0f} ms", Times(firsts).median <= FRESH_SECONDS_MAX),
        ),
        Line("  import before that one", str(Times(imports))),
        beside_hudi(f"{kind}, to_arrow(where=...)", filtered, theirs),
    ]


def beside_hudi(what: str, ours: Times, theirs: Times | None, bar: Bar | None = None) -> Line:
    """A line against Apache Hudi's filtered read."""
    figure, other = f"{ours}, p95 {seconds_text(ours.p95)}", "Apache Hudi 1.2, filter"
    if theirs is None:
        return Line(what, figure, other, "skipped", bar=bar)
    return Line(what, figure, other, str(theirs), faster_by(ours, theirs), bar)


def processor_warm(path: str, keys: list[str]) -> Times:
    """What warm lookups take of a processor: on a machine that others use too, the steadier figure."""
    table = lakebed.open_table(path)
    spent = []
    for key in keys:
        started = time.process_time()
        found = table.lookup([key])
        spent.append(time.process_time() - started)
        check_found(found.num_rows)
    return Times(tuple(spent[1:]))


def look_up_warm(path: str, keys: list[str]) -> tuple[Times, str]:
    """Lookups through one open table, after one that is not counted; and what one asks of the store on average."""
    table = lakebed.open_table(path)
    check_found(table.lookup(keys[-1:]).num_rows)
    counts = handle_of(table).storage.counts
    before, spent = counts.snapshot(), []
    for key in keys:
        started = time.perf_counter()
        found = table.lookup([key])
        spent.append(time.perf_counter() - started)
        check_found(found.num_rows)
    total = asdict(counts.snapshot() - before)
    moved = total.pop("bytes_read") / len(keys) / 1024
    total.pop("bytes_written")
    verbs = ", ".join(f"{number / len(keys):.1f} {verb}" for verb, number in total.items() if number)
    return Times(tuple(spent)), f"{verbs}; {moved:,.0f} KiB read"


def locate_warm(path: str, keys: list[str]) -> Times:
    """The first half of a lookup alone: from a key to the file group that holds it."""
    metadata = open_handle(path).state().metadata
    assert isinstance(metadata, MetadataTable)
    find_locations(metadata, keys)
    return Times(tuple(stopwatch(partial(find_locations, metadata, [key]))() for key in keys))


def filter_warm(path: str, keys: list[str]) -> Times:
    """The same rows by a filter on the key column, as a scan."""
    table = lakebed.open_table(path)
    wheres = [f"uuid = '{key}'" for key in keys]
    check_found(table.to_arrow(where=wheres[0]).num_rows)
    return Times(tuple(stopwatch(partial(table.to_arrow, where=where))() for where in wheres))


def first_lookup(path: str, key: str) -> tuple[float, float]:
    """Seconds of `from lakebed import open_table` in a fresh process, and then of opening a table and one lookup."""
    command = [sys.executable, "-c", FIRST_LOOKUP, path, key]
    imported, found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(imported), float(found)


def ask_all(peer: Peer, path: str, keys: list[str]) -> Times:
    """The same rows by Apache Hudi, whose filters on the key use the record index; the first is not counted."""
    answers = [peer.ask("find", path=path, key=key) for key in [keys[-1], *keys]][1:]
    for answer in answers:
        check_found(answer["rows"])
    return Times(tuple(answer["seconds"] for answer in answers))


def check_found(rows: int) -> None:
    """Refuse to take the time of a wrong answer."""
    if rows != 1:
        raise RuntimeError(f"{rows} rows for one key")


if __name__ == "__main__":
    main(Settings())
