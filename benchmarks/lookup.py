"""One row by its key out of 1,000,000: through the record index, by a filter, and with Apache Hudi."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial

import lakebed
from benchmarks.peer import Peer, PeerMissingError, running_peer
from benchmarks.report import Bar, Line, Times, faster_by, print_lines, seconds_text, stopwatch
from benchmarks.tables import ReadTables, read_tables
from lakebed.metadata import MetadataTable
from lakebed.metadata.record_index import find_locations

KEYS = 200
KEYS_OF_FILTERS = 50
KEYS_OF_PEER = 10
PROCESSES = 5
SECONDS_MAX = 0.005
FIRST_LOOKUP = """
import sys, time
started = time.perf_counter()
from lakebed import open_table
imported = time.perf_counter()
assert open_table(sys.argv[1]).lookup(sys.argv[2:]).num_rows == 1
print(imported - started, time.perf_counter() - imported)
"""


def main() -> None:
    """Prints one table."""
    with running_peer() as peer:
        try:
            tables = read_tables(peer)
        except PeerMissingError as error:
            print(f"skipped: {error}")
            return
        lines = [*look_up("COW", tables.cow, tables, peer), *look_up("MOR", tables.mor, tables, peer)]
    print_lines("one row by its key, out of 1,000,000", lines)


def look_up(kind: str, path: str, tables: ReadTables, peer: Peer | None) -> list[Line]:
    """All ways to one row of a table."""
    keys = tables.keys(KEYS)
    warm, requests = look_up_warm(path, keys)
    filtered = filter_warm(path, keys[:KEYS_OF_FILTERS])
    imports, firsts = zip(*(first_lookup(path, key) for key in keys[:PROCESSES]), strict=True)
    theirs = None if peer is None else ask_all(peer, path, keys[:KEYS_OF_PEER])
    bar = Bar(f"<= {SECONDS_MAX * 1e3:.0f} ms", warm.median <= SECONDS_MAX)
    return [
        beside_hudi(f"{kind}, lookup, warm", warm, theirs, bar),
        Line("  of that, the record index", str(locate_warm(path, keys))),
        Line("  storage requests of one", requests),
        Line("  first one of a process", str(Times(firsts))),
        Line("  import before that one", str(Times(imports))),
        beside_hudi(f"{kind}, to_arrow(where=...)", filtered, theirs),
    ]


def beside_hudi(what: str, ours: Times, theirs: Times | None, bar: Bar | None = None) -> Line:
    """A line against Apache Hudi's filtered read."""
    figure, other = f"{ours}, p95 {seconds_text(ours.p95)}", "Apache Hudi 1.2, filter"
    if theirs is None:
        return Line(what, figure, other, "skipped", bar=bar)
    return Line(what, figure, other, str(theirs), faster_by(ours, theirs), bar)


def look_up_warm(path: str, keys: list[str]) -> tuple[Times, str]:
    """Lookups through one open table, after one that is not counted; and what one asks of the store on average."""
    table = lakebed.open_table(path)
    check_found(table.lookup(keys[-1:]).num_rows)
    counts = table._handle.storage.counts
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
    metadata = lakebed.open_table(path)._handle.state().metadata
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
    main()
