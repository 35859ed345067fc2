"""Runs benchmarks by name: python -m benchmarks --help"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.report import print_conditions
from benchmarks.settings import Settings

READS = ("codecs", "avro", "scan", "lookup", "append")
WRITES = (
    *("write", "phases", "write_spark", "memory", "memory_spark", "index", "index_bytes", "upsert_growth"),
    "ways",
    *("compaction", "clustering", "growth"),
    *("cold", "walk", "turns"),
)
WITH_SETTINGS = ("lookup", *WRITES)
ON_DEMAND = ("append", *(name for name in WRITES if name != "write"))
"""Long ones, and those that answer a question of their own: they run when they are named."""


def main(arguments: list[str]) -> int:
    """Runs the named benchmarks, whatever is measured; 2 if a name is unknown."""
    parser = _parser()
    given = parser.parse_args(arguments)
    unknown = sorted({*given.names} - {*READS, *WRITES})
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join((*READS, *WRITES))}")
    settings = Settings(
        given.rows,
        given.batch_rows,
        given.rounds,
        given.record_index,
        given.large,
        given.spark,
        given.base,
        tuple(given.only),
    )
    print_conditions()
    for name in (*READS, *WRITES):
        if name in given.names or (not given.names and name not in ON_DEMAND):
            print(f"\n== {name} ==", flush=True)
            module = import_module(f"benchmarks.{name}")
            module.main(settings) if name in WITH_SETTINGS else module.main()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Measures. All but the long ones by default.")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join((*READS, *WRITES)))
    writes = parser.add_argument_group("writes")
    writes.add_argument("--rows", type=int, default=Settings().rows, help="in the first load")
    writes.add_argument("--batch-rows", type=int, default=Settings().batch_rows, help="in a batch of upserts")
    writes.add_argument("--rounds", type=int, help="how often to measure")
    writes.add_argument("--record-index", action="store_true", help="on tables of lakebed and of Apache Hudi")
    parser.add_argument("--large", action="store_true", help="lookup, upsert_growth: also an index of 100,000,000 keys")
    parser.add_argument("--spark", action="store_true", help="cold: first upserts of Spark sessions")
    parser.add_argument("--base", "--source", type=_checkout, help="turns, walk: another checkout, or its src")
    parser.add_argument("--only", action="append", default=[], metavar="FIGURES", help="turns: these alone; repeatable")
    return parser


def _checkout(text: str) -> Path:
    """The folder of a checkout, absolute."""
    path = Path(text).resolve()
    root = path.parent if path.name == "src" else path
    if not (root / "src" / "lakebed").is_dir():
        raise argparse.ArgumentTypeError(f"there is no src/lakebed in {root}")
    return root


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
