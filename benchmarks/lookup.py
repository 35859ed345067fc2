"""One row by its key out of 1,000,000: through the record index, by a filter, and with Apache Hudi."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import asdict

import lakebed
from benchmarks.peer import Peer, PeerMissingError, running_peer
from benchmarks.report import Bar, Line, Times, faster_by, print_lines, seconds_text, stopwatch
from benchmarks.tables import ReadTables, read_tables

KEYS = 200
KEYS_OF_FILTERS = 50
KEYS_OF_PEER = 10
PROCESSES = 5
SECONDS_MAX = 0.005


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
    bar = Bar(f"<= {SECONDS_MAX * 1e3:.0f} ms", warm.median <= SECONDS_MAX)
    first = Times(tuple(first_lookup(path, key) for key in keys[:PROCESSES]))
    filtered = filter_warm(path, keys[:KEYS_OF_FILTERS])
    beside = {"other": "Apache Hudi 1.2, filter", "theirs": "skipped"}
    lookup_ratio = filter_ratio = ""
    if peer is not None:
        theirs = ask_all(peer, path, keys[:KEYS_OF_PEER])
        beside["theirs"] = str(theirs)
        lookup_ratio, filter_ratio = faster_by(warm, theirs), faster_by(filtered, theirs)
    return [
        Line(f"{kind}, lookup, warm", f"{warm}, p95 {seconds_text(warm.p95)}", ratio=lookup_ratio, bar=bar, **beside),
        Line(f"{kind}, storage requests of one lookup", requests),
        Line(f"{kind}, first lookup of a process", str(first)),
        Line(f"{kind}, to_arrow(where=key)", str(filtered), ratio=filter_ratio, **beside),
    ]


def look_up_warm(path: str, keys: list[str]) -> tuple[Times, str]:
    """Lookups through one open table, after one that is not counted; and what the median one asks of the store."""
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


def filter_warm(path: str, keys: list[str]) -> Times:
    """The same rows by a filter on the key column, as a scan."""
    table = lakebed.open_table(path)
    wheres = [f"uuid = '{key}'" for key in keys]
    check_found(table.to_arrow(where=wheres[0]).num_rows)
    return Times(tuple(stopwatch(lambda where=where: table.to_arrow(where=where))() for where in wheres))  # type: ignore[misc]


def first_lookup(path: str, key: str) -> float:
    """Seconds to open a table and look up a key, in a process that has only imported lakebed."""
    command = [sys.executable, "-m", "benchmarks.lookup", path, key]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


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
    if sys.argv[1:]:
        print(stopwatch(lambda: lakebed.open_table(sys.argv[1]).lookup(sys.argv[2:]))())
    else:
        main()
